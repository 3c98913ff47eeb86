"""Reports of servers that were taken for dead, or whose memory did not come back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from apps.serving.domain import leaks, lifecycle

CASES = Path(__file__).parents[1] / "data/cases"


def case(name: str, file: str) -> tuple[Any, Any]:
    folder = CASES / name
    return json.loads((folder / file).read_text()), json.loads((folder / "expected.json").read_text())


def test_a_launcher_that_returns_is_no_stopped_server() -> None:
    events, expected = case("69-launcher-returns-server-lives", "input.events.json")
    assert lifecycle.state_at(events, 1.0) == expected["state_at_1s"]
    assert lifecycle.state_at(events, 41.0) == expected["state_at_41s"]
    assert expected["state_must_not_be"] not in {lifecycle.state_at(events, t / 10) for t in range(420)}


def test_a_server_whose_processes_are_all_gone_is_stopped_or_failed() -> None:
    events = [
        {"t": 0, "event": "spawn launcher", "pid": 1},
        {"t": 1, "event": "launcher exit", "pid": 1, "code": 0},
    ]
    assert lifecycle.state_at(events, 2) == "stopped"
    assert lifecycle.state_at([*events[:1], {**events[1], "code": 1}], 2) == "failed"
    assert lifecycle.state_at(events, 0.5) == "starting"


def test_memory_that_failed_loads_keep_is_measured() -> None:
    steps, expected = case("71-failed-load-keeps-gpu-memory", "input.json")
    levels = [step["server_used_mib"] for step in steps if not step["step"].startswith("load")]
    found = leaks.judge(levels)
    assert (found.leak_mib_per_attempt, found.advice) == (
        expected["leak_mib_per_attempt"],
        expected["advice"],
    )


def test_memory_that_comes_back_is_no_leak() -> None:
    assert leaks.judge([412, 412, 430]) == leaks.Leak(None, "none")
    assert leaks.judge([412]) == leaks.Leak(None, "none")
    assert leaks.judge([900, 412, 412]) == leaks.Leak(None, "none")
