"""States of a checkpoint. Inspecting is header work only and is done by the service that registers it."""

from __future__ import annotations

from apps.core.states import Move, StateMachine, moves

REGISTERED, READY, REFUSED, MISSING = "registered", "ready", "refused", "missing"

CHECKPOINT = StateMachine(
    name="checkpoint",
    initial=REGISTERED,
    moves=(
        *moves("web", [REGISTERED], [READY, REFUSED]),
        *moves("web", [REFUSED, MISSING, READY], [REGISTERED]),
        Move(READY, MISSING, "sweep"),
    ),
    terminal=frozenset(),
    active=frozenset({REGISTERED}),
    tones={REGISTERED: "busy", READY: "ok", REFUSED: "bad", MISSING: "warn"},
)
