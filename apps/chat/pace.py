"""How often one socket is written to while an answer streams."""

from __future__ import annotations

import asyncio
import time

# Seconds between two pieces on the average: 66 a second are more than a screen shows.
PACE_SECONDS = 0.015
# So many may follow each other at once: tokens that come unevenly, as all do, must not wait for an even pace.
BURST = 6


class Pace:
    """Lets BURST pieces through at once and 1 / PACE_SECONDS a second in the long run; asked before each."""

    def __init__(self) -> None:
        self._free_at = time.monotonic()

    def free(self) -> bool:
        """Whether a piece may be written now; it counts as written then."""
        now = time.monotonic()
        if now < self._free_at:
            return False
        self._count(now)
        return True

    async def wait(self) -> None:
        """Return when a piece may be written; it counts as written."""
        left = self._free_at - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)
        self._count(time.monotonic())

    def _count(self, now: float) -> None:
        self._free_at = max(self._free_at, now - BURST * PACE_SECONDS) + PACE_SECONDS
