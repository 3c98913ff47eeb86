"""Admission: limits of key and route, then a fair, bounded queue for the slots of the route.

    async with await admission.admit(key, route, prompt_tokens=12, max_tokens=256, ...) as grant:
        ...                                 # a slot is held here
        grant.settle(12, 40)                # what was really used

Everything is in memory but the counters of the limits (limits.py). A route's slots are granted by this process alone:
where several processes serve one route, `capacity` gives each its part.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from django.utils.translation import gettext as _

from apps.gateway.access.limits import SharedLimits, Taken
from apps.gateway.access.refusals import Refused
from apps.gateway.domain.facts import KeyFacts, Limits, Priority, Route
from apps.gateway.domain.fair_queue import FairQueue, Waiting
from apps.gateway.domain.windows import Ask, Denied, Scope

# Weight of the newest request in the mean time for which a slot is held, and that mean before the first ended.
_NEWEST = 0.1
_FIRST_HOLD = 2.0
MOST_RETRY_SECONDS = 60.0


@dataclass(slots=True)
class _RouteState:
    """One route in this process: who waits, how many slots are granted, for how long a slot is held."""

    name: str
    queue: FairQueue = field(default_factory=FairQueue)
    futures: dict[Waiting, asyncio.Future[None]] = field(default_factory=dict)
    granted: int = 0
    hold_seconds: float = _FIRST_HOLD


class Grant:
    """One granted slot. Leave the block, or call `release`, to give it back.

    `queue_seconds` is how long it waited. `requests_left` and `tokens_left` are what the tightest limits still allow
    this minute, None where there is none. Without `settle` the request counts as having used nothing.
    """

    def __init__(
        self,
        admission: Admission,
        state: _RouteState,
        waiting: Waiting,
        taken: Taken | None,
        queue_seconds: float,
    ) -> None:
        self._admission = admission
        self._state = state
        self._waiting = waiting
        self._taken = taken
        self._began = admission.now()
        self._used = 0
        self._released = False
        self.queue_seconds = queue_seconds
        self.requests_left = taken.admitted.requests_left if taken else None
        self.tokens_left = taken.admitted.tokens_left if taken else None

    def settle(self, prompt_tokens: int, completion_tokens: int) -> None:
        """What the request used in the end; counted when the slot is given back. The last call holds."""
        self._used = prompt_tokens + completion_tokens

    def release(self) -> None:
        """Give the slot back; a second call changes nothing."""
        if not self._released:
            self._released = True
            self._admission.ended(self._state, self._waiting, self._taken, self._used, self._began)

    async def __aenter__(self) -> Grant:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Admission:
    """Admits requests of one process.

    `capacity(route)` is how many requests the route may have granted at once, None for no bound; it is asked each
    time. Call `capacity_changed` when it grew. `processes`: among how many limits are divided while Redis is away.
    """

    def __init__(
        self,
        capacity: Callable[[str], int | None],
        *,
        processes: int = 1,
        limits: SharedLimits | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._capacity = capacity
        self._limits = limits or SharedLimits(processes)
        self._routes: dict[str, _RouteState] = {}
        self._numbers = itertools.count(1)
        self._process = secrets.token_hex(6)
        self.now = now

    async def admit(
        self,
        key: KeyFacts,
        route: Route,
        *,
        prompt_tokens: int,
        max_tokens: int,
        priority: Priority,
        request_id: str,
    ) -> Grant:
        """Wait for a slot of the route; raises Refused where a limit or the queue says no.

        A request that is cancelled while it waits leaves no trace in limits or queue.
        """
        check_length(key, route, prompt_tokens, max_tokens)
        state = self._routes.setdefault(route.name, _RouteState(route.name))
        taken = await self._take(key, route, prompt_tokens + max_tokens, request_id)
        began = self.now()
        try:
            waiting = await self._wait(state, route, key, priority, prompt_tokens + max_tokens)
        except BaseException:
            if taken is not None:
                self._limits.give_back(taken, 0, counts=False)
            raise
        return Grant(self, state, waiting, taken, self.now() - began)

    def capacity_changed(self, route: str) -> None:
        """More requests of the route may run now than before."""
        state = self._routes.get(route)
        if state is not None:
            self._grant_next(state)

    def waiting(self, route: str) -> int:
        """How many requests of a route wait here."""
        state = self._routes.get(route)
        return len(state.queue) if state else 0

    def granted(self, route: str) -> int:
        """How many slots of a route are held."""
        state = self._routes.get(route)
        return state.granted if state else 0

    async def close(self) -> None:
        """End what runs in the background."""
        await self._limits.close()

    def ended(
        self, state: _RouteState, waiting: Waiting, taken: Taken | None, used: int, began: float
    ) -> None:
        """A grant was given back (called by Grant)."""
        state.granted -= 1
        state.hold_seconds += _NEWEST * (self.now() - began - state.hold_seconds)
        state.queue.charge(waiting.key, waiting.priority, used - waiting.cost)
        if taken is not None:
            self._limits.give_back(taken, used)
        self._grant_next(state)

    # ------------------------------------------------------------ limits

    async def _take(self, key: KeyFacts, route: Route, tokens: int, request_id: str) -> Taken | None:
        scopes = tuple(
            _scope(name, limits)
            for name, limits in ((f"k:{key.key_id}", key.limits), (f"r:{route.name}", route.limits))
            if _any(limits)
        )
        if not scopes:
            return None
        # A client may send one request id twice, so the member has a number of ours.
        member = f"{self._process}:{next(self._numbers)}:{request_id[:64]}"
        found = await self._limits.take(Ask(member, tokens, scopes))
        if isinstance(found, Denied):
            raise _over_limit(found, scopes)
        return found

    # ------------------------------------------------------------ queue

    def _room(self, state: _RouteState) -> bool:
        most = self._capacity(state.name)
        return most is None or state.granted < most

    async def _wait(
        self, state: _RouteState, route: Route, key: KeyFacts, priority: Priority, cost: int
    ) -> Waiting:
        if not len(state.queue) and self._room(state):
            waiting = state.queue.add(key.key_id, priority, cost)
            state.queue.pop()
            state.granted += 1
            return waiting
        if len(state.queue) >= route.queue_size:
            victim = state.queue.victim(key.key_id, priority)
            if victim is None or not route.queue_size:
                raise self._overloaded(state, route)
            self._shed(state, route, victim)
        waiting = state.queue.add(key.key_id, priority, cost)
        future = state.futures[waiting] = asyncio.get_running_loop().create_future()
        # Room may have come without a word while others waited.
        self._grant_next(state)
        await self._turn(state, route, waiting, future)
        return waiting

    async def _turn(
        self, state: _RouteState, route: Route, waiting: Waiting, future: asyncio.Future[None]
    ) -> None:
        try:
            async with asyncio.timeout(route.queue_seconds):
                await asyncio.shield(future)
        except TimeoutError:
            if future.done() and future.exception() is None:
                return
            state.futures.pop(waiting, None)
            state.queue.remove(waiting)
            raise self._too_late(state, route) from None
        except asyncio.CancelledError:
            state.futures.pop(waiting, None)
            state.queue.remove(waiting)
            if future.done() and future.exception() is None:
                # Granted in the same moment: the slot goes to the next.
                state.granted -= 1
                self._grant_next(state)
            raise

    def _grant_next(self, state: _RouteState) -> None:
        while len(state.queue) and self._room(state):
            waiting = state.queue.pop()
            if waiting is None:
                return
            state.granted += 1
            state.futures.pop(waiting).set_result(None)

    def _shed(self, state: _RouteState, route: Route, victim: Waiting) -> None:
        state.queue.remove(victim)
        state.futures.pop(victim).set_exception(self._overloaded(state, route))

    def _retry_after(self, state: _RouteState) -> float:
        slots = self._capacity(state.name) or 1
        return min(MOST_RETRY_SECONDS, (len(state.queue) + 1) * state.hold_seconds / max(slots, 1))

    def _overloaded(self, state: _RouteState, route: Route) -> Refused:
        return Refused(
            503,
            "overloaded",
            _("%(model)s is overloaded: %(most)d requests wait already. Try again later.")
            % {"model": route.name, "most": route.queue_size},
            limit_name="queue",
            retry_after_seconds=self._retry_after(state),
        )

    def _too_late(self, state: _RouteState, route: Route) -> Refused:
        return Refused(
            503,
            "queue_timeout",
            _("%(model)s is overloaded: the request waited %(seconds)g s without a free slot.")
            % {"model": route.name, "seconds": route.queue_seconds},
            limit_name="queue",
            retry_after_seconds=self._retry_after(state),
        )


def allowed_max_tokens(key: KeyFacts, route: Route) -> int | None:
    """The most tokens that one answer may have by the limits of key and route; None: no limit."""
    known = [most for most in (key.limits.max_tokens, route.limits.max_tokens) if most is not None]
    return min(known, default=None)


def check_length(key: KeyFacts, route: Route, prompt_tokens: int, max_tokens: int) -> None:
    """Refuse (400) what could never be admitted, however long it waited."""
    most = allowed_max_tokens(key, route)
    if most is not None and max_tokens > most:
        raise Refused(
            400,
            "max_tokens_over_limit",
            _("max_tokens is %(asked)d; this key may ask %(model)s for %(most)d at most.")
            % {"asked": max_tokens, "model": route.name, "most": most},
            limit_name="max_tokens",
        )
    for word, limits in (("key", key.limits), ("route", route.limits)):
        if limits.tokens_per_minute is not None and prompt_tokens > limits.tokens_per_minute:
            raise Refused(
                400,
                "prompt_over_limit",
                _("The prompt has %(asked)d tokens; the limit is %(most)d tokens a minute.")
                % {"asked": prompt_tokens, "most": limits.tokens_per_minute},
                limit_name=f"{word}.tokens_per_minute",
            )


def _any(limits: Limits) -> bool:
    rates = (limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent_requests)
    return any(limit is not None for limit in rates)


def _scope(name: str, limits: Limits) -> Scope:
    return Scope(name, limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent_requests)


def _over_limit(denied: Denied, scopes: tuple[Scope, ...]) -> Refused:
    of_key = scopes[denied.scope].name.startswith("k:")
    sentences = {
        "requests_per_minute": _("The limit of %(most)d requests a minute of this %(whose)s is reached."),
        "tokens_per_minute": _("The limit of %(most)d tokens a minute of this %(whose)s is reached."),
        "concurrent_requests": _("The limit of %(most)d requests at once of this %(whose)s is reached."),
    }
    whose = _("key") if of_key else _("model")
    return Refused(
        429,
        "rate_limit_exceeded",
        sentences[denied.limit] % {"most": denied.most, "whose": whose},
        limit_name=f"{'key' if of_key else 'route'}.{denied.limit}",
        retry_after_seconds=denied.wait_seconds,
    )
