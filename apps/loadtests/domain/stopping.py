"""When a step of the load is warm, and when it has measured enough."""

from __future__ import annotations

from apps.loadtests.domain.metrics import Window
from apps.loadtests.domain.scenario import Timing
from apps.loadtests.domain.steady import Tick, is_steady

# Warm-up waits this many times its length for an answer of every client.
MOST_WARM_UPS = 4
# Arrivals that a run keeps at most: they are read into memory to be summed up.
MOST_MESSAGES = 4_000_000


class StepClock:
    """Follows one step. Times are seconds since the run began; `reason` says why it ended."""

    def __init__(self, timing: Timing, mode: str, value: float, started: float) -> None:
        self._timing, self._mode, self._started = timing, mode, started
        self._clients = int(value) if mode == "closed" else 1
        self._warm_completed = 0
        self._ticks: list[Tick] = []
        self._completed = 0
        self.begin: float | None = None
        self.end: float | None = None
        self.reason = ""

    @property
    def ended(self) -> bool:
        """Whether the step is over."""
        return self.reason != ""

    @property
    def window(self) -> Window | None:
        """The measured time; None where nothing was measured."""
        if self.begin is None or self.end is None or self.end <= self.begin:
            return None
        return Window(self.begin, self.end)

    def tick(self, tokens: float, completed: int, latency: float | None) -> None:
        """What a second brought."""
        if self.begin is None:
            self._warm_completed += completed
            return
        self._completed += completed
        self._ticks.append(Tick(tokens, completed, latency))

    def look(self, now: float, messages: int) -> None:
        """Decide; call it a few times a second."""
        warm = self._timing.warm_up_seconds
        if self.begin is None:
            answered = self._warm_completed >= self._clients
            if (
                now - self._started >= warm and (answered or warm == 0)
            ) or now - self._started >= MOST_WARM_UPS * warm:
                self.begin = now
            return
        measured = now - self.begin
        enough = measured >= self._timing.seconds and self._completed >= self._timing.requests
        if messages >= MOST_MESSAGES:
            self.stop(now, "records_full")
        elif measured >= self._timing.most_seconds:
            self.stop(now, "most_seconds" if self._timing.until_steady or not enough else "measured")
        elif enough and not self._timing.until_steady:
            self.stop(now, "measured")
        elif enough and is_steady(self._ticks, max(1, int(len(self._ticks) // 5))):
            self.stop(now, "steady")

    def stop(self, now: float, reason: str) -> None:
        """End the step now."""
        self.end, self.reason = now, reason

    def share(self, now: float) -> float:
        """How much of the step is done, 0 to 1, by its least times."""
        warm = self._timing.warm_up_seconds
        total = warm + self._timing.seconds
        done = min(warm, now - self._started) if self.begin is None else warm + now - self.begin
        return min(1.0, done / total)
