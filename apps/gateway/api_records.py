"""REST: usage, ended requests, and those that run."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status
from pydantic import BaseModel, ConfigDict, Field

from apps.accounts.rest import REFUSALS, Number, Page, PageQuery, actor_of, page_of
from apps.accounts.roles import Action, require
from apps.gateway import running, selectors, serialize, services
from apps.gateway.schemas import Request, RequestTexts, Running, UsageAnswer
from apps.gateway.usage import query

router = Router(tags=["gateway records"])


class UsageQuery(BaseModel):
    """Which usage, and by what it is grouped."""

    model_config = ConfigDict(extra="forbid")

    range: str = Field(query.DEFAULT_RANGE, description="24h, 7d, 30d or 90d, until now.")
    group: list[Literal["hour", "day", "key", "route"]] = Field(["key", "route"], max_length=3)
    key: int | None = Field(None, ge=0, description="Only this key.")
    route: str = Field("", max_length=63, description="Only this model.")


class RequestQuery(PageQuery):
    """Narrows the list of ended requests."""

    key: int | None = Field(None, ge=0)
    route: str = Field("", max_length=63)
    outcome: str = Field("", max_length=20)
    request_id: str = Field("", max_length=128)
    since: datetime | None = None


@router.get("/gateway/usage", response={200: UsageAnswer, **REFUSALS}, operation_id="get_gateway_usage")
def get_gateway_usage(request: HttpRequest, asked: Query[UsageQuery]) -> dict[str, Any]:
    """Requests, tokens and TTFT of a range, by hour or day, key and model."""
    require(actor_of(request), Action.VIEW)
    since = query.since_of(asked.range)
    found = query.rows(since, key_id=asked.key, route=asked.route)
    columns = dict.fromkeys("key_id" if name == "key" else name for name in asked.group)
    return {
        "since": since,
        "total": query.as_dict(query.total(found)),
        "items": [query.as_dict(row) for row in query.by(found, *columns)],
    }


@router.get(
    "/gateway/usage.csv",
    response={200: str, **REFUSALS},
    operation_id="export_gateway_usage",
    include_in_schema=True,
)
def export_gateway_usage(request: HttpRequest, asked: Query[UsageQuery]) -> HttpResponse:
    """The same as CSV."""
    require(actor_of(request), Action.VIEW)
    found = query.rows(query.since_of(asked.range), key_id=asked.key, route=asked.route)
    columns = dict.fromkeys("key_id" if name == "key" else name for name in asked.group)
    answer = HttpResponse(query.as_csv(query.by(found, *columns)), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="usage.csv"'
    return answer


@router.get(
    "/gateway/requests", response={200: Page[Request], **REFUSALS}, operation_id="list_gateway_requests"
)
def list_gateway_requests(request: HttpRequest, asked: Query[RequestQuery]) -> dict[str, Any]:
    """Ended requests, newest first, without their texts."""
    require(actor_of(request), Action.VIEW)
    rows = selectors.requests()
    given = {
        "key_id": asked.key,
        "route": asked.route,
        "outcome": asked.outcome,
        "request_id": asked.request_id,
        "at__gte": asked.since,
    }
    rows = rows.filter(**{name: value for name, value in given.items() if value not in (None, "")})
    return page_of(rows, asked, serialize.request_dict)


@router.get(
    "/gateway/requests/{number}",
    response={200: RequestTexts, **REFUSALS},
    operation_id="get_gateway_request",
)
def get_gateway_request(request: HttpRequest, number: Number) -> dict[str, Any]:
    """One ended request. Its texts, where they were kept, are for operators."""
    require(actor_of(request), Action.OPERATE)
    row = selectors.request(number)
    return {**serialize.request_dict(row), "prompt": row.prompt, "answer": row.answer}


@router.get(
    "/gateway/running", response={200: list[Running], **REFUSALS}, operation_id="list_running_requests"
)
def list_running_requests(request: HttpRequest) -> list[dict[str, Any]]:
    """Requests that run or wait now, oldest first."""
    require(actor_of(request), Action.VIEW)
    return [serialize.running_dict(item) for item in running.snapshot()]


@router.post(
    "/gateway/running/{request_id}/cancel",
    response={202: None, **REFUSALS},
    operation_id="cancel_gateway_request",
)
def cancel_gateway_request(request: HttpRequest, request_id: str) -> Status[None]:
    """End a request that runs or waits."""
    services.cancel_request(actor_of(request), request_id)
    return Status(202, None)
