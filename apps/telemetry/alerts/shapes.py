"""What a person gives to configure alerts, as API bodies and YAML documents spell it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from apps.core.bounds import number_field
from apps.telemetry.alerts.models import AlertRule, NotificationChannel, Severity

_STRICT = ConfigDict(extra="forbid", strict=True)
GLOB = r"^[A-Za-z0-9._/*?\[\]!-]{1,200}$"


class AlertRuleFields(BaseModel):
    """All of an alert rule; `condition` is described in docs/alerts.md, `channels` are names (empty: every one)."""

    model_config = _STRICT

    summary: str = Field(min_length=1, max_length=200)
    remedy: str = Field("", max_length=2000)
    target: AlertRule.Target = Field(AlertRule.Target.DEPLOYMENT, strict=False)
    selector: str = Field("*", pattern=GLOB, description="Names of objects; * and ? as in file names.")
    severity: Severity = Field(Severity.WARNING, strict=False)
    condition: dict[str, Any]
    for_seconds: int = Field(**number_field(AlertRule, "for_seconds"))
    resolve_seconds: int = Field(**number_field(AlertRule, "resolve_seconds"))
    null_seconds: int = Field(**number_field(AlertRule, "null_seconds"))
    repeat_seconds: int = Field(**number_field(AlertRule, "repeat_seconds"))
    channels: list[str] = Field(default_factory=list, max_length=20)
    enabled: bool = True


class ChannelFields(BaseModel):
    """All of a notification channel. `secret` is write-only: left out it stays, empty it is removed."""

    model_config = _STRICT

    type: NotificationChannel.Kind = Field(NotificationChannel.Kind.WEBHOOK, strict=False)
    url: str = Field("", max_length=2000, description="Of a webhook.")
    secret: str | None = Field(None, max_length=200, description="Signs webhooks; never shown again.")
    recipients: list[Annotated[str, Field(max_length=254)]] = Field(
        default_factory=list, max_length=20, description="Of e-mail."
    )
    least_severity: Severity = Field(Severity.WARNING, strict=False)
    send_resolved: bool = True
    enabled: bool = True


class SilenceFields(BaseModel):
    """A silence. Empty fields fit everything; `starts_at` null: now."""

    model_config = _STRICT

    rule: str = Field("", max_length=63, pattern=r"^[a-z0-9._*?-]*$")
    object_name: str = Field("", max_length=200, pattern=r"^[A-Za-z0-9._/*?-]*$")
    severity: Severity | None = Field(None, strict=False)
    reason: str = Field(min_length=1, max_length=500)
    starts_at: datetime | None = Field(None, strict=False)
    ends_at: datetime = Field(strict=False)
