"""A thread that waits on pidfds of servers, so that a death wakes the reconcile tick at once."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable

from workers.runtimes import processes
from workers.runtimes.base import Identity


class DeathWatch:
    """Calls `wake` when one of the watched processes ends. The thread starts with the first one."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._watched: dict[Identity, int] = {}
        self._lock = threading.Lock()
        self._reading, self._writing = os.pipe()
        self._thread: threading.Thread | None = None

    def watch(self, identities: list[Identity]) -> None:
        """Watch exactly these processes from now on; one that is gone already is the tick's own business."""
        wanted = set(identities)
        with self._lock:
            for identity in self._watched.keys() - wanted:
                os.close(self._watched.pop(identity))
            for identity in wanted - self._watched.keys():
                with contextlib.suppress(OSError):
                    descriptor = os.pidfd_open(identity.pid)
                    # Looked at after the descriptor is open: it cannot mean a successor of the pid.
                    if processes.is_alive(identity):
                        self._watched[identity] = descriptor
                    else:
                        os.close(descriptor)
            if self._thread is None and self._watched:
                self._thread = threading.Thread(target=self._run, name="death-watch", daemon=True)
                self._thread.start()
        os.write(self._writing, b"x")

    def _run(self) -> None:
        while True:
            poll = select.poll()
            poll.register(self._reading, select.POLLIN)
            with self._lock:
                for descriptor in self._watched.values():
                    poll.register(descriptor, select.POLLIN)
            ready = {descriptor for descriptor, _events in poll.poll()}
            if self._reading in ready:
                os.read(self._reading, 4096)
            with self._lock:
                dead = [identity for identity, descriptor in self._watched.items() if descriptor in ready]
                for identity in dead:
                    os.close(self._watched.pop(identity))
            if dead:
                self._wake()
