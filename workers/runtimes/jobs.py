"""Work of a tick that may take longer than the tick: one daemon thread each, its result read by a later tick.

No job touches the database. A worker that dies loses its jobs; each of them is asked for again from what the
server itself says.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class _Job:
    done: threading.Event = field(default_factory=threading.Event)
    value: Any = None
    error: BaseException | None = None


class Jobs:
    """Jobs by key; a key that runs is not started twice."""

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        self._jobs: dict[Hashable, _Job] = {}
        # Asks for a tick now.
        self.wake = wake

    def start(self, key: Hashable, work: Callable[[], Any], *, wakes: bool = False) -> None:
        """Start `work` in a thread unless a job of this key runs or waits to be read.

        `wakes`: its end is worth a tick of its own.
        """
        if key in self._jobs:
            return
        job = self._jobs[key] = _Job()

        def run() -> None:
            try:
                job.value = work()
            except BaseException as error:
                # The tick that reads the result raises it.
                job.error = error
            finally:
                job.done.set()
                if wakes and self._jobs.get(key) is job:
                    self.wake()

        threading.Thread(target=run, name=f"job-{key}", daemon=True).start()

    def knows(self, key: Hashable) -> bool:
        """Whether a job of this key runs or waits to be read."""
        return key in self._jobs

    def take(self, key: Hashable, default: Any = None) -> Any:
        """The finished job's value, once; `default` while it runs or where there is none. Raises its exception."""
        job = self._jobs.get(key)
        if job is None or not job.done.is_set():
            return default
        del self._jobs[key]
        if job.error is not None:
            raise job.error
        return job.value

    def wait(self, keys: Iterable[Hashable], seconds: float) -> None:
        """Wait until these jobs are done, at most `seconds` for all of them together."""
        deadline = time.monotonic() + seconds
        for key in keys:
            job = self._jobs.get(key)
            if job is not None:
                job.done.wait(max(0.0, deadline - time.monotonic()))

    def forget(self, wanted: Callable[[Hashable], bool]) -> None:
        """Drop results nobody will read; threads that still run end by their own timeouts."""
        for key in [key for key in self._jobs if wanted(key)]:
            del self._jobs[key]
