"""The share of the machine that others use."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from benchmarks import load
from benchmarks.load import Reading


def test_what_is_not_ours_and_not_idle_is_others() -> None:
    before, after = Reading(10.0, 100.0, 4.0), Reading(18.0, 110.0, 9.0)
    assert load.others(before, after) == pytest.approx(0.3)
    assert load.others(before, before) == 0.0


def test_our_own_work_counts_once_also_where_a_child_does_it() -> None:
    busy = "import time; end = time.process_time() + 0.5\nwhile time.process_time() < end: pass\ninput()"
    before = load.read()
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE) as child:
        deadline = time.monotonic() + 30
        while load.read().own - before.own < 0.5:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        own = load.read().own - before.own
        assert child.stdin is not None
        child.stdin.close()
        child.wait(10)
    assert own < 1.5
