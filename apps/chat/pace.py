"""How often one socket is written to while an answer streams."""

from __future__ import annotations

import asyncio
import time

# Seconds between two pieces on the average: 66 a second are more than a screen shows.
PACE_SECONDS = 0.015
# So many may follow each other at once: tokens that come unevenly, as all do, must not wait for an even pace.
BURST = 6


class Pace:
    """Lets BURST pieces through at once and 1 / PACE_SECONDS a second in the long run; `wait` after each."""

    def __init__(self) -> None:
        self._free_at = time.monotonic()

    async def wait(self) -> None:
        """Return when the next piece may be written."""
        now = time.monotonic()
        self._free_at = max(self._free_at, now - BURST * PACE_SECONDS) + PACE_SECONDS
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)
