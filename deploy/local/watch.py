"""The foreground of `make up`: one line for each change of a process, until it is told to end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from deploy.local import processes
from deploy.local.errors import Problem
from deploy.local.home import Home
from deploy.local.locks import exclusive
from deploy.local.supervision import NO_ANSWER, ProcessState, Supervisor, orphans

Handler = Callable[[int, FrameType | None], None] | signal.Handlers
POLL_SECONDS = 1.0
WORDS = {
    "RUNNING": "runs",
    "STARTING": "starts",
    "BACKOFF": "failed to start, tries again",
    "STOPPING": "is stopping",
    "EXITED": "ended by itself",
    "FATAL": "cannot be started, given up",
    "STOPPED": "is stopped",
}


class Ended(Exception):
    """A signal asked this command to end."""


@contextmanager
def ending_signals() -> Iterator[None]:
    """Turn Ctrl-C, TERM and HUP into `Ended` while the block runs."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise Ended(signal.Signals(number).name)

    # nohup has HUP ignored, and means it.
    hangup = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
    with _handling((signal.SIGINT, signal.SIGTERM, *hangup), handler):
        yield


@contextmanager
def ignoring_signals() -> Iterator[None]:
    """A second Ctrl-C does not break off the clean end."""
    with _handling((signal.SIGINT, signal.SIGHUP), signal.SIG_IGN):
        yield


@contextmanager
def _handling(numbers: Sequence[signal.Signals], handler: Handler) -> Iterator[None]:
    before = [signal.signal(number, handler) for number in numbers]
    try:
        yield
    finally:
        for number, previous in zip(numbers, before, strict=True):
            signal.signal(number, previous)


def changes(before: dict[str, ProcessState], after: list[ProcessState]) -> list[str]:
    """What happened between two looks, in words: also a restart that was over before the second look."""
    lines = []
    for state in after:
        old = before.get(state.name)
        if old is None or (old.state, old.pid) == (state.state, state.pid):
            continue
        word = WORDS.get(state.state, state.state.lower())
        if state.state == "RUNNING" and old.state == "RUNNING":
            word = "died and was started again"
        pid = f" (pid {state.pid})" if state.pid else f" ({state.why})" if state.why else ""
        lines.append(f"{state.name} {word}{pid}")
    return lines


def watch(home: Home) -> None:
    """Print changes until supervisord of this home ends; raises Ended when this command is to end it."""
    supervisor = Supervisor(home)
    parent = os.getppid()
    print("Ctrl-C ends it. Changes of processes:", flush=True)
    before: dict[str, ProcessState] = {}
    interrupted = 0
    while supervisor.identity() is not None or _is_back(home, supervisor):
        try:
            after = supervisor.states()
        except NO_ANSWER:
            after = list(before.values())
        for line in changes(before, after):
            print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)
        before = {state.name: state for state in after}
        time.sleep(POLL_SECONDS)
        # make does not pass an interrupt on: sent to make alone, it waits for this process without end.
        interrupted = interrupted + 1 if _is_interrupted(parent) else 0
        if os.getppid() != parent or interrupted >= 2:
            raise Ended("parent ended")
    print("Inflight was stopped from elsewhere.", flush=True)


def _is_back(home: Home, supervisor: Supervisor) -> bool:
    """Whether another command started supervisord anew; a Problem when it died and left its processes."""
    with exclusive(home.run / "command.lock", "run make up", 900):
        if supervisor.identity() is not None:
            return True
        if not home.supervisor_record.exists():
            return False
        left = processes.end(orphans(home), 15)
        raise Problem(
            f"supervisord died, and the processes that it watched were ended ({len(left)} had to be killed).",
            f"Servers go on serving. See {home.logs / 'supervisord.log'}, then start it again: make up",
        )


def _is_interrupted(pid: int) -> bool:
    """Whether a process is inside its handler of SIGINT: the signal is then among those that it blocks."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    masks = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return bool(int(masks.get("SigBlk", "0"), 16) & (1 << (signal.SIGINT - 1)))
