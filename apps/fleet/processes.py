"""Child processes that may outlive their worker: who they are and how they are ended.

A pid alone may be somebody else's by now. A process is ours when it carries our mark in its environment, which is
unique to each attempt, or when pid and start time are those of the row; then its whole process group is ours too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "INFLIGHT_ATTEMPT"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A child as its attempt's row names it.

    `created` is in seconds since boot: unlike wall time it does not move when the clock is set.
    """

    pid: int
    created: float
    group: int


def mark_of(node_id: str, kind: str, pk: int, attempt: int) -> str:
    """Value of INFLIGHT_ATTEMPT in the environment of one attempt's processes."""
    return f"{node_id}:{kind}:{pk}:{attempt}"


def identify(pid: int) -> ProcessIdentity | None:
    """Identity of a running process, or None where there is none (a zombie counts as none)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # After the name, which may hold anything: state, ppid, group, ..., start time as field 22 of proc(5).
    fields = text[text.rindex(")") + 2 :].split()
    if fields[0] in ("Z", "X"):
        return None
    return ProcessIdentity(pid, int(fields[19]) / TICKS_PER_SECOND, int(fields[2]))


def is_same(identity: ProcessIdentity) -> bool:
    """Whether exactly the named process still runs."""
    found = identify(identity.pid)
    return found is not None and found.created == identity.created


def ours(mark: str, identity: ProcessIdentity | None = None) -> list[psutil.Process]:
    """Running processes of one attempt, never this one: those with its mark, and the named child's whole group.

    A process shows no environment for an instant while it execs; the group finds it then.
    """
    running = {process.pid: process for process in psutil.process_iter() if process.pid != os.getpid()}
    found = {pid for pid in running if _mark_at(pid) == mark}
    if identity is not None and is_same(identity):
        found.add(identity.pid)
    groups = {_group_of(pid) for pid in found} - {None, os.getpgrp()}
    found |= {pid for pid in running if _group_of(pid) in groups}
    return [running[pid] for pid in sorted(found) if identify(pid) is not None]


def end_tree(mark: str, identity: ProcessIdentity | None = None, grace_seconds: float = 2.0) -> list[int]:
    """End all processes of an attempt: TERM to their groups, wait, KILL, look again. Returns pids that survived."""
    found = ours(mark, identity)
    if found and grace_seconds > 0:
        _signal(found, signal.SIGTERM)
        _wait_gone(found, grace_seconds)
        found = ours(mark, identity)
    for _round in range(3):
        if not found:
            break
        _signal(found, signal.SIGKILL)
        _wait_gone(found, 1.0)
        # A process may have forked between the look and the kill.
        found = ours(mark, identity)
    return [process.pid for process in found]


def _mark_at(pid: int) -> str | None:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    wanted = MARK.encode() + b"="
    return next(
        (os.fsdecode(item[len(wanted) :]) for item in raw.split(b"\0") if item.startswith(wanted)), None
    )


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _wait_gone(processes: Iterable[psutil.Process], seconds: float) -> None:
    """Wait until none runs. Not psutil's own wait: it would reap children of ours and lose their exit codes."""
    deadline = time.monotonic() + seconds
    while any(identify(process.pid) is not None for process in processes) and time.monotonic() < deadline:
        time.sleep(0.02)


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for group in {_group_of(process.pid) for process in processes}:
        if group is not None and group != os.getpgrp():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
