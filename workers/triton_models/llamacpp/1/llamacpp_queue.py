"""The waiting queue of the model: by class, then by arrival; counted, and every entry can be taken out again.

Requests wait here and not inside the engine, so that a waiting one can be cancelled at once and its waiting time is
known. A more urgent class goes first, but a class that waits is passed over only so many times in a row: what is
least urgent still moves, however many urgent requests come.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from llamacpp_contract import DEFAULT_PRIORITY, PRIORITY_LEVELS
from llamacpp_errors import QueueFull

Item = TypeVar("Item")
# How often a waiting class is passed over until a turn is its own: 8 times for level 2, 16 for level 3, and so on.
# The gateway's queue gives the same shares (apps/gateway/domain/fair_queue.py).
PASSED_AT_MOST = {level: 8 << level - 2 for level in range(2, PRIORITY_LEVELS + 1)}


class WaitingQueue(Generic[Item]):
    """By key, safe from any thread. `size` is the most that may wait; callers that are served at once pass."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lines: dict[int, OrderedDict[int, Item]] = {
            level: OrderedDict() for level in range(1, PRIORITY_LEVELS + 1)
        }
        self._passed = dict.fromkeys(self._lines, 0)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def put(self, key: int, item: Item, places_free: int = 0, level: int = DEFAULT_PRIORITY) -> None:
        """Append to its class's line; level 1 is the most urgent.

        `places_free` slots stand ready to take from the queue at once. Raises QueueFull.
        """
        with self._lock:
            if len(self) >= self._size + places_free:
                raise QueueFull(self._size)
            self._lines[level][key] = item

    def take(self) -> Item | None:
        """Remove and return the one whose turn it is; None when nobody waits."""
        with self._lock:
            level = self._next()
            return None if level is None else self._lines[level].popitem(last=False)[1]

    def _next(self) -> int | None:
        """The class whose turn it is; what waits below it is counted as passed over."""
        waiting = [level for level, line in self._lines.items() if line]
        if not waiting:
            return None
        overdue = [
            level
            for level, most in PASSED_AT_MOST.items()
            if level in waiting and self._passed[level] >= most
        ]
        chosen = overdue[-1] if overdue else waiting[0]
        for level in self._lines:
            if level == chosen or level not in waiting:
                self._passed[level] = 0
            elif level > chosen:
                self._passed[level] += 1
        return chosen

    def remove(self, key: int) -> Item | None:
        """Take one out of turn, as its caller cancelled; None if it does not wait any more."""
        with self._lock:
            found = (line.pop(key) for line in self._lines.values() if key in line)
            return next(found, None)

    def drain(self) -> list[Item]:
        """Remove and return all, the most urgent first."""
        with self._lock:
            items = [item for line in self._lines.values() for item in line.values()]
            for line in self._lines.values():
                line.clear()
            return items
