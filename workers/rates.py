"""How fast bytes come: a running mean that follows a change within seconds, and what it says about the rest."""

from __future__ import annotations

import math

# After this long an old rate weighs 1/e.
MEMORY_SECONDS = 10.0


class Rate:
    """Bytes a second; None before two looks, and 0 is never said to be a time."""

    def __init__(self) -> None:
        self.per_second: float | None = None
        self._done: float | None = None
        self._at = 0.0

    def seen(self, done: float, now: float) -> None:
        """So many bytes are done at this moment (monotonic seconds). Bytes taken back begin the mean anew."""
        if self._done is None or done < self._done:
            self._done, self._at, self.per_second = done, now, None
            return
        passed = now - self._at
        if passed < 0.2:
            return
        rate = (done - self._done) / passed
        weight = 1 - math.exp(-passed / MEMORY_SECONDS)
        self.per_second = (
            rate if self.per_second is None else self.per_second + weight * (rate - self.per_second)
        )
        self._done, self._at = done, now

    def seconds_for(self, rest: float) -> float | None:
        """How long the rest takes at this rate; None where nothing comes."""
        return max(0.0, rest) / self.per_second if self.per_second else None
