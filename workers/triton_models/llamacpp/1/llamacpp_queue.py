"""The waiting queue of the model: first come, first served, counted, and every entry can be taken out again.

Requests wait here and not inside the engine, so that a waiting one can be cancelled at once and its waiting time is
known.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from llamacpp_errors import QueueFull

Item = TypeVar("Item")


class WaitingQueue(Generic[Item]):
    """FIFO by key, safe from any thread. `size` is the most that may wait; callers that are served at once pass."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: OrderedDict[int, Item] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, key: int, item: Item, places_free: int = 0) -> None:
        """Append. `places_free` slots stand ready to take from the queue at once. Raises QueueFull."""
        with self._lock:
            if len(self._items) >= self._size + places_free:
                raise QueueFull(self._size)
            self._items[key] = item

    def take(self) -> Item | None:
        """Remove and return the one that waits longest; None when nobody waits."""
        with self._lock:
            return self._items.popitem(last=False)[1] if self._items else None

    def remove(self, key: int) -> Item | None:
        """Take one out of turn, as its caller cancelled; None if it does not wait any more."""
        with self._lock:
            return self._items.pop(key, None)

    def drain(self) -> list[Item]:
        """Remove and return all."""
        with self._lock:
            items = list(self._items.values())
            self._items.clear()
            return items
