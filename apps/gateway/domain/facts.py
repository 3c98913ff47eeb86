"""What a request's path knows: keys, routes and upstreams as plain values in memory, never rows.

`apps/gateway/table.py` makes a Table out of the database; the gateway process holds the newest one. Absent is None:
no limit, no expiry, every deployment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Literal

# How long a request may wait for a slot where the route says nothing.
QUEUE_SECONDS = 60.0


class Priority(IntEnum):
    """Classes of a request; the smaller number goes first and is shed last."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one key or one route. `max_tokens` bounds what one request may generate."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """One API key. `routes` are the public names it may use, None for all; `expires_at` is an epoch second."""

    key_id: int
    name: str
    prefix: str
    routes: frozenset[str] | None = None
    expires_at: float | None = None
    limits: Limits = Limits()
    priority: Priority = Priority.NORMAL


@dataclass(frozen=True, slots=True)
class Upstream:
    """One server that can answer a route: a Triton instance, or somebody else's OpenAI-style API.

    `uid` is the instance's uid, or `external:<name>`. `slots` is how many requests it computes at once (None: not
    known, no window). `weight` is its share of new requests within the route (canary), relative.
    """

    uid: str
    kind: Literal["triton", "openai"]
    http_url: str
    grpc_url: str = ""
    model: str = ""
    slots: int | None = None
    weight: float = 1.0
    deployment_id: int | None = None
    revision: int | None = None
    max_prompt_tokens: int | None = None
    # Sent upstream as a bearer token; never logged, never shown.
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Route:
    """One public model name and what stands behind it.

    `targets` are what the name leads to, whether it serves now or not: a stable word for each, and the longest prompt
    (tokens) that goes there, None for any. Names with equal targets wait for the same slots.
    `template` and `tokens` are what the chat template needs (streaming/prompts.py); empty for external upstreams.
    `fallback` is the public name to try where nothing here can answer. `queue_size` and `queue_seconds` bound what
    waits in the gateway. `wakes`: nothing serves because it sleeps, and a request that waits wakes it.
    `record_bodies` keeps texts of requests for `body_days`.
    """

    name: str
    upstreams: tuple[Upstream, ...]
    targets: tuple[tuple[str, int | None], ...] = ()
    route_id: int | None = None
    limits: Limits = Limits()
    fallback: str = ""
    template: str = ""
    tokens: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    max_sequence_tokens: int | None = None
    queue_size: int = 512
    queue_seconds: float = QUEUE_SECONDS
    wakes: bool = False
    record_bodies: bool = False
    body_days: int = 7
    created: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """Everything the path needs, at one version. `keys` by SHA-256 (hex) of the key, `routes` by public name."""

    version: int
    keys: Mapping[str, KeyFacts]
    routes: Mapping[str, Route]


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """What is kept of one ended request. Times are epoch seconds and seconds; counts None where nobody told them.

    `status` is the HTTP status sent, `outcome` a stable word: ok, cancelled, error, refused, interrupted.
    """

    request_id: str
    key_id: int | None
    key_name: str
    route: str
    upstream: str
    revision: int | None
    endpoint: Literal["chat", "completions", "tokenize"]
    at: float
    status: int
    outcome: str
    reason: str = ""
    streamed: bool = False
    priority: Priority = Priority.NORMAL
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    queue_seconds: float | None = None
    ttft_seconds: float | None = None
    total_seconds: float | None = None
    overhead_seconds: float | None = None
    prompt: str | None = None
    answer: str | None = None
