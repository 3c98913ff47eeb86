"""The foreground of `make up`: signals, and what a parent that was interrupted looks like."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from deploy.local import watch
from deploy.local.home import CHECKOUT


@contextmanager
def child(script: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-B", "-c", script]
    started = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT, **options)  # type: ignore[call-overload]
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        yield started
    finally:
        started.kill()
        started.wait()
        started.stdout.close()


WAITING = """
import signal, sys, time
from deploy.local import watch
{before}
try:
    with watch.ending_signals():
        print("ready", flush=True)
        time.sleep(60)
except watch.Ended as ended:
    print("ended by", ended, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_ending_signal_ends_in_order(number: signal.Signals) -> None:
    # Whoever runs the tests under nohup hands an ignored HUP down.
    with child(WAITING.format(before="signal.signal(signal.SIGHUP, signal.SIG_DFL)")) as process:
        process.send_signal(number)
        output, _ = process.communicate(timeout=20)
        assert output == f"ended by {number.name}\n"


def test_hangup_that_nohup_ignores_stays_ignored() -> None:
    with child(WAITING.format(before="signal.signal(signal.SIGHUP, signal.SIG_IGN)")) as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=20)
        assert output == "ended by SIGTERM\n"


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with watch.ending_signals():
        assert signal.getsignal(signal.SIGINT) != before
        with watch.ignoring_signals():
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before


@pytest.mark.parametrize(("blocks", "expected"), [("{signal.SIGINT}", True), ("set()", False)])
def test_parent_inside_its_interrupt_handler_is_recognised(blocks: str, expected: bool) -> None:
    mask = f"import signal, time; signal.pthread_sigmask(signal.SIG_SETMASK, {blocks})"
    script = f"{mask}; print('ready', flush=True); time.sleep(60)"
    with child(script) as process:
        assert watch._is_interrupted(process.pid) is expected


def test_parent_that_is_gone_is_not_interrupted() -> None:
    assert not watch._is_interrupted(2**22 + 1)
