"""Answers of this app's REST operations, as the OpenAPI document describes them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema
from pydantic import Field


class Limits(Schema):
    """Bounds of a key or a route; null: none."""

    requests_per_minute: int | None
    tokens_per_minute: int | None
    concurrent_requests: int | None
    max_tokens: int | None


class Key(Limits):
    """A gateway key without its text."""

    id: int
    name: str
    prefix: str
    state: str = Field(description="active, expired, revoked or switched_off (its owner is)")
    owner: str
    created_by: str | None
    routes: list[str] | None = Field(description="Public names that it may use; null: all.")
    priority: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class NewKey(Key):
    """The answer to a creation: the only time that the text is told."""

    key: str


class Route(Limits):
    """Settings of a public name."""

    id: int
    name: str
    targets: list[dict[str, Any]] = Field(description="Empty: the deployment of the route's own name.")
    fallback: str
    queue_size: int
    queue_seconds: float
    record_bodies: bool
    body_days: int
    created_at: datetime
    updated_at: datetime


class External(Schema):
    """Somebody else's OpenAI-style API, used like a deployment."""

    id: int
    name: str
    base_url: str
    model: str
    slots: int | None
    max_sequence_tokens: int | None
    has_secret: bool
    created_at: datetime
    updated_at: datetime


class Usage(Schema):
    """Sums of one group; what is not grouped by is null. Times in ms, null without any."""

    at: datetime | None
    key_id: int | None
    key: str | None
    route: str | None
    requests: int
    errors: int
    refused: int
    cancelled: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    ttft_mean_ms: float | None
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None


class UsageAnswer(Schema):
    """Usage of a range: everything together, and by group."""

    since: datetime
    total: Usage
    items: list[Usage]


class Request(Schema):
    """An ended request without its texts."""

    id: int
    request_id: str
    at: datetime
    key_id: int | None
    key: str | None
    route: str
    upstream: str | None
    revision: int | None
    endpoint: str
    status: int
    outcome: str
    reason: str | None
    streamed: bool
    priority: str
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    queue_ms: float | None
    ttft_ms: float | None
    total_ms: float | None
    overhead_ms: float | None
    has_texts: bool


class RequestTexts(Request):
    """An ended request with its texts, where its route kept them; null elsewhere."""

    prompt: str | None
    answer: str | None


class Running(Schema):
    """A request that runs or waits."""

    request_id: str
    key_id: int | None
    key: str | None
    route: str
    endpoint: str
    priority: str
    streamed: bool
    began: datetime
    phase: str
    upstream: str | None
    queue_seconds: float | None
    ttft_seconds: float | None
    tokens: int
