"""How a pool process learns that its worker stops: a byte of memory that both share since the fork."""

from __future__ import annotations

import mmap

# Made when the worker imports its tasks, so before the pool forks. Anonymous and shared: one page for both.
_page = mmap.mmap(-1, 1)


def announce_stop() -> None:
    """Called in the worker's main process: what the pool runs should end now."""
    _page[0] = 1


def stopping() -> bool:
    """Whether the worker that this process belongs to is going away."""
    return _page[0] == 1
