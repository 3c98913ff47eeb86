"""Progress of a whole build from its steps' bytes: share done, rate, ETA; written at most twice a second."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from apps.core import clock
from apps.engines.policy import PROGRESS_EVERY_SECONDS
from workers.builders.base import Step

# Weight of the newest rate in the running mean.
SMOOTHING = 0.3

Write = Callable[[float | None, float | None, float | None], object]


class Progress:
    """Adds the steps up by their expected seconds. `write` gets progress (0 to 1), rate (bytes/s) and ETA (s)."""

    def __init__(self, steps: Sequence[Step], write: Write) -> None:
        self._steps, self._write = list(steps), write
        self._total = sum(step.expected_seconds for step in steps) or 1.0
        self._step: Step | None = None
        self._before = self._after = 0.0
        self._began_at = self._written_at = self._seen_at = clock.monotonic()
        self._seen = 0.0
        self._rate: float | None = None

    def begin(self, step: Step) -> None:
        """A step starts."""
        index = self._steps.index(step)
        self._step = step
        self._before = sum(earlier.expected_seconds for earlier in self._steps[:index])
        self._after = sum(later.expected_seconds for later in self._steps[index + 1 :])
        self._began_at = self._seen_at = clock.monotonic()
        self._seen, self._rate = 0.0, None

    def update(self, done: float, total: float) -> None:
        """The running step has done so much of its total."""
        now = clock.monotonic()
        if self._step is None or total <= 0 or now - self._written_at < PROGRESS_EVERY_SECONDS:
            return
        self._written_at = now
        self._measure(done, now)
        share = min(1.0, done / total)
        progress = (self._before + share * self._step.expected_seconds) / self._total
        self._write(progress, self._rate, self._eta(done, total, now))

    def finish(self) -> None:
        """The running step has ended well: its whole share is done. Always written."""
        if self._step is not None:
            self._written_at = clock.monotonic()
            done = self._before + self._step.expected_seconds
            self._write(done / self._total, None, self._after or None)

    def _measure(self, done: float, now: float) -> None:
        passed = now - self._seen_at
        if passed <= 0 or done <= self._seen:
            return
        rate = (done - self._seen) / passed
        self._rate = rate if self._rate is None else SMOOTHING * rate + (1 - SMOOTHING) * self._rate
        self._seen, self._seen_at = done, now

    def _eta(self, done: float, total: float, now: float) -> float | None:
        """Rest of this step by its rate, and later ones by what was expected, corrected by how this one goes."""
        if self._step is None or not self._rate or done <= 0:
            return None
        rest = max(0.0, total - done) / self._rate
        whole = (now - self._began_at) + rest
        pace = whole / self._step.expected_seconds if self._step.expected_seconds > 0 else 1.0
        return rest + self._after * pace
