"""Scaling, rolling back and canaries on the journey's own stack: what `make scaling`, `make rollback` and
`python -m tests.chaos.canary` show."""

from __future__ import annotations

import pytest

from tests.chaos import canary, rollback, scaling
from tests.chaos.installation import Installation
from tests.support.stack import Stack

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(420),
]


def test_servers_follow_the_load_down_to_none_and_up_again(stack: Stack) -> None:
    found = scaling.run(Installation(stack))
    assert [each["cause"] for each in found] == ["load", "load", "idle", "wake"]
    assert all(each["figures"] for each in found)


def test_a_change_that_cannot_serve_is_taken_back_within_half_a_minute(stack: Stack) -> None:
    assert set(rollback.run(Installation(stack))) == {"load failure", "progress deadline"}


def test_canaries_are_promoted_and_taken_back_by_what_they_do(stack: Stack) -> None:
    found = canary.run(Installation(stack))
    promoted, taken_back = found["rollout.promoted"]["detail"], found["rollout.rolled_back"]["detail"]
    assert (promoted["verdict"], promoted["new"]["error_rate"]) == ("kept", 0.0)
    assert taken_back["verdict"] == "slo_error_rate"
    assert taken_back["new"]["error_rate"] > 0.1 > taken_back["old"]["error_rate"]
