"""Admission: limits of key and route, then a fair, bounded queue for a slot of an upstream.

    async with await admission.admit(key, route, prompt_tokens=12, max_tokens=256, ...) as grant:
        ...                                 # a slot of grant.place is held here
        grant.settle(12, 40)                # what was really used

Everything is in memory but the counters of the limits (limits.py). Slots are those of upstreams, whatever name leads
to them: routes that lead to the same upstreams wait in one line, by class and key. Lines that share only some of them
take turns.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from django.utils.translation import gettext as _

from apps.gateway.access.bounds import check_length, limited, over_limit, route_gone, scope_of
from apps.gateway.access.limits import SharedLimits, Taken
from apps.gateway.access.refusals import Refused
from apps.gateway.domain.facts import KeyFacts, Priority, Route, Upstream
from apps.gateway.domain.fair_queue import FairQueue, Waiting
from apps.gateway.domain.windows import Ask, Denied

# Weight of the newest request in the mean time for which a slot is held, and that mean before the first ended.
_NEWEST = 0.1
_FIRST_HOLD = 2.0
MOST_RETRY_SECONDS = 60.0
# Lines where nobody waits are forgotten beyond so many: configurations come and go.
KEPT_LINES = 1024

# A prompt's text; asked only where a choice depends on it.
Text = Callable[[], str]


class Places(Protocol):
    """The slots that are granted: wiring.py has those of the newest table's upstreams. Routes go by name."""

    def lane(self, route: str, text: Text) -> Hashable:
        """What a request waits for: the same for all that can run on the same upstreams."""

    def room(self, route: str, text: Text) -> bool:
        """Whether `take` would find a slot."""

    def take(self, route: str, text: Text) -> Upstream | None:
        """A slot, held from now on; None where all are busy."""

    def took(self, place: Upstream) -> None:
        """A slot of this upstream is held, too, though nobody asked whether one is free."""

    def give_back(self, place: Upstream) -> None:
        """A slot is free again."""

    def most(self, route: str) -> int | None:
        """All slots that a route leads to, busy or not; None: no bound."""


@dataclass(slots=True)
class _Asked:
    """A request that waits."""

    route: str
    text: Text
    future: asyncio.Future[Upstream]


@dataclass(slots=True)
class _Line:
    """What waits for the same upstreams in this process, and for how long one of their slots is held."""

    queue: FairQueue = field(default_factory=FairQueue)
    asked: dict[Waiting, _Asked] = field(default_factory=dict)
    hold_seconds: float = _FIRST_HOLD
    # When it was granted something last, in grants.
    turn: int = 0


class Grant:
    """One granted slot. Leave the block, or call `release`, to give it back.

    `place` is the upstream whose slot it is (None where none was asked for). `queue_seconds` is how long it waited.
    `requests_left` and `tokens_left` are what the tightest limits still allow this minute, None where there is none.
    Without `settle` the request counts as having used nothing.
    """

    def __init__(
        self,
        admission: Admission,
        route: str,
        held: tuple[_Line, Waiting, Upstream] | None,
        taken: Taken | None,
        queue_seconds: float,
    ) -> None:
        self._admission = admission
        self._route = route
        self._line: _Line | None = held[0] if held else None
        self._waiting: Waiting | None = held[1] if held else None
        self.place: Upstream | None = held[2] if held else None
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

    def move(self, place: Upstream) -> None:
        """The request goes on at another upstream; its first slot is free."""
        if self.place is not None and not self._released:
            before, self.place = self.place, place
            self._admission.moved(before, place)

    def release(self) -> None:
        """Give the slot back; a second call changes nothing."""
        if self._released:
            return
        self._released = True
        if self._line is not None and self._waiting is not None and self.place is not None:
            self._admission.ended(self._route, self._line, self._waiting, self.place, self._used, self._began)
        self._admission.counted(self._taken, self._used)

    async def __aenter__(self) -> Grant:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Admission:
    """Admits requests of one process.

    `places` has the slots. Call `room_grew` when it has more of them. `processes`: among how many limits are divided
    while Redis is away.
    """

    def __init__(
        self,
        places: Places,
        *,
        processes: int = 1,
        limits: SharedLimits | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places = places
        self._limits = limits or SharedLimits(processes)
        self._lines: dict[Hashable, _Line] = {}
        self._waiting: Counter[str] = Counter()
        self._granted: Counter[str] = Counter()
        self._turns = itertools.count(1)
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
        text: Text = str,
    ) -> Grant:
        """Wait for a slot that the route leads to; raises Refused where a limit or the queue says no.

        A request that is cancelled while it waits leaves no trace in limits or queue.
        """
        check_length(key, route, prompt_tokens, max_tokens)
        taken = await self._take(key, route, prompt_tokens + max_tokens, request_id)
        began = self.now()
        try:
            held = await self._wait(route, key, priority, prompt_tokens + max_tokens, text)
        except BaseException:
            if taken is not None:
                self._limits.give_back(taken, 0, counts=False)
            raise
        return Grant(self, route.name, held, taken, self.now() - began)

    async def count(self, key: KeyFacts, route: Route, request_id: str) -> Grant:
        """Admit what needs no slot: limits alone. Raises Refused."""
        return Grant(self, route.name, None, await self._take(key, route, 0, request_id), 0.0)

    def room_grew(self) -> None:
        """More requests may run now than before."""
        self._grant()

    def waiting(self, route: str) -> int:
        """How many requests of a route wait here."""
        return self._waiting[route]

    def granted(self, route: str) -> int:
        """How many slots requests of a route hold."""
        return self._granted[route]

    async def close(self) -> None:
        """End what runs in the background."""
        await self._limits.close()

    # ------------------------------------------------------------ called by Grant

    def moved(self, before: Upstream, after: Upstream) -> None:
        """A granted request went to another upstream."""
        self._places.took(after)
        self._places.give_back(before)
        self._grant()

    def ended(
        self, route: str, line: _Line, waiting: Waiting, place: Upstream, used: int, began: float
    ) -> None:
        """A slot was given back."""
        line.hold_seconds += _NEWEST * (self.now() - began - line.hold_seconds)
        line.queue.charge(waiting.key, waiting.priority, used - waiting.cost)
        self._give_back(route, place)

    def counted(self, taken: Taken | None, used: int) -> None:
        """What a request used is known."""
        if taken is not None:
            self._limits.give_back(taken, used)

    # ------------------------------------------------------------ limits

    async def _take(self, key: KeyFacts, route: Route, tokens: int, request_id: str) -> Taken | None:
        scopes = tuple(
            scope_of(name, limits)
            for name, limits in ((f"k:{key.key_id}", key.limits), (f"r:{route.name}", route.limits))
            if limited(limits)
        )
        if not scopes:
            return None
        # A client may send one request id twice, so the member has a number of ours.
        member = f"{self._process}:{next(self._numbers)}:{request_id[:64]}"
        found = await self._limits.take(Ask(member, tokens, scopes))
        if isinstance(found, Denied):
            raise over_limit(found, scopes)
        return found

    # ------------------------------------------------------------ queue

    async def _wait(
        self, route: Route, key: KeyFacts, priority: Priority, cost: int, text: Text
    ) -> tuple[_Line, Waiting, Upstream]:
        line = self._line(self._places.lane(route.name, text))
        if not len(line.queue) and (place := self._places.take(route.name, text)) is not None:
            waiting = line.queue.add(key.key_id, priority, cost)
            line.queue.pop()
            self._hold(line, route.name)
            return line, waiting, place
        if len(line.queue) >= route.queue_size:
            victim = line.queue.victim(key.key_id, priority)
            if victim is None or not route.queue_size:
                raise self._overloaded(line, route)
            shed = self._leave(line, victim)
            if shed is not None:
                shed.future.set_exception(self._overloaded(line, route))
        waiting = line.queue.add(key.key_id, priority, cost)
        future: asyncio.Future[Upstream] = asyncio.get_running_loop().create_future()
        line.asked[waiting] = _Asked(route.name, text, future)
        self._waiting[route.name] += 1
        # Room may have come without a word while others waited.
        self._grant()
        return line, waiting, await self._turn(line, route, waiting, future)

    def _line(self, lane: Hashable) -> _Line:
        if lane not in self._lines and len(self._lines) >= KEPT_LINES:
            self._lines = {name: line for name, line in self._lines.items() if len(line.queue)}
        return self._lines.setdefault(lane, _Line())

    async def _turn(
        self, line: _Line, route: Route, waiting: Waiting, future: asyncio.Future[Upstream]
    ) -> Upstream:
        try:
            async with asyncio.timeout(route.queue_seconds):
                return await asyncio.shield(future)
        except TimeoutError:
            if future.done() and future.exception() is None:
                return future.result()
            self._leave(line, waiting)
            raise self._too_late(line, route) from None
        except asyncio.CancelledError:
            self._leave(line, waiting)
            if future.done() and future.exception() is None:
                # Granted in the same moment: the slot goes to the next.
                self._give_back(route.name, future.result())
            raise

    def _leave(self, line: _Line, waiting: Waiting) -> _Asked | None:
        """Out of the line, wherever it stands in it; None where it does not any more."""
        line.queue.remove(waiting)
        asked = line.asked.pop(waiting, None)
        if asked is not None:
            self._waiting[asked.route] -= 1
        return asked

    def _hold(self, line: _Line, route: str) -> None:
        line.turn = next(self._turns)
        self._granted[route] += 1

    def _give_back(self, route: str, place: Upstream) -> None:
        self._granted[route] -= 1
        self._places.give_back(place)
        self._grant()

    def _grant(self) -> None:
        """Let in whoever there is room for; of lines that wait for the same room, the one that waited longest."""
        waiting = [line for line in self._lines.values() if len(line.queue)]
        while waiting:
            waiting.sort(key=lambda line: line.turn)
            line = next((one for one in waiting if self._has_room(one)), None)
            if line is None:
                return
            self._let_in(line)
            waiting = [one for one in waiting if len(one.queue)]

    def _has_room(self, line: _Line) -> bool:
        # All in a line can run on the same upstreams, so one speaks for all, unless its route has just gone.
        return any(
            self._places.room(one.route, one.text)
            for one in {one.route: one for one in line.asked.values()}.values()
        )

    def _let_in(self, line: _Line) -> None:
        found = line.queue.pop()
        if found is None:
            return
        asked = line.asked.pop(found)
        self._waiting[asked.route] -= 1
        place = self._places.take(asked.route, asked.text)
        if place is None:
            asked.future.set_exception(route_gone(asked.route))
            return
        self._hold(line, asked.route)
        asked.future.set_result(place)

    def _retry_after(self, line: _Line, route: str) -> float:
        slots = self._places.most(route) or 1
        return min(MOST_RETRY_SECONDS, (len(line.queue) + 1) * line.hold_seconds / max(slots, 1))

    def _overloaded(self, line: _Line, route: Route) -> Refused:
        return Refused(
            503,
            "overloaded",
            _("%(model)s is overloaded: %(most)d requests wait already. Try again later.")
            % {"model": route.name, "most": route.queue_size},
            limit_name="queue",
            retry_after_seconds=self._retry_after(line, route.name),
        )

    def _too_late(self, line: _Line, route: Route) -> Refused:
        return Refused(
            503,
            "queue_timeout",
            (
                _("%(model)s sleeps, and was not awake after %(seconds)g s.")
                if route.wakes
                else _("%(model)s is overloaded: the request waited %(seconds)g s without a free slot.")
            )
            % {"model": route.name, "seconds": route.queue_seconds},
            limit_name="queue",
            retry_after_seconds=self._retry_after(line, route.name),
        )
