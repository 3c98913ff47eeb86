"""Child processes that outlive their worker: who they are and how they are ended.

A pid alone may be somebody else's by now. A process is ours when it carries our mark in its environment, which is
unique to each attempt; pid, create time and process group say where to look.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass

import psutil

MARK = "INFLIGHT_ATTEMPT"
# psutil derives create times from the boot time in whole seconds, which a clock adjustment can move by one.
CREATE_TIME_SLACK_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A child as its attempt's row names it. `created` is in seconds since the epoch."""

    pid: int
    created: float
    group: int


def mark_of(node_id: str, kind: str, pk: int, attempt: int) -> str:
    """Value of INFLIGHT_ATTEMPT in the environment of one attempt's processes."""
    return f"{node_id}:{kind}:{pk}:{attempt}"


def identify(pid: int) -> ProcessIdentity | None:
    """Identity of a running process, or None where there is none (a zombie counts as none)."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return ProcessIdentity(pid, process.create_time(), os.getpgid(pid))
    except (psutil.Error, ProcessLookupError):
        return None


def is_same(identity: ProcessIdentity) -> bool:
    """Whether the named process still runs."""
    found = identify(identity.pid)
    return found is not None and abs(found.created - identity.created) <= CREATE_TIME_SLACK_SECONDS


def marked(mark: str) -> list[psutil.Process]:
    """Running processes with this mark, wherever they went; never this process."""
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def end_marked(mark: str, grace_seconds: float) -> list[int]:
    """End all processes with this mark: TERM to their groups, wait, KILL, look again. Returns pids that survived."""
    found = marked(mark)
    if found and grace_seconds > 0:
        _signal(found, signal.SIGTERM)
        psutil.wait_procs(found, timeout=grace_seconds)
        found = marked(mark)
    for _round in range(3):
        if not found:
            return []
        _signal(found, signal.SIGKILL)
        psutil.wait_procs(found, timeout=1.0)
        # A process may have forked between the look and the kill.
        found = marked(mark)
    return [process.pid for process in found]


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    own_group = os.getpgrp()
    groups = set()
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            group = os.getpgid(process.pid)
            if group != own_group:
                groups.add(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
