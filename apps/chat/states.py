"""States of a turn: one question and its streamed answer."""

from __future__ import annotations

from apps.core.states import StateMachine, moves

STREAMING, DONE, STOPPED, INTERRUPTED, FAILED = "streaming", "done", "stopped", "interrupted", "failed"

TURN = StateMachine(
    name="turn",
    initial=STREAMING,
    moves=(*moves("web", [STREAMING], [DONE, STOPPED, FAILED, INTERRUPTED]),),
    terminal=frozenset({DONE, STOPPED, FAILED, INTERRUPTED}),
    active=frozenset({STREAMING}),
    tones={STREAMING: "busy", DONE: "ok", STOPPED: "warn", INTERRUPTED: "warn", FAILED: "bad"},
)
