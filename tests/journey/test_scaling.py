"""Scaling and rolling back on the journey's own stack: what `make scaling` and `make rollback` show."""

from __future__ import annotations

import pytest

from tests.chaos import rollback, scaling
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
