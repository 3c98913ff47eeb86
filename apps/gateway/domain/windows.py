"""Rate limits over the last 60 seconds, as plain Python: what access/limits.lua does in Redis, for one process.

Time is cut into whole seconds; a request counts from the second in which it was admitted until 61 of them have begun,
so that no 60 seconds ever see more than the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

LimitWord = Literal["requests_per_minute", "tokens_per_minute", "concurrent_requests"]
WINDOW_SECONDS = 60
# How long a request at once counts that nobody gives back or renews: its process was killed.
LEASE_SECONDS = 15.0
# What is told where only the end of another request makes room.
CONCURRENCY_WAIT = 1.0


@dataclass(frozen=True, slots=True)
class Scope:
    """One thing with limits: `name` is unique among keys (`k12`) and routes (`r:demo`); None: no limit."""

    name: str
    requests: int | None = None
    tokens: int | None = None
    concurrent: int | None = None

    def share(self, processes: int) -> Scope:
        """What one of several processes may use where they cannot ask each other; at least 1 of each."""
        if processes <= 1:
            return self
        return Scope(
            self.name,
            _part(self.requests, processes),
            _part(self.tokens, processes),
            _part(self.concurrent, processes),
        )


def _part(limit: int | None, processes: int) -> int | None:
    return None if limit is None else max(1, limit // processes)


@dataclass(frozen=True, slots=True)
class Ask:
    """A request that wants in. `tokens` is the most it will use, prompt and answer; `member` names it uniquely."""

    member: str
    tokens: int
    scopes: tuple[Scope, ...]


@dataclass(frozen=True, slots=True)
class Admitted:
    """It counts from `second` on. What is left of the tightest limits; None where there is none."""

    second: int
    requests_left: int | None = None
    tokens_left: int | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """Nothing was counted. `most` is the limit of scope number `scope`; room is made in `wait_seconds`."""

    scope: int
    limit: LimitWord
    most: int
    wait_seconds: float


def reserved(tokens: int, scope: Scope) -> int:
    """Tokens set aside in a scope: never more than its whole limit, or the request could never run."""
    return tokens if scope.tokens is None else min(tokens, scope.tokens)


@dataclass(slots=True)
class _Counted:
    """What one scope has counted: per second, and the requests that run with the time at which they lapse."""

    requests: dict[int, int] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)


class LocalLimits:
    """Counters of this process. `now` gives seconds; any clock that does not go back."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._counted: dict[str, _Counted] = {}

    def admit(self, ask: Ask) -> Admitted | Denied:
        """Count the request in all its scopes, or in none and say why."""
        now = self._now()
        left: tuple[list[int], list[int]] = ([], [])
        for index, scope in enumerate(ask.scopes):
            denied = self._look(index, scope, ask.tokens, now, left)
            if denied is not None:
                return denied
        second = int(now)
        for scope in ask.scopes:
            counted = self._counted.setdefault(scope.name, _Counted())
            if scope.requests is not None:
                counted.requests[second] = counted.requests.get(second, 0) + 1
            if scope.tokens is not None:
                counted.tokens[second] = counted.tokens.get(second, 0) + reserved(ask.tokens, scope)
            if scope.concurrent is not None:
                counted.running[ask.member] = now + LEASE_SECONDS
        return Admitted(second, min(left[0], default=None), min(left[1], default=None))

    def _look(
        self, index: int, scope: Scope, tokens: int, now: float, left: tuple[list[int], list[int]]
    ) -> Denied | None:
        counted = self._counted.setdefault(scope.name, _Counted())
        rates: tuple[tuple[LimitWord, int | None, dict[int, int], int, list[int]], ...] = (
            ("requests_per_minute", scope.requests, counted.requests, 1, left[0]),
            ("tokens_per_minute", scope.tokens, counted.tokens, reserved(tokens, scope), left[1]),
        )
        for word, most, steps, need, rest in rates:
            if most is None:
                continue
            forget(steps, now)
            wait = wait_for(steps, most, need, now)
            if wait > 0:
                return Denied(index, word, most, wait)
            rest.append(most - sum(steps.values()) - need)
        if scope.concurrent is not None:
            counted.running = {name: until for name, until in counted.running.items() if until > now}
            if len(counted.running) >= scope.concurrent:
                return Denied(index, "concurrent_requests", scope.concurrent, CONCURRENCY_WAIT)
        return None

    def release(self, ask: Ask, admitted: Admitted, tokens: int, counts: bool = True) -> None:
        """End a request: `tokens` is what it really used; `counts` False takes the request itself back too."""
        for scope in ask.scopes:
            counted = self._counted.get(scope.name)
            if counted is None:
                continue
            counted.running.pop(ask.member, None)
            if admitted.second in counted.tokens:
                counted.tokens[admitted.second] += tokens - reserved(ask.tokens, scope)
            if not counts and counted.requests.get(admitted.second, 0) > 0:
                counted.requests[admitted.second] -= 1

    def renew(self, ask: Ask) -> None:
        """The request still runs."""
        for scope in ask.scopes:
            counted = self._counted.get(scope.name)
            if counted is not None and scope.concurrent is not None:
                counted.running[ask.member] = self._now() + LEASE_SECONDS


def forget(steps: dict[int, int], now: float) -> None:
    """Drop seconds that no longer count."""
    for second in [second for second in steps if second < int(now) - WINDOW_SECONDS]:
        del steps[second]


def wait_for(steps: dict[int, int], most: int, need: int, now: float) -> float:
    """Seconds until `need` more fit under `most`; 0 where they fit now. `need` is at most `most`."""
    over = sum(steps.values()) + need - most
    if over <= 0:
        return 0.0
    for second in sorted(steps):
        over -= steps[second]
        if over <= 0:
            return second + WINDOW_SECONDS + 1 - now
    return float(WINDOW_SECONDS + 1)
