"""States of a build and of an engine."""

from __future__ import annotations

from apps.core.states import Move, StateMachine, moves

QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED = "queued", "running", "succeeded", "failed", "cancelled"

BUILD = StateMachine(
    name="build",
    initial=QUEUED,
    moves=(
        Move(QUEUED, RUNNING, "gpu"),
        Move(QUEUED, SUCCEEDED, "web"),  # the same fingerprint exists: reuse
        Move(QUEUED, CANCELLED, "web"),
        Move(QUEUED, FAILED, "sweep"),
        *moves("gpu", [RUNNING], [SUCCEEDED, FAILED, CANCELLED]),
        Move(RUNNING, QUEUED, "sweep"),  # the lease ran out: infrastructure, at most twice
    ),
    terminal=frozenset({SUCCEEDED, FAILED, CANCELLED}),
    active=frozenset({QUEUED, RUNNING}),
    tones={QUEUED: "idle", RUNNING: "busy", SUCCEEDED: "ok", FAILED: "bad", CANCELLED: "warn"},
)

READY, MISSING, DELETED = "ready", "missing", "deleted"

ENGINE = StateMachine(
    name="engine",
    initial=READY,
    moves=(
        Move(READY, MISSING, "sweep"),
        Move(MISSING, READY, "gpu"),
        *moves("web", [READY, MISSING], [DELETED]),
    ),
    terminal=frozenset({DELETED}),
    active=frozenset(),
    tones={READY: "ok", MISSING: "bad", DELETED: "idle"},
)
