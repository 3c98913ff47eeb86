"""Who goes next where more wants in than there is room: classes first, then fairness among the keys of a class.

Higher classes go first, but a lower class that waits is never passed over for good: SHARES of the turns are its own.
Within a class the key goes next that was given the fewest tokens (start-time fair queuing): a key that was away
starts level with those that wait, and hoards nothing. Within a key, first come, first served.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from apps.gateway.domain.facts import Priority

# Part of the turns that a waiting class has for sure while a higher one waits too.
SHARES: Mapping[Priority, float] = {Priority.NORMAL: 1 / 8, Priority.LOW: 1 / 16}
# Idle keys whose account is kept; older ones start level again.
KEPT_KEYS = 1024


@dataclass(slots=True, eq=False)
class Waiting:
    """One request in the queue. `cost` is what it will probably take, in tokens; `gone` once it left the queue."""

    key: int
    priority: Priority
    cost: float
    order: int
    gone: bool = False


@dataclass(slots=True)
class _Key:
    """The requests of one key in one class, and what it was given so far in the class's virtual time."""

    given: float
    line: deque[Waiting] = field(default_factory=deque)
    length: int = 0


@dataclass(slots=True)
class _Class:
    """One class: its keys, its virtual time, what it may claim of the next turns."""

    share: float
    keys: dict[int, _Key] = field(default_factory=dict)
    now: float = 0.0
    credit: float = 0.0
    length: int = 0


class FairQueue:
    """A queue without clock and without tasks: the caller says when there is room."""

    def __init__(self, shares: Mapping[Priority, float] = SHARES) -> None:
        self._classes = {priority: _Class(shares.get(priority, 0.0)) for priority in Priority}
        self._orders = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def length_of(self, priority: Priority) -> int:
        """How many of a class wait."""
        return self._classes[priority].length

    def add(self, key: int, priority: Priority, cost: float) -> Waiting:
        """Put a request at the end of its key's line."""
        line = self._classes[priority]
        account = line.keys.get(key)
        if account is None:
            self._forget_idle(line)
            account = line.keys[key] = _Key(line.now)
        elif not account.length:
            account.given = max(account.given, line.now)
        self._orders += 1
        waiting = Waiting(key, priority, max(cost, 1.0), self._orders)
        account.line.append(waiting)
        account.length += 1
        line.length += 1
        self._length += 1
        return waiting

    def pop(self) -> Waiting | None:
        """Take the request whose turn it is; None where nobody waits."""
        chosen = self._class()
        if chosen is None:
            return None
        account = min(
            (account for account in chosen.keys.values() if account.length),
            key=lambda account: (account.given, self._head(account).order),
        )
        waiting = self._head(account)
        chosen.now = max(chosen.now, account.given)
        account.given += waiting.cost
        self.remove(waiting)
        return waiting

    def remove(self, waiting: Waiting) -> None:
        """Take a request out wherever it stands; once it is out this changes nothing."""
        if waiting.gone:
            return
        waiting.gone = True
        line = self._classes[waiting.priority]
        account = line.keys[waiting.key]
        account.length -= 1
        line.length -= 1
        self._length -= 1
        if not line.length:
            line.credit = 0.0
        while account.line and account.line[0].gone:
            account.line.popleft()

    def charge(self, key: int, priority: Priority, difference: float) -> None:
        """Correct a key's account once it is known what its request really took."""
        account = self._classes[priority].keys.get(key)
        if account is not None:
            account.given += difference

    def victim(self, key: int, priority: Priority) -> Waiting | None:
        """Who leaves a full queue so that a request of this key and class may wait; None: the request itself does.

        The lowest class that waits, and in it the newest request of the key with the longest line; a newcomer of
        that class gets in only where its own key's line stays shorter.
        """
        lowest = max(priority for priority, line in self._classes.items() if line.length or priority == 0)
        if priority > lowest:
            return None
        line = self._classes[lowest]
        longest = max(
            (account for account in line.keys.values() if account.length),
            key=lambda account: (account.length, self._tail(account).order),
            default=None,
        )
        if longest is None:
            return None
        if priority == lowest:
            own = line.keys.get(key)
            if (own.length if own else 0) + 1 >= longest.length:
                return None
        return self._tail(longest)

    def _class(self) -> _Class | None:
        waiting = [line for line in self._classes.values() if line.length]
        if not waiting:
            return None
        for line in waiting[1:]:
            line.credit += line.share
        for line in reversed(waiting[1:]):
            if line.credit >= 1.0:
                line.credit -= 1.0
                return line
        return waiting[0]

    @staticmethod
    def _head(account: _Key) -> Waiting:
        return account.line[0]

    @staticmethod
    def _tail(account: _Key) -> Waiting:
        while account.line[-1].gone:
            account.line.pop()
        return account.line[-1]

    @staticmethod
    def _forget_idle(line: _Class) -> None:
        if len(line.keys) >= KEPT_KEYS:
            line.keys = {key: account for key, account in line.keys.items() if account.length}
