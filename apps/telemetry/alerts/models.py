"""Rows of alerting: rules, alerts, silences, channels, notifications."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.core.models import StatusModel
from apps.core.names import validate_name
from apps.telemetry.alerts import states

DAY = 86_400


class Severity(models.TextChoices):
    """How bad it is, mildest first."""

    INFO = "info", _("info")
    WARNING = "warning", _("warning")
    CRITICAL = "critical", _("critical")


class NotificationChannel(models.Model):
    """Where notifications go besides the page: a webhook or e-mail.

    `secret` is encrypted (core/secrets.py) and signs webhooks. `least_severity`: milder alerts are not sent.
    """

    kind = "notificationchannel"

    class Kind(models.TextChoices):
        """How it is told."""

        WEBHOOK = "webhook", _("Webhook")
        EMAIL = "email", _("E-mail")

    name = models.CharField(_("name"), max_length=63, unique=True, validators=[validate_name])
    type = models.CharField(_("type"), max_length=10, choices=Kind.choices, default=Kind.WEBHOOK)
    url = models.CharField(_("URL"), max_length=2000, blank=True)
    secret = models.TextField(_("secret"), blank=True, editable=False)
    recipients = models.JSONField(_("recipients"), default=list, blank=True)
    least_severity = models.CharField(
        _("least severity"), max_length=10, choices=Severity.choices, default=Severity.WARNING
    )
    send_resolved = models.BooleanField(_("also when it is over"), default=True)
    enabled = models.BooleanField(_("enabled"), default=True)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name = _("notification channel")

    def __str__(self) -> str:
        return self.name


class AlertRule(models.Model):
    """What is watched for. `condition` is a shape of domain/alerting/conditions.py.

    One alert for each object of kind `target` whose name fits `selector` (`*` and `?` as in file names).
    `channels` empty: every enabled channel. `shipped_digest` is that of the shipped rule as it was installed, empty
    for a person's own; while the rule still has it, updates may change it.
    """

    kind = "alertrule"

    class Target(models.TextChoices):
        """What an alert is about."""

        DEPLOYMENT = "deployment", _("each deployment")
        INSTANCE = "instance", _("each server")
        NODE = "node", _("each node")
        GPU = "gpu", _("each GPU")
        FLEET = "fleet", _("everything together")

    name = models.CharField(_("name"), max_length=63, unique=True, validators=[validate_name])
    summary = models.CharField(_("summary"), max_length=200)
    remedy = models.TextField(_("what to do"), blank=True, max_length=2000)
    target = models.CharField(_("about"), max_length=12, choices=Target.choices, default=Target.DEPLOYMENT)
    selector = models.CharField(_("names"), max_length=200, default="*")
    severity = models.CharField(
        _("severity"), max_length=10, choices=Severity.choices, default=Severity.WARNING
    )
    condition = models.JSONField(_("condition"))
    for_seconds = models.PositiveIntegerField(
        _("must hold for (s)"), default=60, validators=[MaxValueValidator(DAY)]
    )
    resolve_seconds = models.PositiveIntegerField(
        _("must be over for (s)"), default=60, validators=[MaxValueValidator(DAY)]
    )
    null_seconds = models.PositiveIntegerField(
        _("over without a value for (s)"),
        default=300,
        validators=[MinValueValidator(30), MaxValueValidator(DAY)],
    )
    repeat_seconds = models.PositiveIntegerField(
        _("tell again after (s)"),
        default=4 * 3600,
        validators=[MinValueValidator(60), MaxValueValidator(7 * DAY)],
    )
    channels = models.ManyToManyField(
        NotificationChannel, blank=True, related_name="rules", verbose_name=_("channels")
    )
    enabled = models.BooleanField(_("enabled"), default=True)
    shipped_digest = models.CharField(max_length=64, blank=True, editable=False)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name = _("alert rule")

    def __str__(self) -> str:
        return self.name


class Alert(StatusModel):
    """One occurrence of a rule's condition at one object. Only the telemetry process opens and ends alerts.

    `fingerprint` names rule and object: at most one alert of it is open. `value` and `threshold` are in the metric's
    unit. `true_since`, `last_true` carry its clock over a restart. `rule` is null where the rule was deleted.
    """

    machine = states.ALERT
    kind = "alert"

    rule = models.ForeignKey(AlertRule, null=True, on_delete=models.SET_NULL, related_name="alerts")
    rule_name = models.CharField(_("rule"), max_length=63)
    summary = models.CharField(_("summary"), max_length=200)
    fingerprint = models.CharField(_("fingerprint"), max_length=64)
    severity = models.CharField(_("severity"), max_length=10, choices=Severity.choices)
    target = models.CharField(_("about"), max_length=12)
    target_id = models.CharField(_("object id"), max_length=64, blank=True)
    target_name = models.CharField(_("object"), max_length=200, blank=True)
    deployment = models.CharField(_("deployment"), max_length=63, blank=True)
    value = models.FloatField(_("value"), null=True, blank=True)
    threshold = models.FloatField(_("limit"), null=True, blank=True)
    facts = models.JSONField(_("facts"), default=dict, blank=True)
    true_since = models.DateTimeField(_("holds since"))
    last_true = models.DateTimeField(_("last seen to hold"))
    fired_at = models.DateTimeField(_("fired"), null=True, blank=True)
    resolved_at = models.DateTimeField(_("over"), null=True, blank=True)
    acknowledged_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    acknowledged_at = models.DateTimeField(_("acknowledged"), null=True, blank=True)
    note = models.CharField(_("note"), max_length=500, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["fingerprint"],
                condition=~models.Q(state="resolved"),
                name="one_open_alert_per_fingerprint",
            )
        ]
        indexes = [models.Index(fields=["fingerprint", "-created_at"])]
        verbose_name = _("alert")

    def __str__(self) -> str:
        return f"{self.rule_name} {self.target_name}".strip()


class Silence(models.Model):
    """Nobody is told of alerts that fit, from `starts_at` to `ends_at`; they are shown all the same.

    Empty columns fit everything; `rule` and `object_name` may hold `*` and `?`.
    """

    kind = "silence"

    rule = models.CharField(_("rule"), max_length=63, blank=True)
    object_name = models.CharField(_("object"), max_length=200, blank=True)
    severity = models.CharField(_("severity"), max_length=10, blank=True, choices=Severity.choices)
    reason = models.CharField(_("reason"), max_length=500)
    starts_at = models.DateTimeField(_("from"))
    ends_at = models.DateTimeField(_("until"))
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_label = models.CharField(_("who"), max_length=150)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        ordering = ["-ends_at", "-id"]
        verbose_name = _("silence")

    def __str__(self) -> str:
        return " ".join(part for part in (self.rule, self.object_name, self.severity) if part) or "*"


class Notification(StatusModel):
    """One message to one channel about one or more alerts of a rule: to be sent, sent, or given up.

    `uid` goes with the message, so that a receiver knows one that comes twice. `attempt` fences senders.
    """

    machine = states.NOTIFICATION
    kind = "notification"

    class Event(models.TextChoices):
        """What it tells."""

        FIRING = "firing", _("firing")
        REPEAT = "repeat", _("still firing")
        RESOLVED = "resolved", _("resolved")
        TEST = "test", _("test")

    uid = models.CharField(_("id"), max_length=20, unique=True)
    channel = models.ForeignKey(NotificationChannel, on_delete=models.CASCADE, related_name="notifications")
    event = models.CharField(_("event"), max_length=10, choices=Event.choices)
    rule_name = models.CharField(_("rule"), max_length=63, blank=True)
    alerts = models.ManyToManyField(Alert, blank=True, related_name="notifications")
    body = models.JSONField(_("body"), default=dict)
    attempt = models.PositiveIntegerField(_("attempts"), default=0)
    next_at = models.DateTimeField(_("next attempt"), db_index=True)
    answer = models.CharField(_("answer"), max_length=500, blank=True)
    sent_at = models.DateTimeField(_("sent"), null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        verbose_name = _("notification")

    def __str__(self) -> str:
        return f"{self.event} {self.rule_name} {self.channel.name}".replace("  ", " ")
