"""One command at a time in a home."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from deploy.local.errors import Problem


@contextlib.contextmanager
def exclusive(path: Path, doing: str, seconds: float) -> Iterator[None]:
    """Hold the lock file, waiting up to `seconds` for another holder. It is free when its process is gone."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + seconds
        told = False
        while not _try_lock(handle):
            if time.monotonic() >= deadline:
                raise Problem(
                    f"Another command is at work in {path.parent.parent} and did not end in {seconds:.0f} s.",
                    f"Wait for it, then {doing} again.",
                )
            if not told:
                print("Another command is at work in this home: waiting for it.", flush=True)
                told = True
            time.sleep(0.2)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
