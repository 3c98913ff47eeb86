"""What a server is at a moment, out of what was seen of its processes and of itself.

A launcher that returns says nothing: it starts the servers and goes. What counts are the processes that run, and for
"ready" the server's own word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

State = Literal["stopped", "starting", "ready", "failed"]
_READY = "/v2/health/ready"


def state_at(events: Sequence[Mapping[str, Any]], seconds: float) -> State:
    """The state at `seconds` after the first event.

    Events, in order: {"t", "event": "spawn ...", "pid"}, {"event": "children alive", "pids"}, {"event": "... exit",
    "pid", "code"} and {"event": "GET /v2/health/ready", "status"}. "failed": nothing runs any more and the last
    process did not end with 0; "stopped": nothing runs.
    """
    alive: set[int] = set()
    ready = False
    code: int | None = None
    for event in events:
        if float(event["t"]) > seconds:
            break
        name = str(event["event"])
        if name.startswith("spawn"):
            alive.add(int(event["pid"]))
        elif name.endswith("alive"):
            alive = {int(pid) for pid in event["pids"]} | (alive - _gone(events, float(event["t"])))
        elif name.endswith(("exit", "exits", "died", "killed")):
            alive -= {int(pid) for pid in event.get("pids", [event.get("pid", -1)])}
            code = event.get("code", code)
        elif name.endswith(_READY):
            ready = event.get("status") == 200
    if not alive:
        return "failed" if code else "stopped"
    return "ready" if ready else "starting"


def _gone(events: Sequence[Mapping[str, Any]], until: float) -> set[int]:
    return {
        int(event["pid"])
        for event in events
        if float(event["t"]) <= until and str(event["event"]).endswith("exit") and "pid" in event
    }
