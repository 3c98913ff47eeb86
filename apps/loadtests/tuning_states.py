"""States of a tuning and of a trial."""

from __future__ import annotations

from apps.core.states import Move, StateMachine, moves

RUNNING, SUCCEEDED, FAILED, CANCELLED = "running", "succeeded", "failed", "cancelled"
PREPARING, CLEARING, INFEASIBLE = "preparing", "clearing", "infeasible"

TUNING = StateMachine(
    name="tuning",
    initial=RUNNING,
    moves=moves("load", [RUNNING], [SUCCEEDED, FAILED, CANCELLED]),
    terminal=frozenset({SUCCEEDED, FAILED, CANCELLED}),
    active=frozenset({RUNNING}),
    tones={RUNNING: "busy", SUCCEEDED: "ok", FAILED: "bad", CANCELLED: "warn"},
)

TRIAL = StateMachine(
    name="trial",
    initial=PREPARING,
    moves=(
        Move(PREPARING, INFEASIBLE, "load"),  # the memory plan refuses it: nothing is run
        Move(PREPARING, RUNNING, "sweep"),  # its servers serve
        *moves("sweep", [PREPARING, RUNNING], [CLEARING]),  # measured, failed or cancelled: its servers go
        *moves("sweep", [CLEARING], [SUCCEEDED, FAILED, CANCELLED]),
    ),
    terminal=frozenset({INFEASIBLE, SUCCEEDED, FAILED, CANCELLED}),
    active=frozenset({PREPARING, RUNNING, CLEARING}),
    tones={
        PREPARING: "busy",
        RUNNING: "busy",
        CLEARING: "busy",
        INFEASIBLE: "idle",
        SUCCEEDED: "ok",
        FAILED: "bad",
        CANCELLED: "warn",
    },
)
