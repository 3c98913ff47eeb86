"""States of an alert and of a notification."""

from __future__ import annotations

from apps.core.states import Move, StateMachine, moves

# Pending: the condition holds, but not for long enough yet. A pending alert that goes leaves no row.
PENDING, FIRING, ACKNOWLEDGED, RESOLVED = "pending", "firing", "acknowledged", "resolved"
OPEN = frozenset({PENDING, FIRING, ACKNOWLEDGED})
# What a person is shown and told of.
RAISED = frozenset({FIRING, ACKNOWLEDGED})

ALERT = StateMachine(
    name="alert",
    initial=PENDING,
    moves=(
        Move(PENDING, FIRING, "telemetry"),
        *moves("telemetry", [FIRING, ACKNOWLEDGED], [RESOLVED]),
        Move(FIRING, ACKNOWLEDGED, "web"),
        Move(ACKNOWLEDGED, FIRING, "web"),
    ),
    terminal=frozenset({RESOLVED}),
    active=frozenset({PENDING, FIRING, ACKNOWLEDGED}),
    tones={PENDING: "idle", FIRING: "bad", ACKNOWLEDGED: "warn", RESOLVED: "ok"},
)

QUEUED, DELIVERED, FAILED = "queued", "delivered", "failed"

NOTIFICATION = StateMachine(
    name="notification",
    initial=QUEUED,
    moves=(*moves("telemetry", [QUEUED], [DELIVERED, FAILED]),),
    terminal=frozenset({DELIVERED, FAILED}),
    active=frozenset({QUEUED}),
    tones={QUEUED: "busy", DELIVERED: "ok", FAILED: "bad"},
)
