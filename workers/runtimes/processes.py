"""Finding, proving and ending server processes through /proc. Never by name, never by pid alone."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from apps.fleet.processes import TICKS_PER_SECOND, identify
from workers.runtimes.base import Identity

UID_VARIABLE = "INFLIGHT_INSTANCE_UID"
PROC = Path("/proc")


def create_time(pid: int) -> float | None:
    """When the process began, seconds since boot; null where there is none or only its zombie.

    Since boot and not since the epoch: the kernel's figure never changes, while the boot time that turns it into
    wall time moves with every correction of the clock.
    """
    found = identify(pid)
    return found.created if found is not None else None


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the state on; the name before them may hold anything."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def environment_of(pid: int) -> dict[str, str] | None:
    """A process's environment; null where it cannot be read, empty for an instant while it execs."""
    try:
        raw = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    pairs = (part.partition(b"=") for part in raw.split(b"\0") if b"=" in part)
    return {os.fsdecode(key): os.fsdecode(value) for key, _equals, value in pairs}


def uid_of(pid: int) -> str | None:
    """The instance id in a process's environment, null where it has none or may not be read."""
    return (environment_of(pid) or {}).get(UID_VARIABLE)


def is_alive(identity: Identity) -> bool:
    """Whether exactly this process runs. A zombie does not."""
    if create_time(identity.pid) != identity.created:
        return False
    # Empty while it execs and unreadable while it exits; pid and create time have agreed already.
    environment = environment_of(identity.pid) or {}
    return environment.get(UID_VARIABLE, identity.uid) == identity.uid


def reap(pid: int) -> int | None:
    """Exit code of a child of ours that ended (negative: signal); null where it runs or is not our child."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except (ChildProcessError, OSError):
        return None
    return os.waitstatus_to_exitcode(status) if done == pid else None


def group_members(identity: Identity) -> list[int]:
    """Processes that the server started and that still run, itself included.

    They carry its instance id and began after it: a stub whose server was killed is found by that, and a rank that
    mpirun put into a process group of its own.
    """
    first = identity.created - 1.0
    return [
        pid
        for pid in _pids()
        if (fields := _stat(pid)) is not None
        and fields[0] not in ("Z", "X")
        and int(fields[19]) / TICKS_PER_SECOND >= first
        and uid_of(pid) == identity.uid
    ]


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal (SIGSTOP, SIGTSTP); one that a debugger holds is not."""
    fields = _stat(pid)
    return fields is not None and fields[0] == "T"


def count_of(name: str, uid: str) -> int:
    """How many processes whose short name begins so run with an instance's id."""
    return sum(1 for pid in _pids() if _name(pid).startswith(name) and uid_of(pid) == uid)


def _name(pid: int) -> str:
    try:
        return (PROC / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def children_of(pid: int) -> list[tuple[int, str, bool]]:
    """(pid, short name, whether it runs) of a process's direct children; a zombie does not run."""
    found = []
    for child in _pids():
        fields = _stat(child)
        if fields is not None and int(fields[1]) == pid:
            name = (
                (PROC / str(child) / "comm").read_text(errors="replace").strip() if fields[0] != "Z" else ""
            )
            found.append((child, name, fields[0] not in ("Z", "X")))
    return found


def marked(variables: dict[str, str]) -> dict[int, str]:
    """{pid: instance id} of processes whose environment holds these variables and an instance id."""
    found = {}
    for pid in _pids():
        environment = environment_of(pid) or {}
        if UID_VARIABLE in environment and variables.items() <= environment.items():
            found[pid] = environment[UID_VARIABLE]
    return found


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir(PROC) if entry.isdecimal()]


def terminate(identity: Identity) -> None:
    """Ask the server itself to exit; its children follow it."""
    if is_alive(identity):
        with contextlib.suppress(ProcessLookupError):
            os.kill(identity.pid, signal.SIGTERM)


def kill_group(identity: Identity) -> None:
    """Kill the server and all that it started."""
    members = group_members(identity)
    if members:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(identity.pid, signal.SIGKILL)
    for pid in members:
        # Gone with the group, or in one of its own. Looked at again: the number may be somebody else's by now.
        if uid_of(pid) == identity.uid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def kill_one(identity: Identity) -> None:
    """Kill one process, if it is still this one."""
    if is_alive(identity):
        with contextlib.suppress(ProcessLookupError):
            os.kill(identity.pid, signal.SIGKILL)


def wait_gone(identity: Identity, seconds: float) -> bool:
    """Wait until nothing of the server is left; for commands and tests, never for a tick."""
    deadline = time.monotonic() + seconds
    while group_members(identity):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True
