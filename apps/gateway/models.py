"""Keys, routes, external deployments, and what is kept of requests.

The gateway never reads these in a request's path: `table.py` makes a Table of them, whose version every change
raises.
"""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.core.names import validate_name
from apps.gateway.adaptive_models import AdaptiveAdmission as AdaptiveAdmission
from apps.gateway.domain.facts import Limits, Priority

_MOST = MaxValueValidator(1_000_000_000)
_LEAST = MinValueValidator(1)


class PriorityClass(models.TextChoices):
    """Classes of requests: who goes first where more is asked than can be computed."""

    HIGH = "high", _("high: goes first, shed last")
    NORMAL = "normal", _("normal")
    LOW = "low", _("low: waits for the others, shed first")

    @property
    def fact(self) -> Priority:
        """The class as a request's path knows it."""
        return Priority[self.name]


class LimitFields(models.Model):
    """Bounds of a key or a route; null: none. Requests and tokens are counted over the last 60 seconds."""

    requests_per_minute = models.PositiveIntegerField(
        _("requests a minute"), null=True, blank=True, validators=[_LEAST, _MOST]
    )
    tokens_per_minute = models.PositiveIntegerField(
        _("tokens a minute"), null=True, blank=True, validators=[_LEAST, _MOST]
    )
    concurrent_requests = models.PositiveIntegerField(
        _("requests at once"), null=True, blank=True, validators=[_LEAST, MaxValueValidator(100_000)]
    )
    max_tokens = models.PositiveIntegerField(
        _("tokens an answer may have"), null=True, blank=True, validators=[_LEAST, _MOST]
    )

    class Meta:
        abstract = True

    @property
    def limits(self) -> Limits:
        """The bounds as a request's path knows them."""
        return Limits(
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
            concurrent_requests=self.concurrent_requests,
            max_tokens=self.max_tokens,
        )


class GatewayKey(LimitFields):
    """A key of an application. Shown once when made; only its SHA-256 is kept.

    `routes` are the public names that it may use, null for all. A key whose owner is switched off does not work.
    """

    kind = "gatewaykey"

    name = models.CharField(_("name"), max_length=100)
    prefix = models.CharField(_("begins with"), max_length=12, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="gateway_keys")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        editable=False,
        on_delete=models.SET_NULL,
        related_name="+",
    )
    routes = models.JSONField(_("public names"), null=True, blank=True)
    priority = models.CharField(
        _("priority"), max_length=10, choices=PriorityClass.choices, default=PriorityClass.NORMAL
    )
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True, editable=False)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        verbose_name = _("gateway key")

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class ExternalDeployment(models.Model):
    """Somebody else's OpenAI-style API, used like a deployment of ours.

    `base_url` is what stands before `/chat/completions`. `secret` is encrypted (apps/core/secrets.py), empty: none.
    `slots` bounds what is sent there at once; null: no bound.
    """

    kind = "externaldeployment"

    name = models.CharField(_("public name"), max_length=63, unique=True, validators=[validate_name])
    base_url = models.CharField(_("base URL"), max_length=2000)
    model = models.CharField(_("model there"), max_length=200)
    secret = models.TextField(blank=True, editable=False)
    slots = models.PositiveIntegerField(
        _("requests at once"), null=True, blank=True, validators=[_LEAST, MaxValueValidator(100_000)]
    )
    max_sequence_tokens = models.PositiveIntegerField(
        _("maximum sequence length (tokens)"), null=True, blank=True, validators=[_LEAST, _MOST]
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name = _("external deployment")

    def __str__(self) -> str:
        return self.name


class GatewayRoute(LimitFields):
    """A public model name with settings of its own. Without a row every deployment is a route of its own name.

    `targets` is [{"deployment" or "external": name, "weight": relative share, "max_prompt_tokens": longest prompt
    that goes there, or null}]; empty: the deployment (or external deployment) of the route's name.
    """

    kind = "gatewayroute"

    name = models.CharField(_("public name"), max_length=63, unique=True, validators=[validate_name])
    targets = models.JSONField(_("targets"), default=list, blank=True)
    fallback = models.CharField(_("fallback"), max_length=63, blank=True)
    queue_size = models.PositiveIntegerField(
        _("requests that may wait"), default=512, validators=[MaxValueValidator(100_000)]
    )
    queue_seconds = models.FloatField(
        _("longest wait (s)"), default=60.0, validators=[MinValueValidator(0.0), MaxValueValidator(3600.0)]
    )
    record_bodies = models.BooleanField(_("keep texts of requests"), default=False)
    body_days = models.PositiveIntegerField(
        _("days that texts are kept"), default=7, validators=[_LEAST, MaxValueValidator(90)]
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name = _("gateway route")

    def __str__(self) -> str:
        return self.name


class TableVersion(models.Model):
    """One row: how often keys, routes or what serves have changed. Compared by every gateway process."""

    version = models.PositiveBigIntegerField(default=0)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name = _("gateway table version")

    def __str__(self) -> str:
        return str(self.version)


class UsageHour(models.Model):
    """What one key used of one route in one hour. `key_id` 0: no key was known. Outlives the key.

    `requests` counts all; `errors`, `refused` and `cancelled` are among them. `ttft_<n>` counts requests whose first
    token came within n ms but not within the next smaller bound; `ttft_more` those beyond all bounds.
    """

    hour = models.DateTimeField()
    key_id = models.PositiveBigIntegerField(default=0)
    key_name = models.CharField(max_length=100, blank=True)
    route = models.CharField(max_length=63)
    requests = models.PositiveBigIntegerField(default=0)
    errors = models.PositiveBigIntegerField(default=0)
    refused = models.PositiveBigIntegerField(default=0)
    cancelled = models.PositiveBigIntegerField(default=0)
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    completion_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    queue_ms = models.PositiveBigIntegerField(default=0)
    ttft_ms = models.PositiveBigIntegerField(default=0)
    ttft_count = models.PositiveBigIntegerField(default=0)
    ttft_50 = models.PositiveBigIntegerField(default=0)
    ttft_100 = models.PositiveBigIntegerField(default=0)
    ttft_200 = models.PositiveBigIntegerField(default=0)
    ttft_400 = models.PositiveBigIntegerField(default=0)
    ttft_800 = models.PositiveBigIntegerField(default=0)
    ttft_1600 = models.PositiveBigIntegerField(default=0)
    ttft_3200 = models.PositiveBigIntegerField(default=0)
    ttft_6400 = models.PositiveBigIntegerField(default=0)
    ttft_12800 = models.PositiveBigIntegerField(default=0)
    ttft_25600 = models.PositiveBigIntegerField(default=0)
    ttft_more = models.PositiveBigIntegerField(default=0)

    class Meta:
        ordering = ["-hour", "route", "key_id"]
        constraints = [
            models.UniqueConstraint(fields=["hour", "key_id", "route"], name="one_usage_row_per_hour")
        ]
        indexes = [models.Index(fields=["route", "hour"])]
        verbose_name = _("usage of an hour")

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H}h {self.key_name} {self.route}"


class RequestLog(models.Model):
    """One ended request. Figures are null where nobody told them; texts only where the route keeps them.

    `request_id` is what the client was told; a client may choose it, so it need not be unique.
    """

    request_id = models.CharField(_("request"), max_length=128, db_index=True)
    at = models.DateTimeField(_("at"), db_index=True)
    key_id = models.PositiveBigIntegerField(_("key"), default=0)
    key_name = models.CharField(_("key"), max_length=100, blank=True)
    route = models.CharField(_("model"), max_length=63)
    upstream = models.CharField(_("answered by"), max_length=100, blank=True)
    revision = models.PositiveIntegerField(_("revision"), null=True, blank=True)
    endpoint = models.CharField(_("endpoint"), max_length=20)
    status = models.PositiveIntegerField(_("status"))
    outcome = models.CharField(_("outcome"), max_length=20)
    reason = models.CharField(_("reason"), max_length=60, blank=True)
    streamed = models.BooleanField(_("streamed"), default=False)
    priority = models.CharField(_("priority"), max_length=10, default=PriorityClass.NORMAL)
    prompt_tokens = models.PositiveIntegerField(_("prompt tokens"), null=True, blank=True)
    completion_tokens = models.PositiveIntegerField(_("completion tokens"), null=True, blank=True)
    cached_tokens = models.PositiveIntegerField(_("cached tokens"), null=True, blank=True)
    queue_ms = models.FloatField(_("waited (ms)"), null=True, blank=True)
    ttft_ms = models.FloatField(_("TTFT (ms)"), null=True, blank=True)
    total_ms = models.FloatField(_("took (ms)"), null=True, blank=True)
    overhead_ms = models.FloatField(_("added by the gateway (ms)"), null=True, blank=True)
    prompt = models.TextField(_("prompt"), null=True, blank=True)
    answer = models.TextField(_("answer"), null=True, blank=True)
    # When the texts are to be removed; null where there are none.
    bodies_until = models.DateTimeField(null=True, blank=True, db_index=True)

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [models.Index(fields=["route", "-at"]), models.Index(fields=["key_id", "-at"])]
        verbose_name = _("request")

    def __str__(self) -> str:
        return self.request_id
