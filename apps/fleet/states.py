"""States of a node. A lost node is not a lost job: jobs live by their own leases."""

from __future__ import annotations

from apps.core.states import Move, StateMachine, moves

JOINING, READY, SUSPECT, LOST, MAINTENANCE = "joining", "ready", "suspect", "lost", "maintenance"

NODE = StateMachine(
    name="node",
    initial=JOINING,
    moves=(
        Move(JOINING, READY, "ctl"),
        Move(READY, SUSPECT, "sweep"),
        Move(SUSPECT, LOST, "sweep"),
        *moves("ctl", [SUSPECT, LOST], [READY]),
        *moves("web", [READY, SUSPECT, LOST], [MAINTENANCE]),
        Move(MAINTENANCE, READY, "web"),
    ),
    terminal=frozenset(),
    active=frozenset({JOINING, READY, SUSPECT}),
    tones={JOINING: "busy", READY: "ok", SUSPECT: "warn", LOST: "bad", MAINTENANCE: "idle"},
)
