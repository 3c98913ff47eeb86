"""Numbered steps with elapsed time, and a moving share with the time left for whatever takes longer."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

# A redrawn line on a terminal, a line now and then in a log.
TERMINAL_SECONDS = 0.2
LOG_SECONDS = 5.0
# Below this share the time left is a guess that jumps about.
LEAST_SHARE = 0.05


def remaining(elapsed: float, share: float) -> float | None:
    """Seconds left at the pace so far, or None while that cannot be said."""
    if not LEAST_SHARE <= share <= 1 or elapsed <= 0:
        return None
    return elapsed * (1 - share) / share


def duration(seconds: float) -> str:
    """Seconds in words: `8 s`, `2 min 05 s`; tenths below ten seconds."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


class Step:
    """One numbered step: `update` while it runs; `note` says at its end what was done."""

    def __init__(self, label: str, out: TextIO, clock: Callable[[], float]) -> None:
        self.label = label
        self._out = out
        self._clock = clock
        self._began = clock()
        self._shown = self._began
        self._terminal = out.isatty()
        self._open_line = False
        self._note = ""

    @property
    def elapsed(self) -> float:
        return self._clock() - self._began

    def note(self, text: str) -> None:
        """What was done, for the closing line."""
        self._note = text

    def update(self, share: float | None, detail: str = "") -> None:
        """Show how far it is: `share` from 0 to 1, or None where only the passing time is known."""
        now = self._clock()
        if now - self._shown < (TERMINAL_SECONDS if self._terminal else LOG_SECONDS):
            return
        self._shown = now
        words = []
        if share is not None:
            words.append(f"{min(max(share, 0.0), 1.0):.0%}")
            left = remaining(self.elapsed, share)
            if left is not None:
                words.append(f"about {duration(left)} left")
        if detail:
            words.append(detail)
        self._line(f"{self.label}: {', '.join(words) or duration(self.elapsed)}")

    def say(self, text: str) -> None:
        """Print a whole line under the step, e.g. one that a child process wrote."""
        self._clear()
        print(f"      {text}", file=self._out, flush=True)

    def close(self, failed: bool) -> None:
        self._clear()
        verb = "failed after" if failed else "done in"
        note = f"{self._note}, " if self._note and not failed else ""
        print(f"{self.label}: {note}{verb} {duration(self.elapsed)}", file=self._out, flush=True)

    def _line(self, text: str) -> None:
        if self._terminal:
            self._out.write(f"\r\x1b[2K{text[:200]}")
            self._out.flush()
            self._open_line = True
        else:
            print(text, file=self._out, flush=True)

    def _clear(self) -> None:
        if self._open_line:
            self._out.write("\r\x1b[2K")
            self._open_line = False


class Steps:
    """Counts the steps of one command and prints them."""

    def __init__(
        self, total: int, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._total = total
        self._number = 0
        self._out = out or sys.stdout
        self._clock = clock
        self.began = clock()

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Run one step; its closing line says how long it took, and whether it failed."""
        self._number += 1
        label = f"[{self._number}/{self._total}] {title}"
        step = Step(label, self._out, self._clock)
        if step._terminal:
            step._line(label)
        try:
            yield step
        except BaseException:
            step.close(failed=True)
            raise
        step.close(failed=False)

    @property
    def elapsed(self) -> float:
        return self._clock() - self.began
