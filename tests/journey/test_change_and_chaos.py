"""Rolling updates and faults on the journey's own stack: the short forms of `make rolling` and `make chaos`."""

from __future__ import annotations

import pytest

from tests.chaos import rolling, upheaval
from tests.chaos.faults import FAULTS
from tests.chaos.installation import Installation
from tests.support.stack import Stack

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


def test_five_rolling_updates_under_eight_streams(stack: Stack) -> None:
    # Two of the streams are long enough to be open across every switch; an update waits for those alone.
    done = rolling.run(Installation(stack), updates=5, streams=8, tokens=40, brief=6)
    assert len({each.new for each in done} | {done[0].old}) == 6


def test_faults_under_sixteen_streams(stack: Stack) -> None:
    short = tuple(fault for fault in FAULTS if fault.short)
    lines = upheaval.run(Installation(stack), short, streams=16, tokens=32)
    assert len(lines) == len(short)
