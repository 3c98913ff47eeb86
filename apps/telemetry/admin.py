"""Alert rules as configuration; alerts, silences, channels and notifications as records."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from apps.accounts.service_admin import Preview, PreviewPart, ServiceAdmin, ServiceForm, StatusAdmin
from apps.core.admin import ReadOnlyAdmin
from apps.core.exceptions import InflightError
from apps.telemetry.alerts import inputs, services, wording
from apps.telemetry.alerts.models import Alert, AlertRule, Notification, NotificationChannel, Silence
from apps.telemetry.domain.alerting import conditions

_FIELDS = [
    "name",
    "summary",
    "remedy",
    "severity",
    "target",
    "selector",
    "condition",
    "for_seconds",
    "resolve_seconds",
    "null_seconds",
    "repeat_seconds",
    "channels",
    "enabled",
]


class AlertRuleForm(ServiceForm):
    """All of a rule; the condition as JSON."""

    class Meta:
        model = AlertRule
        fields = _FIELDS
        help_texts = {
            "condition": _("JSON as in docs/alerts.md. The page Alerts has a form for it."),
            "selector": _("* and ? as in file names; a server also goes by its deployment's name."),
            "channels": _("None chosen: every channel that is switched on."),
        }


@admin.register(AlertRule)
class AlertRuleAdmin(ServiceAdmin):
    """What is watched for."""

    form = AlertRuleForm
    list_display = ["name", "summary", "severity", "target", "enabled", "updated_at"]
    list_filter = ["enabled", "severity", "target"]
    search_fields = ["name", "summary"]
    fixed_fields = ("name",)
    fieldsets = [
        (_("Alert rule"), {"fields": ["name", "summary", "remedy", "severity", "enabled"]}),
        (_("Condition"), {"fields": ["target", "selector", "condition"]}),
        (_("Durations"), {"fields": ["for_seconds", "resolve_seconds", "null_seconds", "repeat_seconds"]}),
        (_("Notification"), {"fields": ["channels"]}),
    ]

    def page_url(self, row: AlertRule) -> str:
        """The page with its form."""
        return reverse("alerts:rule", args=[row.name])

    def save_through_service(self, actor: User, form: Any, row: AlertRule | None) -> AlertRule:
        """Create or change it."""
        data = {key: value for key, value in form.cleaned_data.items() if key in _FIELDS}
        data["channels"] = [channel.name for channel in data.pop("channels", [])]
        return services.save_alert_rule(actor, data, row)

    def save_related(self, request: Any, form: Any, formsets: Any, change: bool) -> None:
        """Nothing: the service saved the channels too."""

    def delete_through_service(self, actor: User, row: AlertRule) -> None:
        """Delete it, unless it comes with Inflight."""
        services.delete_alert_rule(actor, row)

    def preview(self, row: AlertRule, form: Any) -> Preview:
        """The condition in words."""
        if not row.condition:
            return Preview()
        try:
            parsed = conditions.parse(row.condition, row.target, inputs.STATES)
        except InflightError as error:
            return Preview((PreviewPart(_("Not possible"), text=f"{error.sentence} {error.remedy}"),))
        return Preview((PreviewPart(_("Fires when"), text=wording.describe(parsed)),))


@admin.register(Alert)
class AlertAdmin(StatusAdmin, ReadOnlyAdmin):
    """Alerts, as the telemetry process recorded them."""

    list_display = ["rule_name", "chip", "severity", "target_name", "fired_at", "resolved_at"]
    list_filter = ["state", "severity", "target"]
    search_fields = ["rule_name", "target_name", "sentence"]
    exclude = ["version"]

    def page_url(self, row: Alert) -> str:
        """The alert's page."""
        return reverse("alerts:alert", args=[row.pk])


@admin.register(Silence)
class SilenceAdmin(ReadOnlyAdmin):
    """Silences."""

    list_display = ["rule", "object_name", "severity", "starts_at", "ends_at", "created_label", "reason"]
    search_fields = ["rule", "object_name", "reason"]


@admin.register(NotificationChannel)
class NotificationChannelAdmin(ReadOnlyAdmin):
    """Channels; they are made and changed on the page Alerts, which keeps their secrets."""

    list_display = ["name", "type", "url", "least_severity", "enabled", "updated_at"]
    list_filter = ["type", "enabled"]
    exclude = ["secret"]


@admin.register(Notification)
class NotificationAdmin(StatusAdmin, ReadOnlyAdmin):
    """What was sent."""

    list_display = ["uid", "chip", "channel", "event", "rule_name", "attempt", "answer", "created_at"]
    list_filter = ["state", "event", "channel"]
    list_select_related = ["channel"]
    search_fields = ["uid", "rule_name", "answer"]
    exclude = ["version"]
