"""The next step of a deployment, as a pure function of its rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.serving.domain.canary import Step, shares, wanted_at
from apps.serving.domain.restarts import HEALTHY, InstanceFact, retry_at
from apps.serving.domain.rollout import Decision, Policy, RevisionFact, Situation, decide

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


def failed(id: int, ago: float, reason: str = "crashed", **columns: Any) -> InstanceFact:
    return row(id, state="failed", reason=reason, failed_at=NOW - timedelta(seconds=ago), **columns)


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
        (retry_at([failed(n, 0) for n in range(1, count + 1)]) - NOW).total_seconds()
        for count in range(1, 12)
    ]
    for wait, base in zip(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300], strict=True):
        assert 0.8 * base <= wait <= min(1.2 * base, 300)


def test_a_crash_loop_is_said_and_never_given_up() -> None:
    many = [failed(n, 400 - n) for n in range(1, 12)]
    found = decision(*many)
    assert found.gave_up is None
    assert [(loop.replica, loop.ends, loop.instance) for loop in found.loops] == [(0, 11, 11)]
    assert found.place == ((1, 0, 11),)
    assert decision(*many[:2]).loops == ()


def test_what_will_repeat_is_given_up_at_once() -> None:
    assert decision(failed(1, 5, "load_failed")).gave_up == (1, 1)


def test_what_failed_before_the_last_press_does_not_count() -> None:
    assert decision(failed(1, 5, "load_failed"), deployed_at=NOW - timedelta(seconds=4)).place == ((1, 0, 0),)


def test_ten_healthy_minutes_begin_a_new_count() -> None:
    long = HEALTHY + timedelta(seconds=1)
    before = [failed(n, 3000 - n) for n in range(1, 5)]
    healthy = failed(9, 2, serving_since=NOW - timedelta(seconds=2) - long)
    assert decision(*before, healthy).place == ((1, 0, 1),)
    short = failed(9, 2, serving_since=NOW - timedelta(seconds=100))
    assert decision(*before, short).place == ()
    assert decision(*before, row(10, serving_since=NOW - long)).loops == ()


def test_rolling_out_beside_the_old_one() -> None:
    assert decision(row(), pending=TWO) == Decision(place=((2, 0, 0),), state="ready")
    both = decision(row(), row(2, revision=2), pending=TWO)
    assert both.switch
    assert both.drain == (1,)
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


# ---------------------------------------------------------------------- exchanging several servers


class World:
    """Servers that do what decide says: what is placed serves one round later, what drains is gone one later."""

    def __init__(self, old: int, new: int, policy: Policy) -> None:
        self.rows = [row(n + 1, revision=1, replica=n) for n in range(old)]
        self.active, self.pending = RevisionFact(1, old), RevisionFact(2, new, moved_at=NOW)
        self.policy = policy
        self.serving, self.running = old, old

    def round(self) -> bool:
        """One tick; whether the new revision serves whole."""
        found = decide(
            Situation(True, self.active, self.pending, tuple(self.rows), NOW, NOW, False, self.policy)
        )
        kept = []
        for each in self.rows:
            if each.state == "draining":
                continue
            state = "draining" if each.id in found.drain else "serving"
            kept.append(row(each.id, revision=each.revision, replica=each.replica, state=state))
        next_id = max(each.id for each in self.rows) + 1
        for revision, replica, _restarts in found.place:
            kept.append(row(next_id, revision=revision, replica=replica, state="loading"))
            next_id += 1
        self.rows = kept
        self.serving = sum(each.serves for each in kept)
        self.running = sum(each.live and each.state != "draining" for each in kept)
        return found.switch


@pytest.mark.parametrize(
    ("old", "new", "surge", "unavailable"),
    [
        (1, 1, 1, 0),
        (3, 3, 1, 0),
        (3, 3, 0, 1),
        (4, 4, 2, 1),
        (3, 1, 1, 0),
        (1, 3, 1, 0),
        (5, 5, 0, 5),
        (2, 4, 3, 0),
    ],
)
def test_servers_are_exchanged_within_the_limits(old: int, new: int, surge: int, unavailable: int) -> None:
    world = World(old, new, Policy(max_surge=surge, max_unavailable=unavailable))
    for _tick in range(40):
        if world.round():
            break
        assert world.serving >= min(old, new) - unavailable
        assert world.running <= max(old, new) + surge
    else:
        pytest.fail("the roll-out never ended")


def test_a_pause_holds_everything() -> None:
    paused = RevisionFact(2, 1, moved_at=NOW - timedelta(hours=5), paused=True)
    found = decision(row(), row(2, revision=2), pending=paused)
    assert found == Decision(state="ready")


def test_a_roll_out_without_progress_ends_and_the_old_one_is_untouched() -> None:
    late = RevisionFact(2, 1, moved_at=NOW - timedelta(seconds=601))
    found = decision(row(), row(2, revision=2, state="loading"), pending=late)
    assert (found.gave_up, found.drain, found.state) == ((2, None), (), "ready")
    # Without anything to go back to it may take its time.
    assert decision(row(2, revision=2, state="loading"), active=None, pending=late).gave_up is None
    # A server that began to serve is progress.
    two = RevisionFact(2, 2, moved_at=NOW - timedelta(seconds=601))
    part = row(2, revision=2, serving_since=NOW - timedelta(seconds=30))
    assert decision(row(), part, pending=two).gave_up is None


def test_a_roll_out_that_crashes_is_not_tried_for_ever() -> None:
    crashes = [row(n, revision=2, state="failed", reason="crashed", failed_at=NOW) for n in (5, 6, 7)]
    assert decision(row(), *crashes, pending=TWO).gave_up == (2, 7)
    assert decision(*crashes, active=None, pending=TWO).gave_up is None


# ---------------------------------------------------------------------- canary

STEPS = (Step(10, 60), Step(50, 60))
CANARY = Policy(canary=STEPS)


def test_a_canary_serves_beside_the_old_one_until_it_is_promoted() -> None:
    begin = decision(row(), row(2, revision=2), pending=TWO, policy=CANARY)
    assert (begin.begin_canary, begin.switch, begin.drain) == (True, False, ())
    step = RevisionFact(2, 1, step=1)
    assert decision(row(), row(2, revision=2), pending=step, policy=CANARY) == Decision(state="ready")
    promoted = RevisionFact(2, 1, step=1, promoted=True)
    assert decision(row(), row(2, revision=2), pending=promoted, policy=CANARY).switch


def test_a_canary_of_many_gets_as_many_servers_as_its_weight_asks_for() -> None:
    four = {"active": RevisionFact(1, 4), "pending": RevisionFact(2, 4, step=1), "policy": CANARY}
    old = [row(n + 1, replica=n) for n in range(4)]
    assert decision(*old, **four).place == ((2, 0, 0),)
    beside = decision(*old, row(9, revision=2), **four)
    assert (beside.place, beside.drain) == ((), (4,))
    dead = decision(*old[:1], row(9, revision=2), row(10, revision=2, replica=1), **four)
    assert dead.place == ((1, 1, 0),)


def test_the_first_deployment_has_nobody_to_be_compared_with() -> None:
    assert decision(row(2, revision=2), active=None, pending=TWO, policy=CANARY).switch


def test_shares_of_requests() -> None:
    assert shares(1, True, 1, STEPS, None, False) == (100, 0)
    assert shares(1, True, 1, STEPS, 0, False) == (90, 10)
    assert shares(2, True, 1, STEPS, 1, False) == (50, 50)
    assert shares(1, True, 0, STEPS, 1, False) == (100, 0)
    assert shares(0, False, 1, STEPS, None, False) == (0, 100)
    assert shares(3, False, 1, (), None, False) == (75, 25)
    assert shares(3, True, 1, (), None, False) == (100, 0)
    assert shares(0, False, 2, STEPS, 1, True) == (0, 100)
    assert shares(0, False, 0, STEPS, None, False) == (100, 0)
    assert [wanted_at(weight, 4) for weight in (1, 25, 26, 99)] == [1, 1, 2, 4]
