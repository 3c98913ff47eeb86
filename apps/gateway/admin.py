"""Keys, routes and external deployments as they are; they are made and changed on the pages of the gateway."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from apps.accounts.object_actions import ObjectAction
from apps.accounts.roles import Action
from apps.accounts.service_admin import StatusAdmin
from apps.core.admin import ReadOnlyAdmin
from apps.gateway import services
from apps.gateway.models import ExternalDeployment, GatewayKey, GatewayRoute, RequestLog, UsageHour
from apps.gateway.serialize import key_state

TONES = {"active": "ok", "expired": "warn", "revoked": "idle", "switched_off": "warn"}
_LIMITS = ["requests_per_minute", "tokens_per_minute", "concurrent_requests", "max_tokens"]


def _revoke(user: User, row: GatewayKey) -> str:
    services.revoke_key(user, row)
    return _t("%(key)s is revoked.") % {"key": row}


@admin.register(GatewayKey)
class GatewayKeyAdmin(StatusAdmin, ReadOnlyAdmin):
    """Keys of applications."""

    list_display = [
        "name",
        "state",
        "owner",
        "prefix",
        "priority",
        "created_at",
        "last_used_at",
        "expires_at",
    ]
    list_filter = ["priority", ("revoked_at", admin.EmptyFieldListFilter)]
    list_select_related = ["owner"]
    search_fields = ["name", "prefix", "owner__username"]
    fieldsets = [
        (_("Gateway key"), {"fields": ["name", "prefix", "owner", "created_by", "routes", "priority"]}),
        (_("Limits"), {"fields": [*_LIMITS]}),
        (_("Use"), {"fields": ["created_at", "last_used_at", "expires_at", "revoked_at"]}),
    ]
    object_actions = (
        ObjectAction(
            "revoke",
            _("Revoke"),
            Action.OPERATE,
            _revoke,
            available=lambda row: row.revoked_at is None,
            confirm=_("Applications that use it are refused from now on."),
            danger=True,
        ),
    )

    def page_url(self, row: GatewayKey) -> str:
        """The key's page, where it is changed."""
        return reverse("gateway:key", args=[row.pk])

    @admin.display(description=_("state"))
    def state(self, row: GatewayKey) -> SafeString:
        """Whether it works."""
        word = key_state(row)
        return render_to_string("admin/inflight/chip.html", {"state": word, "tone": TONES[word]})


@admin.register(GatewayRoute)
class GatewayRouteAdmin(StatusAdmin, ReadOnlyAdmin):
    """Public names with settings of their own."""

    list_display = ["name", "fallback", *_LIMITS, "queue_size", "record_bodies"]
    list_filter = ["record_bodies"]
    search_fields = ["name"]
    fieldsets = [
        (_("Gateway route"), {"fields": ["name", "targets", "fallback"]}),
        (_("Limits"), {"fields": [*_LIMITS]}),
        (_("Queue"), {"fields": ["queue_size", "queue_seconds"]}),
        (_("Records"), {"fields": ["record_bodies", "body_days"]}),
    ]

    def page_url(self, row: GatewayRoute) -> str:
        """The page where it is changed."""
        return reverse("gateway:route", args=[row.name])


@admin.register(ExternalDeployment)
class ExternalDeploymentAdmin(StatusAdmin, ReadOnlyAdmin):
    """Somebody else's OpenAI-style APIs."""

    list_display = ["name", "base_url", "model", "slots", "updated_at"]
    search_fields = ["name", "base_url", "model"]
    fieldsets = [
        (
            _("External deployment"),
            {"fields": ["name", "base_url", "model", "slots", "max_sequence_tokens"]},
        )
    ]

    def page_url(self, row: ExternalDeployment) -> str:
        """The page where it is changed."""
        return reverse("gateway:external", args=[row.name])


@admin.register(UsageHour)
class UsageHourAdmin(ReadOnlyAdmin):
    """What was used, hour by hour."""

    list_display = [
        *("hour", "key_name", "route", "requests", "errors", "refused", "cancelled"),
        *("prompt_tokens", "completion_tokens"),
    ]
    list_filter = ["route"]
    search_fields = ["key_name", "route"]
    date_hierarchy = "hour"


@admin.register(RequestLog)
class RequestLogAdmin(ReadOnlyAdmin):
    """Ended requests, without their texts: these are on the page of the request, for operators."""

    list_display = [
        "at",
        "request_id",
        "outcome",
        "key_name",
        "route",
        "prompt_tokens",
        "completion_tokens",
        "ttft_ms",
    ]
    list_filter = ["outcome", "route"]
    search_fields = ["request_id", "key_name"]

    def get_exclude(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Texts are not for everybody who may see the row."""
        return ["prompt", "answer"]
