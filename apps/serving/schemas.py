"""Answers of this app's REST operations, as the OpenAPI document describes them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema
from pydantic import Field

from apps.accounts.rest import StatusFields


class Batching(Schema):
    """The settings of a batching profile, as a revision keeps them."""

    name: str
    strategy: str
    max_batch_size: int
    max_queue_delay_microseconds: int
    max_seq_len: int
    max_queue_size: int
    threads: int
    preferred_batch_sizes: list[int] = Field(default_factory=list)
    queue_timeout_microseconds: int = 0
    preserve_ordering: bool = False
    timeout_action: str = "reject"
    allow_timeout_override: bool = True
    priority_classes: list[dict[str, Any]] = Field(default_factory=list)
    default_priority_class: str = ""
    trtllm: dict[str, Any] = Field(default_factory=dict)


class BatchingProfile(Batching):
    """A batching profile, who uses it and what in it has no effect."""

    id: int
    engine: str = "llamacpp"
    version: int | None = Field(None, description="Number of the newest version; null for one never changed.")
    idle: dict[str, str] = Field(
        default_factory=dict, description="Why a field that is set does nothing for the profile's engine."
    )
    deployments: list[str]
    findings: list[dict[str, Any]]
    created_at: datetime
    updated_at: datetime


class FieldChange(Schema):
    """One field, before and after."""

    field: str
    before: Any
    after: Any


class AffectedDeployment(Schema):
    """A deployment that uses the profile: what becomes of it, and the unified diff of its files."""

    deployment: str
    running: bool
    servers: int
    restarts: bool = Field(description="Whether servers are restarted when it is deployed again.")
    sentence: str
    diff: list[str]


class BatchingProfilePlan(Schema):
    """What changing a batching profile would do; `token` confirms this very change."""

    changes: list[FieldChange]
    deployments: list[AffectedDeployment]
    sentences: list[str]
    idle: dict[str, str] = Field(description="Why a field that is set does nothing for the profile's engine.")
    findings: list[dict[str, Any]]
    token: str


class BatchingProfileVersion(Schema):
    """What a profile said after one change; `changes` is empty for the first version."""

    number: int
    values: dict[str, Any]
    changes: list[FieldChange]
    actor: str
    created_at: datetime


class Instance(StatusFields):
    """One server."""

    uid: str
    deployment: str
    revision: int
    replica: int
    node: str | None
    node_id: str | None
    slot: str | None
    device: str | None
    gpus: list[int] = Field(description="Numbers of its slots; empty for servers of an older release.")
    why_there: str | None = Field(description="Why this place was chosen.")
    evicted_at: datetime | None = Field(
        description="Its node is to be empty; it serves until a successor does."
    )
    attempt: int
    restarts: int
    pid: int | None
    http_port: int | None
    grpc_port: int | None
    metrics_port: int | None
    server_version: str | None
    notices: list[dict[str, Any]]
    log_path: str | None
    created_at: datetime
    updated_at: datetime
    serving_since: datetime | None
    stop_requested_at: datetime | None
    drain_deadline: datetime | None
    failed_at: datetime | None
    exit_code: int | None
    diagnosis: dict[str, Any] | None
    may_restart: bool


class Revision(StatusFields):
    """An immutable snapshot of a deployment's configuration."""

    number: int
    active: bool
    engine: dict[str, Any] | None = Field(description="Null where a model repository is served.")
    repository_fingerprint: str | None
    batching: dict[str, Any]
    replicas: int
    placement: dict[str, Any]
    created_by: str | None
    canary_step: int | None
    paused_at: datetime | None
    promoted_at: datetime | None
    created_at: datetime
    updated_at: datetime


class Share(Schema):
    """One instance with its share of new requests, out of 100. Addresses are of the node itself."""

    uid: str
    revision: int
    model: str
    http_url: str
    grpc_url: str
    weight: float


class RolloutState(Schema):
    """Who serves now, and how far a roll-out is; `pending` null: none goes on."""

    deployment: str
    version: int
    active: int | None
    pending: int | None
    step: int | None = Field(description="The canary's step, counted from 0; null before the first.")
    steps: list[dict[str, Any]]
    paused: bool
    promoted: bool
    sentence: str | None
    traffic: list[Share]


class TimelineEntry(Schema):
    """One thing that happened."""

    id: int
    at: datetime
    who: str
    verb: str
    object_type: str
    object: str
    from_state: str | None
    to_state: str | None
    reason: str | None
    sentence: str | None
    detail: dict[str, Any]


class CrashReport(Schema):
    """How one server ended that should not have."""

    id: int
    at: datetime
    deployment: str
    uid: str
    revision: int
    replica: int
    attempt: int
    restarts: int
    node: str | None
    slot: str | None
    server_version: str | None
    was: str
    served_seconds: float | None
    reason: str
    sentence: str
    remedy: str | None
    exit_code: int | None
    log: str
    gpus: list[dict[str, Any]] | None
    diagnosis: dict[str, Any] | None


class ScalingDecision(Schema):
    """One decision on the number of servers; `before` and `after` are equal where something kept it."""

    id: int
    at: datetime
    before: int
    after: int
    cause: str = Field(description="load, schedule, bounds, idle, wake, person or hold.")
    reason: str
    sentence: str
    figures: dict[str, Any]
    actor: str


class WaitingBuild(Schema):
    """The build whose engine a deployment waits for."""

    id: int
    number: int
    state: str


class Deployment(StatusFields):
    """A deployment: configuration, what runs, and what may be done with it now."""

    name: str
    desired: str
    build_profile: str | None
    builder: str | None
    checkpoint: str | None
    quantization: str | None
    repository: str | None = Field(description="The imported model repository that is served, if one is.")
    repository_model: str | None
    serves: str
    priorities: dict[str, str] = Field(
        description="Which queue orders requests by class: where (engine, triton or gateway), sentence, remedy."
    )
    batching: str
    batching_profile: Batching
    replicas: int
    placement: dict[str, Any]
    placement_report: dict[str, Any] | None = Field(
        description="Why a server waits for a place: sentence, waits [{why, nodes, examples}]; null where none does."
    )
    slo: dict[str, Any]
    rollout: dict[str, Any]
    scaling: dict[str, Any]
    scaled_to: int | None = Field(
        description="Servers that schedule, load or sleep ask for; null: as many as `replicas`."
    )
    created_at: datetime
    updated_at: datetime
    deployed_at: datetime | None
    active_revision: int | None
    target_revision: int | None
    changed: bool | None = Field(
        description="Whether deploying would change what runs; null before the first."
    )
    waiting_build: WaitingBuild | None
    replicas_serving: int
    replicas_wanted: int
    instances: list[Instance]
    actions: dict[str, bool]


class RenderedFiles(Schema):
    """Text of the files that Triton reads, by path; `revision` null: of the present configuration."""

    revision: int | None
    files: dict[str, str]
