"""The next step of a deployment, as a pure function of its rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from apps.serving.domain.rollout import (
    FAILURE_WINDOW,
    Decision,
    InstanceFact,
    RevisionFact,
    Situation,
    decide,
    retry_at,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ONE, TWO = RevisionFact(1, 1), RevisionFact(2, 1)


def decision(*instances: InstanceFact, **changes: Any) -> Decision:
    known = {
        "wanted": True,
        "active": ONE,
        "pending": None,
        "deployed_at": NOW - timedelta(hours=1),
        "now": NOW,
    }
    return decide(Situation(instances=instances, **{**known, **changes}))


def row(id: int = 1, revision: int = 1, state: str = "serving", **columns: Any) -> InstanceFact:
    return InstanceFact(id=id, revision=revision, replica=columns.pop("replica", 0), state=state, **columns)


def failed(id: int, ago: float, reason: str = "crashed") -> InstanceFact:
    return row(id, state="failed", reason=reason, failed_at=NOW - timedelta(seconds=ago))


def test_a_missing_replica_is_placed() -> None:
    assert decision(active=None, pending=ONE).place == ((1, 0, 0),)
    assert decision(row(state="loading"), active=None, pending=ONE).place == ()
    assert decision(row(), active=RevisionFact(1, 3)).place == ((1, 1, 0), (1, 2, 0))


def test_a_draining_server_keeps_its_place_until_it_is_gone() -> None:
    assert decision(row(state="draining")) == Decision(state="starting")
    assert decision(row(state="gone")).place == ((1, 0, 0),)


def test_states_of_the_whole() -> None:
    assert decision(row()).state == "ready"
    assert decision(row(), active=RevisionFact(1, 2)).state == "degraded"
    assert decision().state == "starting"
    assert decision(wanted=False).state == "stopped"
    assert decision(row(), wanted=False) == Decision(drain=(1,), state="stopping")
    assert decision(row(stop_requested=True)).state == "starting"


def test_restarts_wait_longer_each_time() -> None:
    assert decision(failed(1, 0.5)).place == ()
    assert decision(failed(1, 1.3)).place == ((1, 0, 1),)
    waits = [
        (retry_at([failed(n, 0) for n in range(1, count + 1)]) - NOW).total_seconds() for count in range(1, 8)
    ]
    for wait, base in zip(waits, [1, 2, 4, 8, 16, 32, 60], strict=True):
        assert 0.8 * base <= wait <= 1.2 * base


def test_giving_up() -> None:
    five = [failed(n, 100 - n) for n in range(1, 6)]
    assert decision(*five) == Decision(gave_up=(1, 5), state="failed")
    assert decision(failed(1, 5, "load_failed")).gave_up == (1, 1)


def test_what_failed_before_the_last_press_or_long_ago_does_not_count() -> None:
    assert decision(failed(1, 5, "load_failed"), deployed_at=NOW - timedelta(seconds=4)).place == ((1, 0, 0),)
    old = FAILURE_WINDOW.total_seconds() + 1
    assert decision(*[failed(n, old) for n in range(5)]).gave_up is None


def test_rolling_out_beside_the_old_one() -> None:
    assert decision(row(), pending=TWO) == Decision(place=((2, 0, 0),), state="ready")
    both = decision(row(), row(2, revision=2), pending=TWO)
    assert both.switch
    after = decision(row(), row(2, revision=2), active=TWO)
    assert after == Decision(drain=(1,), state="ready")


def test_a_failed_roll_out_is_no_failed_deployment() -> None:
    found = decision(row(), failed_revision_two(), pending=TWO)
    assert found == Decision(gave_up=(2, 7), state="ready")


def failed_revision_two() -> InstanceFact:
    return row(7, revision=2, state="failed", reason="load_failed", failed_at=NOW)


def test_too_many_replicas_and_strangers_drain() -> None:
    assert decision(row(), row(2, replica=1), row(3, revision=9)).drain == (2, 3)


def test_what_failed_or_waits_is_not_started_by_itself_however_long_ago_it_failed() -> None:
    assert decision(held=True).place == ()
    assert decision(failed(1, 10_000, "load_failed"), held=True) == Decision(state="starting")
    assert decision(row(), held=True).state == "ready"
    assert decision(row(), row(2, revision=9), held=True).drain == (2,)


def test_without_any_revision_nothing_is_said() -> None:
    assert decision(active=None) == Decision()
