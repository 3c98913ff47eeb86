"""Who a process is: its pid, its start time and this boot. A pid alone may be somebody else's by now."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
# In the environment of supervisord and of all that it starts: the home they belong to.
MARKER = "INFLIGHT_SUPERVISED"


@dataclass(frozen=True, slots=True)
class Identity:
    """One process of one boot. `started` is in clock ticks since boot, as the kernel keeps it."""

    pid: int
    started: int
    boot: str

    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        return identify(self.pid) == self

    def send(self, number: signal.Signals) -> bool:
        """Signal the process if it is still this one; False when it is gone."""
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def boot_id() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def identify(pid: int) -> Identity | None:
    """Identity of a running process, or None where there is none or only its zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] == "Z":
        return None
    return Identity(pid, int(fields[19]), boot_id())


def session_of(pid: int) -> int | None:
    """Session id of a process, or None where there is none."""
    fields = _stat(pid)
    return int(fields[3]) if fields else None


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the state on; the name before them may hold anything, parentheses too."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return text[text.rindex(")") + 2 :].split()


def environment_of(pid: int) -> dict[str, str]:
    """Environment a process was started with; empty where it cannot be read."""
    try:
        raw = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (part.split(b"=", 1) for part in raw.split(b"\0") if b"=" in part)
    return {os.fsdecode(key): os.fsdecode(value) for key, value in pairs}


def command_of(pid: int) -> str:
    """Command line of a process, for people to read; empty where it cannot be read."""
    try:
        return os.fsdecode((PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").strip())
    except OSError:
        return ""


def marked(home: Path) -> list[Identity]:
    """Processes that carry the mark of this home, or that such ones started; never this one.

    A program that writes its title over its environment (redis does) cannot be found this way.
    """
    return _others(lambda pid: environment_of(pid).get(MARKER) == str(home))


def in_session(session: int) -> list[Identity]:
    """Processes of one session; never this one."""
    return _others(lambda pid: session_of(pid) == session)


def _others(wanted: Callable[[int], bool]) -> list[Identity]:
    pids = [int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal()]
    found = (identify(pid) for pid in pids if pid != os.getpid() and wanted(pid))
    return [identity for identity in found if identity is not None]


def end(identities: Iterable[Identity], grace: float) -> list[Identity]:
    """Ask processes to end, wait up to `grace` seconds, kill those left; returns those that were killed."""
    waiting = [identity for identity in identities if identity.send(signal.SIGTERM)]
    waiting = wait_gone(waiting, grace)
    for identity in waiting:
        identity.send(signal.SIGKILL)
    wait_gone(waiting, 5.0)
    return waiting


def wait_gone(identities: Iterable[Identity], seconds: float) -> list[Identity]:
    """Wait until the processes are gone; returns those still there when the time is up."""
    deadline = time.monotonic() + seconds
    left = [identity for identity in identities if identity.alive()]
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = [identity for identity in left if identity.alive()]
    return left
