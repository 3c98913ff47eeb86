"""Rates over the last 60 seconds, on a clock that the test moves."""

from __future__ import annotations

import random

import pytest

from apps.gateway.domain.windows import (
    LEASE_SECONDS,
    Admitted,
    Ask,
    Denied,
    LocalLimits,
    Scope,
    wait_for,
)


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limits(clock: Clock) -> LocalLimits:
    return LocalLimits(clock)


def ask(*scopes: Scope, tokens: int = 10, member: str = "m") -> Ask:
    return Ask(member, tokens, scopes)


def test_no_sixty_seconds_see_more_than_the_limit(limits: LocalLimits, clock: Clock) -> None:
    chance, admitted = random.Random(3), []
    for number in range(4000):
        clock.at += chance.random() * 0.4
        if isinstance(limits.admit(ask(Scope("k", requests=30), member=str(number))), Admitted):
            admitted.append(clock.at)
    for index, first in enumerate(admitted):
        assert sum(1 for at in admitted[index:] if at < first + 60) <= 30
    # ... and of what it allows nearly all is given.
    assert len(admitted) >= 30 * (clock.at - 1000) / 62 - 30


def test_the_wait_that_is_told_is_enough_and_not_much_more(limits: LocalLimits, clock: Clock) -> None:
    scope = Scope("k", requests=3)
    for number in range(3):
        assert isinstance(limits.admit(ask(scope, member=str(number))), Admitted)
        clock.at += 7
    denied = limits.admit(ask(scope))
    assert isinstance(denied, Denied)
    assert (denied.scope, denied.limit, denied.most) == (0, "requests_per_minute", 3)
    assert 39 <= denied.wait_seconds <= 40
    clock.at += denied.wait_seconds - 0.01
    assert isinstance(limits.admit(ask(scope)), Denied)
    clock.at += 0.02
    assert isinstance(limits.admit(ask(scope)), Admitted)


def test_tokens_are_reserved_and_settled(limits: LocalLimits) -> None:
    scope = Scope("k", tokens=1000)
    first = ask(scope, tokens=600, member="1")
    held = limits.admit(first)
    assert isinstance(held, Admitted)
    assert held.tokens_left == 400
    assert isinstance(limits.admit(ask(scope, tokens=600, member="2")), Denied)
    limits.release(first, held, 100)
    again = limits.admit(ask(scope, tokens=600, member="2"))
    assert isinstance(again, Admitted)
    assert again.tokens_left == 300


def test_a_request_larger_than_the_minute_runs_alone_and_counts_whole(
    limits: LocalLimits, clock: Clock
) -> None:
    scope = Scope("k", tokens=1000)
    large = ask(scope, tokens=5000, member="1")
    held = limits.admit(large)
    assert isinstance(held, Admitted)
    assert held.tokens_left == 0
    limits.release(large, held, 1800)
    denied = limits.admit(ask(scope, tokens=1))
    assert isinstance(denied, Denied)
    assert denied.limit == "tokens_per_minute"
    clock.at += denied.wait_seconds
    assert isinstance(limits.admit(ask(scope, tokens=1)), Admitted)


def test_what_never_ran_is_taken_back_whole(limits: LocalLimits) -> None:
    scope = Scope("k", requests=1, tokens=100, concurrent=1)
    first = ask(scope, tokens=100)
    held = limits.admit(first)
    assert isinstance(held, Admitted)
    limits.release(first, held, 0, counts=False)
    assert isinstance(limits.admit(ask(scope, tokens=100)), Admitted)


def test_requests_at_once(limits: LocalLimits, clock: Clock) -> None:
    scope = Scope("k", concurrent=2)
    held = [limits.admit(ask(scope, member=name)) for name in "ab"]
    denied = limits.admit(ask(scope, member="c"))
    assert isinstance(denied, Denied)
    assert denied.limit == "concurrent_requests"
    assert isinstance(held[0], Admitted)
    limits.release(ask(scope, member="a"), held[0], 0)
    assert isinstance(limits.admit(ask(scope, member="c")), Admitted)
    # Nobody renews b and c: their process was killed.
    clock.at += LEASE_SECONDS - 1
    limits.renew(ask(scope, member="c"))
    clock.at += 2
    assert isinstance(limits.admit(ask(scope, member="d")), Admitted)
    assert isinstance(limits.admit(ask(scope, member="e")), Denied)


def test_all_scopes_or_none(limits: LocalLimits) -> None:
    key, route = Scope("k", requests=5, concurrent=5), Scope("r", requests=1)
    assert isinstance(limits.admit(ask(key, route, member="1")), Admitted)
    denied = limits.admit(ask(key, route, member="2"))
    assert isinstance(denied, Denied)
    assert denied.scope == 1
    left = limits.admit(ask(key, member="3"))
    assert isinstance(left, Admitted)
    assert left.requests_left == 3


def test_the_tightest_limit_is_told(limits: LocalLimits) -> None:
    got = limits.admit(ask(Scope("k", requests=9, tokens=50), Scope("r", requests=4, tokens=500)))
    assert isinstance(got, Admitted)
    assert (got.requests_left, got.tokens_left) == (3, 40)
    free = limits.admit(ask(Scope("x")))
    assert isinstance(free, Admitted)
    assert (free.requests_left, free.tokens_left) == (None, None)


@pytest.mark.parametrize(
    ("scope", "processes", "share"),
    [
        (Scope("k", 60, 1000, 8), 4, Scope("k", 15, 250, 2)),
        (Scope("k", 1, None, 2), 4, Scope("k", 1, None, 1)),
        (Scope("k", 7), 1, Scope("k", 7)),
    ],
)
def test_the_share_of_one_process(scope: Scope, processes: int, share: Scope) -> None:
    assert scope.share(processes) == share


@pytest.mark.parametrize(
    ("steps", "most", "need", "wait"),
    [
        ({}, 5, 5, 0),
        ({100: 5}, 5, 1, 100 + 61 - 130),
        ({100: 2, 110: 3}, 5, 1, 100 + 61 - 130),
        ({100: 2, 110: 3}, 5, 3, 110 + 61 - 130),
        # More was used than the limit, and some was given back.
        ({100: 9, 120: -2}, 5, 1, 100 + 61 - 130),
    ],
)
def test_when_there_is_room(steps: dict[int, int], most: int, need: int, wait: float) -> None:
    assert wait_for(steps, most, need, 130.0) == wait
