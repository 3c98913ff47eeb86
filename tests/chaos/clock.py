"""A wall clock that can be moved under a running installation: clock.c, compiled and loaded into its processes.

Servers do not load it: their environment is composed of named variables alone.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

from tests.chaos.outcome import CannotBeShown

SOURCE = Path(__file__).with_name("clock.c")


class Clock:
    """The seconds by which it is moved, in a file that they share. Raises CannotBeShown without a compiler."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise CannotBeShown("there is no C compiler to make the library that moves the clock")
        self._library, self._seconds = folder / "clock.so", folder / "clock"
        done = subprocess.run(
            [compiler, "-shared", "-fPIC", "-O2", "-o", str(self._library), str(SOURCE), "-ldl"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise CannotBeShown(f"the C compiler failed: {done.stderr.strip()[-200:]}")
        self.move(0)

    def move(self, seconds: int) -> None:
        """From now on the processes read a wall clock that is so far ahead of the host's, or behind it."""
        # In place: they have this file mapped.
        with self._seconds.open("r+b" if self._seconds.exists() else "wb") as shared:
            shared.write(struct.pack("=q", seconds))

    def environment(self) -> dict[str, str]:
        """What loads it."""
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._seconds)}
