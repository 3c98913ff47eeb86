"""When servers are asked: one grid of moments for readers and writer, wider apart the more servers there are."""

from __future__ import annotations

import math
import time

# Seconds between two readings of a server where there are few.
PERIOD = 1.0
# Servers are asked within this part of each period; the writer follows at WRITE_OFFSET of it. What lies between them
# adds to the time from an event to the page; an answer that comes later is in the next sample.
SPREAD = 0.2
WRITE_OFFSET = 0.3
# Of a period longer than PERIOD: a thousand answers take a while to be read.
WIDE_SPREAD, WIDE_WRITE_OFFSET = 0.5, 0.6
# A single answer may take this part of a period, but not longer than MOST_SECONDS.
PATIENCE = 0.9
LEAST_SECONDS, MOST_SECONDS = 0.9, 5.0
# From so many servers on, a period is so many times PERIOD: the process stays below a tenth of a core.
_WIDER = ((400, 10), (120, 5), (25, 2))


def period(servers: int) -> float:
    """Seconds between two readings of each of so many servers."""
    return PERIOD * next((factor for least, factor in _WIDER if servers >= least), 1)


def spread(length: float) -> float:
    """The part of a period of so many seconds within which servers are asked."""
    return SPREAD if length <= PERIOD else WIDE_SPREAD


def write_offset(length: float) -> float:
    """The part of a period of so many seconds after which its samples are written."""
    return WRITE_OFFSET if length <= PERIOD else WIDE_WRITE_OFFSET


def patience(length: float) -> float:
    """Seconds that a server's answer may take in a period of so many."""
    return min(max(PATIENCE * length, LEAST_SECONDS), MOST_SECONDS)


def until_tick(offset: float, length: float, pause: float = 0.0) -> float:
    """Seconds until the next moment `offset` (a part) into a period; a longer `pause` passes some over.

    Reader and writer keep to one grid: two loops that merely wait a second each would cross now and then, and each
    crossing would cost a sample.
    """
    now = time.monotonic()
    at = offset * length
    ticks = math.floor((now - at) / length) + max(1, round(pause / length))
    return max(0.0, ticks * length + at - now)
