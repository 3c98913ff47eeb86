"""Outliers: an upstream that fails again and again gets no requests for a while, then one to try."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

# Failures in a row that put an upstream aside; one suffices where nothing listens at its address.
FAILURES = 3
FIRST_SECONDS = 1.0
LONGEST_SECONDS = 30.0
# Waits double with each time in a row; after so long without a failure the count begins anew.
FORGIVEN_SECONDS = 120.0


@dataclass(slots=True)
class _State:
    failures: int = 0
    times: int = 0
    until: float = 0.0
    last_failure: float = 0.0


class Health:
    """Failures by upstream uid. One event loop, no locks."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._states: dict[str, _State] = {}
        self._clock = clock

    def usable(self, uid: str) -> bool:
        """Whether it may be given requests now. One whose wait is over may: the next failure puts it aside again."""
        state = self._states.get(uid)
        return state is None or state.until <= self._clock()

    def succeeded(self, uid: str) -> None:
        """It answered."""
        state = self._states.get(uid)
        if state is not None:
            state.failures, state.times, state.until = 0, 0, 0.0

    def failed(self, uid: str, at_once: bool) -> bool:
        """It failed through its own fault; `at_once`: nothing listens there. True when this puts it aside."""
        now = self._clock()
        state = self._states.setdefault(uid, _State())
        if now - state.last_failure > FORGIVEN_SECONDS:
            state.failures, state.times = 0, 0
        state.failures += 1
        state.last_failure = now
        # One that was aside before is not given three more requests to fail.
        if not at_once and state.failures < FAILURES and not state.times:
            return False
        if state.until > now:
            return False
        state.until = now + min(FIRST_SECONDS * 2**state.times, LONGEST_SECONDS)
        state.times = min(state.times + 1, 16)
        return True

    def returned(self) -> list[str]:
        """Uids whose wait just ended; each is told once."""
        now = self._clock()
        found = [uid for uid, state in self._states.items() if 0.0 < state.until <= now]
        for uid in found:
            self._states[uid].until = 0.0
        return found

    def keep(self, uids: set[str]) -> None:
        """Forget every other upstream."""
        for uid in set(self._states) - uids:
            del self._states[uid]
