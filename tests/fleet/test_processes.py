"""Ending process trees: by mark and group, TERM then KILL, nobody else's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from apps.fleet.processes import MARK, ProcessIdentity, end_tree, identify, is_same, mark_of, ours
from tests.support.celery import wait_until

Start = Callable[..., subprocess.Popen[bytes]]
# A child with a grandchild in its group and one that leaves it; both write a byte when they run.
TREE = """
import os, signal, subprocess, sys, time
code = "import signal, sys, time; %s; print('x', flush=True); time.sleep(600)"
deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
for session in (False, True):
    child = subprocess.Popen([sys.executable, "-c", code % deaf], stdout=subprocess.PIPE, start_new_session=session)
    child.stdout.readline()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a Python program in a session of its own, with a mark."""
    started: list[subprocess.Popen[bytes]] = []

    def run(code: str, mark: str = "n:build:1:1") -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            env={**os.environ, MARK: mark},
            start_new_session=True,
        )
        started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        return child

    yield run
    for child in started:
        if child.poll() is None:
            child.kill()
        child.wait(timeout=10)


SLEEPER = "import time; print('ready', flush=True); time.sleep(600)"


def test_identity_is_pid_and_start(start: Start) -> None:
    child = start(SLEEPER)
    found = identify(child.pid)
    assert found is not None
    assert found.group == child.pid
    assert is_same(found)
    assert not is_same(ProcessIdentity(child.pid, found.created + 1, found.group))
    child.kill()
    wait_until(lambda: identify(child.pid) is None, 5, "a zombie counts as gone")
    assert not is_same(found)
    child.wait()
    assert identify(child.pid) is None


def test_a_tree_with_deaf_and_escaped_grandchildren_is_ended(start: Start) -> None:
    mark = mark_of("n-one", "build", 7, 3)
    child = start(TREE, mark)
    other = start(SLEEPER, mark_of("n-one", "build", 7, 4))
    assert len(ours(mark)) == 3
    began = time.monotonic()
    assert end_tree(mark, identify(child.pid), 0.3) == []
    assert time.monotonic() - began < 4
    assert ours(mark) == []
    assert child.wait(timeout=1) == -signal.SIGTERM, "its exit code is left to its parent"
    assert other.poll() is None, "another attempt's process is not ours"


def test_without_a_grace_it_is_killed_at_once(start: Start) -> None:
    child = start("import signal; signal.signal(15, lambda *a: None); " + SLEEPER, "m")
    assert end_tree("m", None, 0) == []
    assert child.wait(timeout=1) == -signal.SIGKILL


def test_a_named_child_is_found_without_its_mark(start: Start) -> None:
    child = start(SLEEPER, "other")
    identity = identify(child.pid)
    assert identity is not None
    assert ours("m") == []
    assert [process.pid for process in ours("m", identity)] == [child.pid]
    stale = ProcessIdentity(child.pid, identity.created - 100, identity.group)
    assert end_tree("m", stale, 0.1) == []
    assert child.poll() is None, "the pid is somebody else's by now"


def test_nothing_to_end() -> None:
    assert end_tree("nobody", None, 1.0) == []
