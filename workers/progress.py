"""Progress of a whole build from its steps: share done, rate, ETA; written at most twice a second."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from apps.core import clock
from apps.engines.policy import PROGRESS_EVERY_SECONDS
from workers.builders.base import Step

# Weight of the newest rate in the running mean.
SMOOTHING = 0.3
# A step that is past its usual time and says nothing is shown as nearly done, and its rest as this share of it.
OVERDUE_SHARE = 0.1
SLOWEST_PACE = 1.5

Write = Callable[[float | None, float | None, float | None], object]


class Progress:
    """Adds the steps up by their expected seconds. `write` gets progress (0 to 1), rate (bytes/s) and ETA (s).

    `usual` is what steps of builds like this one took, in seconds: where a step is in it, its ETA is that time less
    what has passed, at the pace of the steps before it; else it comes from the step's own rate.
    """

    def __init__(self, steps: Sequence[Step], write: Write, usual: Mapping[str, float] | None = None) -> None:
        self._steps, self._write, self._usual = list(steps), write, dict(usual or {})
        self._total = sum(step.expected_seconds for step in steps) or 1.0
        self._step: Step | None = None
        self._before = self._after = 0.0
        self._began_at = self._written_at = self._seen_at = clock.monotonic()
        self._seen = 0.0
        self._rate: float | None = None
        # Of the steps that have ended here: what they took, and what they usually take.
        self._took = self._usually = 0.0

    def begin(self, step: Step) -> None:
        """A step starts."""
        index = self._steps.index(step)
        self._step = step
        self._before = sum(earlier.expected_seconds for earlier in self._steps[:index])
        self._after = sum(later.expected_seconds for later in self._steps[index + 1 :])
        self._began_at = self._seen_at = clock.monotonic()
        self._seen, self._rate = 0.0, None

    def skip(self, step: Step) -> None:
        """A step whose work was done before: it counts neither as done nor as to come."""
        self._steps.remove(step)
        self._total = sum(left.expected_seconds for left in self._steps) or 1.0

    def update(self, done: float, total: float) -> None:
        """The running step has done so much of its total; 0 of 0 where it says nothing."""
        now = clock.monotonic()
        step = self._step
        if step is None or now - self._written_at < PROGRESS_EVERY_SECONDS:
            return
        usual = self._usual.get(step.name)
        if total <= 0 and usual is None:
            return
        self._written_at = now
        if total > 0:
            self._measure(done, now)
            share = min(1.0, done / total)
        else:
            share = min(1.0 - OVERDUE_SHARE, (now - self._began_at) / max(usual or 0.0, 1e-9))
        progress = (self._before + share * step.expected_seconds) / self._total
        eta = self._eta(done, total, now) if usual is None else self._usual_rest(usual, share, now)
        # A step that is read by its log counts no bytes.
        self._write(progress, self._rate if step.reads_log is None else None, eta)

    def finish(self) -> None:
        """The running step has ended well: its whole share is done. Always written."""
        if self._step is not None:
            now = self._written_at = clock.monotonic()
            usual = self._usual.get(self._step.name)
            if usual is not None:
                self._took, self._usually = self._took + now - self._began_at, self._usually + usual
            done = self._before + self._step.expected_seconds
            self._write(done / self._total, None, self._after * self._pace() or None)

    def _pace(self) -> float:
        """How this build goes against those before it; bounded, as a short step says little about a long one."""
        if self._usually <= 0:
            return 1.0
        return min(SLOWEST_PACE, max(1 / SLOWEST_PACE, self._took / self._usually))

    def _measure(self, done: float, now: float) -> None:
        passed = now - self._seen_at
        if passed <= 0 or done <= self._seen:
            return
        rate = (done - self._seen) / passed
        self._rate = rate if self._rate is None else SMOOTHING * rate + (1 - SMOOTHING) * self._rate
        self._seen, self._seen_at = done, now

    def _usual_rest(self, usual: float, share: float, now: float) -> float:
        """Rest of this step, by its usual time and once that is over by its own share, and of those to come."""
        pace = self._pace()
        passed, due = now - self._began_at, usual * pace
        overdue = min(usual * OVERDUE_SHARE, passed * (1 - share) / max(share, OVERDUE_SHARE))
        return (due - passed if passed < due else overdue) + self._after * pace

    def _eta(self, done: float, total: float, now: float) -> float | None:
        """Rest of this step by its rate, and later ones by what was expected, corrected by how this one goes."""
        if self._step is None or not self._rate or done <= 0:
            return None
        rest = max(0.0, total - done) / self._rate
        whole = (now - self._began_at) + rest
        pace = whole / self._step.expected_seconds if self._step.expected_seconds > 0 else 1.0
        return rest + self._after * pace
