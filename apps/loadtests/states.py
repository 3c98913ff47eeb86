"""States of a load run, a quality run and a study."""

from __future__ import annotations

from apps.core.states import Move, StateMachine, moves

QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED = "queued", "running", "succeeded", "failed", "cancelled"

LOADRUN = StateMachine(
    name="loadrun",
    initial=QUEUED,
    moves=(
        Move(QUEUED, RUNNING, "load"),
        Move(QUEUED, CANCELLED, "web"),
        *moves("load", [RUNNING], [SUCCEEDED, FAILED, CANCELLED]),
        Move(RUNNING, QUEUED, "sweep"),  # the lease ran out: infrastructure, at most twice
        Move(QUEUED, FAILED, "load"),  # its target serves no more
    ),
    terminal=frozenset({SUCCEEDED, FAILED, CANCELLED}),
    active=frozenset({QUEUED, RUNNING}),
    tones={QUEUED: "idle", RUNNING: "busy", SUCCEEDED: "ok", FAILED: "bad", CANCELLED: "warn"},
)

QUALITYRUN = StateMachine(
    name="qualityrun",
    initial=QUEUED,
    moves=LOADRUN.moves,
    terminal=LOADRUN.terminal,
    active=LOADRUN.active,
    tones=LOADRUN.tones,
)

PREPARING, CLEARING = "preparing", "clearing"

STUDY = StateMachine(
    name="study",
    initial=PREPARING,
    moves=(
        Move(PREPARING, RUNNING, "sweep"),  # every arm serves
        *moves("sweep", [PREPARING, RUNNING], [CLEARING]),  # done, failed or cancelled: its own servers stop
        *moves("sweep", [CLEARING], [SUCCEEDED, FAILED, CANCELLED]),
    ),
    terminal=frozenset({SUCCEEDED, FAILED, CANCELLED}),
    active=frozenset({PREPARING, RUNNING, CLEARING}),
    tones={
        PREPARING: "busy",
        RUNNING: "busy",
        CLEARING: "busy",
        SUCCEEDED: "ok",
        FAILED: "bad",
        CANCELLED: "warn",
    },
)
