"""A host that joined: which processes it runs, and what it remembers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.local import environment, join_client, worker
from deploy.local.errors import Problem
from deploy.local.home import Home
from deploy.local.join_client import ExchangeFailed
from deploy.local.programs import Plan, programs

HANDED = {
    "environment": {
        "DATABASE_URL": "postgres://db",
        "INFLIGHT_REDIS_URL": "rediss://r",
        "INFLIGHT_NODE_ID": "n-abc234",
    },
    "certificates": {"redis-ca.pem": "PEM"},
    "secrets": {"secrets.key": "KEY"},
    "labels": {"zone": "a"},
}


class _Step:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    return made


def _exchanged(found: list[Any]) -> Callable[..., dict[str, dict[str, str]]]:
    def exchange(*args: Any) -> dict[str, dict[str, str]]:
        found.append(args)
        return HANDED

    return exchange


@pytest.mark.parametrize(
    ("several", "alone", "names"),
    [
        (False, False, {"web", "gateway", "worker-ctl", "worker-gpu0", "worker-load", "beat", "telemetry"}),
        (
            True,
            False,
            {"web", "gateway", "worker-ctl", "worker-gpu0", "worker-load", "beat", "telemetry", "door"},
        ),
        (True, True, {"worker-ctl", "worker-gpu0", "worker-load", "telemetry", "door"}),
    ],
)
def test_who_runs_what(home: Home, several: bool, alone: bool, names: set[str]) -> None:
    plan = Plan(home, Path("python"), "n-abc234", 1, (0,), None, several=several, worker=alone)
    found = programs(plan)
    assert {program.name for program in found} == names
    scraper = next(program for program in found if program.name == "telemetry")
    assert ("--node" in scraper.argv) is alone


def test_it_joins_once_and_starts_without_a_token_afterwards(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(join_client, "exchange", _exchanged(asked))
    step: Any = _Step()
    given = {worker.TOKEN: "ifj_x", worker.URL: "https://i.example", "INFLIGHT_NODE_ID": "n-abc234"}
    values, labels = worker._joined(home, given, step)
    assert labels == {"zone": "a"}
    assert values["INFLIGHT_REDIS_CA"].endswith("run/certificates/redis-ca.pem")
    assert asked[0][:3] == ("https://i.example", "ifj_x", "n-abc234")
    text = home.environment.read_text(encoding="utf-8")
    assert "ifj_x" not in text
    assert home.environment.stat().st_mode & 0o777 == 0o600
    again, none = worker._joined(home, {}, step)
    assert (again, none) == (environment.read(home.environment), {})
    assert len(asked) == 1


@pytest.mark.parametrize("given", [{}, {worker.TOKEN: "ifj_x"}, {worker.URL: "https://i.example"}])
def test_without_a_token_and_an_address_it_says_where_to_get_them(home: Home, given: dict[str, str]) -> None:
    step: Any = _Step()
    with pytest.raises(Problem) as caught:
        worker._joined(home, given, step)
    assert "page of the fleet" in caught.value.remedy
    assert not home.environment.exists()


def test_a_refusal_is_told_in_its_own_words(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise ExchangeFailed("Spent.", "Make another.")

    monkeypatch.setattr(join_client, "exchange", refuse)
    step: Any = _Step()
    with pytest.raises(Problem) as caught:
        worker._joined(home, {worker.TOKEN: "ifj_x", worker.URL: "https://i.example"}, step)
    assert (caught.value.what, caught.value.remedy) == ("Spent.", "Make another.")


def test_a_host_may_bring_its_own_triton(home: Home) -> None:
    step: Any = _Step()
    own = {"INFLIGHT_TRITON_BIN": "/opt/tritonserver/bin/tritonserver", "OTHER": "x"}
    assert worker._serving(home, own, step, Path("python")) == {
        "INFLIGHT_TRITON_BIN": own["INFLIGHT_TRITON_BIN"]
    }
