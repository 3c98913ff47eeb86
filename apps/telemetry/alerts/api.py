"""REST: alert rules, alerts, silences, notification channels and the history of notifications."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BaseModel, ConfigDict, Field

from apps.accounts.rest import REFUSALS, Number, Page, PageQuery, actor_of, page_of
from apps.accounts.roles import Action, require
from apps.telemetry.alerts import selectors, serialize, services, states
from apps.telemetry.alerts.schemas import AlertOut, AlertRuleOut, ChannelOut, NotificationOut, SilenceOut
from apps.telemetry.alerts.shapes import AlertRuleFields, ChannelFields, SilenceFields

router = Router(tags=["alerts"])


class NewAlertRule(AlertRuleFields):
    """An alert rule to create."""

    name: str


class NewChannel(ChannelFields):
    """A notification channel to create."""

    name: str


class Acknowledgement(BaseModel):
    """What the person says about it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    note: str = Field("", max_length=500)


class AlertQuery(PageQuery):
    """Narrows the list of alerts."""

    state: Literal["", "open", "pending", "firing", "acknowledged", "resolved"] = Field(
        "", description="`open`: pending, firing or acknowledged; empty: all that were raised."
    )
    rule: str = Field("", max_length=63)
    deployment: str = Field("", max_length=63)


class SilenceQuery(PageQuery):
    """Narrows the list of silences."""

    over: bool = Field(False, description="Also those that are over.")


@router.get("/alert-rules", response={200: Page[AlertRuleOut], **REFUSALS}, operation_id="list_alert_rules")
def list_alert_rules(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """Every alert rule, by name."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.rules(), page, serialize.rule_dict)


@router.post("/alert-rules", response={201: AlertRuleOut, **REFUSALS}, operation_id="create_alert_rule")
def create_alert_rule(request: HttpRequest, body: NewAlertRule) -> Status[dict[str, Any]]:
    """Create an alert rule."""
    return Status(
        201, serialize.rule_dict(services.save_alert_rule(actor_of(request), body.model_dump(mode="json")))
    )


@router.get("/alert-rules/{name}", response={200: AlertRuleOut, **REFUSALS}, operation_id="get_alert_rule")
def get_alert_rule(request: HttpRequest, name: str) -> dict[str, Any]:
    """One alert rule."""
    require(actor_of(request), Action.VIEW)
    return serialize.rule_dict(selectors.rule(name))


@router.put("/alert-rules/{name}", response={200: AlertRuleOut, **REFUSALS}, operation_id="change_alert_rule")
def change_alert_rule(request: HttpRequest, name: str, body: AlertRuleFields) -> dict[str, Any]:
    """Change an alert rule; what is left out goes back to its default."""
    require(actor_of(request), Action.CONFIGURE)
    row = selectors.rule(name)
    return serialize.rule_dict(services.save_alert_rule(actor_of(request), body.model_dump(mode="json"), row))


@router.delete("/alert-rules/{name}", response={204: None, **REFUSALS}, operation_id="delete_alert_rule")
def delete_alert_rule(request: HttpRequest, name: str) -> Status[None]:
    """Delete an alert rule of one's own; its open alerts end."""
    require(actor_of(request), Action.CONFIGURE)
    services.delete_alert_rule(actor_of(request), selectors.rule(name))
    return Status(204, None)


@router.get("/alerts", response={200: Page[AlertOut], **REFUSALS}, operation_id="list_alerts")
def list_alerts(request: HttpRequest, query: Query[AlertQuery]) -> dict[str, Any]:
    """Alerts: open ones worst first, else newest first."""
    require(actor_of(request), Action.VIEW)
    rows = selectors.open_alerts() if query.state in {"open", states.PENDING} else selectors.alerts()
    if query.state not in {"", "open"}:
        rows = rows.filter(state=query.state)
    if query.rule:
        rows = rows.filter(rule_name=query.rule)
    if query.deployment:
        rows = rows.filter(deployment=query.deployment)
    return page_of(rows, query, serialize.alert_dict)


@router.get("/alerts/{number}", response={200: AlertOut, **REFUSALS}, operation_id="get_alert")
def get_alert(request: HttpRequest, number: Number) -> dict[str, Any]:
    """One alert."""
    require(actor_of(request), Action.VIEW)
    return serialize.alert_dict(selectors.alert(number))


@router.post(
    "/alerts/{number}/acknowledge", response={200: AlertOut, **REFUSALS}, operation_id="acknowledge_alert"
)
def acknowledge_alert(request: HttpRequest, number: Number, body: Acknowledgement) -> dict[str, Any]:
    """Say that somebody is on it: it is not told again."""
    require(actor_of(request), Action.OPERATE)
    return serialize.alert_dict(services.acknowledge(actor_of(request), selectors.alert(number), body.note))


@router.post(
    "/alerts/{number}/unacknowledge", response={200: AlertOut, **REFUSALS}, operation_id="unacknowledge_alert"
)
def unacknowledge_alert(request: HttpRequest, number: Number) -> dict[str, Any]:
    """Take an acknowledgement back."""
    require(actor_of(request), Action.OPERATE)
    return serialize.alert_dict(services.unacknowledge(actor_of(request), selectors.alert(number)))


@router.get("/silences", response={200: Page[SilenceOut], **REFUSALS}, operation_id="list_silences")
def list_silences(request: HttpRequest, query: Query[SilenceQuery]) -> dict[str, Any]:
    """Silences, the one that lasts longest first."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.silences(query.over), query, serialize.silence_dict)


@router.post("/silences", response={201: SilenceOut, **REFUSALS}, operation_id="create_silence")
def create_silence(request: HttpRequest, body: SilenceFields) -> Status[dict[str, Any]]:
    """Tell nobody of the alerts that fit, for some time."""
    made = services.create_silence(actor_of(request), body.model_dump())
    return Status(201, serialize.silence_dict(made))


@router.post("/silences/{number}/end", response={200: SilenceOut, **REFUSALS}, operation_id="end_silence")
def end_silence(request: HttpRequest, number: Number) -> dict[str, Any]:
    """End a silence now."""
    require(actor_of(request), Action.OPERATE)
    return serialize.silence_dict(services.end_silence(actor_of(request), selectors.silence(number)))


@router.get(
    "/notification-channels", response={200: Page[ChannelOut], **REFUSALS}, operation_id="list_channels"
)
def list_channels(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """Every notification channel, by name."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.channels(), page, serialize.channel_dict)


@router.post("/notification-channels", response={201: ChannelOut, **REFUSALS}, operation_id="create_channel")
def create_channel(request: HttpRequest, body: NewChannel) -> Status[dict[str, Any]]:
    """Create a notification channel."""
    made = services.save_channel(actor_of(request), body.model_dump(mode="json"))
    return Status(201, serialize.channel_dict(made))


@router.get(
    "/notification-channels/{name}", response={200: ChannelOut, **REFUSALS}, operation_id="get_channel"
)
def get_channel(request: HttpRequest, name: str) -> dict[str, Any]:
    """One notification channel."""
    require(actor_of(request), Action.VIEW)
    return serialize.channel_dict(selectors.channel(name))


@router.put(
    "/notification-channels/{name}", response={200: ChannelOut, **REFUSALS}, operation_id="change_channel"
)
def change_channel(request: HttpRequest, name: str, body: ChannelFields) -> dict[str, Any]:
    """Change a notification channel; what is left out goes back to its default, but the secret stays."""
    require(actor_of(request), Action.CONFIGURE)
    row = selectors.channel(name)
    return serialize.channel_dict(services.save_channel(actor_of(request), body.model_dump(mode="json"), row))


@router.delete(
    "/notification-channels/{name}", response={204: None, **REFUSALS}, operation_id="delete_channel"
)
def delete_channel(request: HttpRequest, name: str) -> Status[None]:
    """Delete a notification channel that no rule names."""
    require(actor_of(request), Action.CONFIGURE)
    services.delete_channel(actor_of(request), selectors.channel(name))
    return Status(204, None)


@router.post(
    "/notification-channels/{name}/test",
    response={200: NotificationOut, **REFUSALS},
    operation_id="test_channel",
)
def test_channel(request: HttpRequest, name: str) -> dict[str, Any]:
    """Really send a test message now; the answer says what came of it (`state`: delivered or failed)."""
    require(actor_of(request), Action.OPERATE)
    return serialize.notification_dict(services.test_channel(actor_of(request), selectors.channel(name)))


@router.get(
    "/notifications", response={200: Page[NotificationOut], **REFUSALS}, operation_id="list_notifications"
)
def list_notifications(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """What was sent to channels, newest first."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.notifications(), page, serialize.notification_dict)
