"""The choice of an upstream: the share of each revision, then room, then prefixes, then least outstanding work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

from apps.gateway.domain.facts import Route, Upstream
from apps.gateway.routing.health import Health
from apps.gateway.routing.prefixes import Prefixes

# A known prefix is worth waiting behind so many more requests than the idlest upstream has; beyond that, room is.
PREFIX_WORTH = 2
# Letters of a token, where only the length of a prompt is asked for and no tokenizer is at hand.
LETTERS_PER_TOKEN = 4

Group = tuple[int | None, int | None, str]


@dataclass(slots=True)
class _Share:
    """Smooth weighted round robin: each turn adds every weight and takes the sum from the one chosen."""

    current: float = 0.0


class Balancer:
    """Outstanding requests, shares and health of every upstream. `divide_by`: processes that share the slots."""

    def __init__(self, health: Health | None = None, divide_by: int = 1, prefixes: bool = True) -> None:
        self.health = health or Health()
        self._outstanding: defaultdict[str, int] = defaultdict(int)
        self._shares: dict[tuple[str, Group], _Share] = {}
        self._prefixes = Prefixes() if prefixes else None
        self._divide_by = max(1, divide_by)

    def outstanding(self, uid: str) -> int:
        """Requests that an upstream has of this process."""
        return self._outstanding.get(uid, 0)

    def usable(self, route: Route) -> list[Upstream]:
        """Upstreams that may be given requests now."""
        return [one for one in route.upstreams if self.health.usable(one.uid)]

    def capacity(self, route: Route) -> int | None:
        """Requests that may be computed at once on a route: the slots of its usable upstreams; None: no bound."""
        total = 0
        for upstream in self.usable(route):
            slots = self._slots(upstream)
            if slots is None:
                return None
            total += slots
        return total

    def lane(self, route: Route, prompt: Callable[[], str]) -> Hashable:
        """What a request of a route waits for: its targets, in the bucket of its length. Equal for equal slots."""
        if not route.targets:
            return route.name
        bucket = _bucket({longest for _name, longest in route.targets}, prompt)
        return frozenset(name for name, longest in route.targets if longest == bucket)

    def room(self, route: Route, prompt: Callable[[], str]) -> bool:
        """Whether an upstream has a free slot for a prompt of this length."""
        return any(map(self._has_room, _fitting(self.usable(route), prompt)))

    def choose(
        self, route: Route, prompt: Callable[[], str], excluded: Collection[str] = ()
    ) -> Upstream | None:
        """An upstream for one request, or None where none is left. Call `taken` with it, and `done` at its end.

        `prompt` gives the prompt's text; it is asked only where a choice depends on it.
        """
        found = [one for one in self.usable(route) if one.uid not in excluded]
        if len(found) <= 1:
            return found[0] if found else None
        found = _fitting(found, prompt)
        groups: defaultdict[Group, list[Upstream]] = defaultdict(list)
        for upstream in found:
            groups[_group(upstream)].append(upstream)
        # A share is of new requests; one whose replicas are all busy gives its turn away rather than let others idle.
        open_groups = {key: some for key, some in groups.items() if any(map(self._has_room, some))} or groups
        members = open_groups[self._next_group(route.name, open_groups)]
        return self._within(route.name, members, prompt)

    def taken(self, uid: str) -> None:
        """An upstream got a request, or holds a slot for one."""
        self._outstanding[uid] += 1

    def done(self, uid: str) -> None:
        """That request is over."""
        self._outstanding[uid] -= 1
        if self._outstanding[uid] <= 0:
            del self._outstanding[uid]

    def keep(self, routes: Iterable[Route]) -> None:
        """The table changed: forget what is no longer in it."""
        known = list(routes)
        self.health.keep({one.uid for route in known for one in route.upstreams})
        shares = {(route.name, _group(one)) for route in known for one in route.upstreams}
        self._shares = {key: share for key, share in self._shares.items() if key in shares}

    def _slots(self, upstream: Upstream) -> int | None:
        return None if upstream.slots is None else max(1, upstream.slots // self._divide_by)

    def _has_room(self, upstream: Upstream) -> bool:
        slots = self._slots(upstream)
        return slots is None or self._outstanding.get(upstream.uid, 0) < slots

    def _next_group(self, route: str, groups: dict[Group, list[Upstream]]) -> Group:
        if len(groups) == 1:
            return next(iter(groups))
        weights = {key: sum(max(one.weight, 0.0) for one in members) for key, members in groups.items()}
        total = sum(weights.values())
        best, best_value = next(iter(groups)), float("-inf")
        for key, weight in weights.items():
            share = self._shares.setdefault((route, key), _Share())
            share.current += weight
            # A weight of 0 gets a request only where nothing else is left.
            if (weight > 0 or total == 0) and share.current > best_value:
                best, best_value = key, share.current
        self._shares[route, best].current -= total
        return best

    def _within(self, route: str, members: Sequence[Upstream], prompt: Callable[[], str]) -> Upstream:
        if len(members) == 1:
            return members[0]
        least = min(members, key=self._load)
        if self._prefixes is None:
            return least
        marks = self._prefixes.marks(prompt())
        chosen = least
        by_uid = {one.uid: one for one in members}
        for uid in self._prefixes.holders(route, marks):
            holder = by_uid.get(uid)
            if holder is not None and self._has_room(holder):
                if self.outstanding(uid) <= self.outstanding(least.uid) + PREFIX_WORTH:
                    chosen = holder
                break
        self._prefixes.remember(route, marks, chosen.uid)
        return chosen

    def _load(self, upstream: Upstream) -> tuple[float, int]:
        """Busy share of its slots where they are known, so that replicas of different sizes fill alike."""
        outstanding = self._outstanding.get(upstream.uid, 0)
        slots = self._slots(upstream)
        return (outstanding / slots if slots else float(outstanding), outstanding)


def _group(upstream: Upstream) -> Group:
    """What shares a weight: the replicas of one revision, or one external server."""
    if upstream.deployment_id is None:
        return (None, None, upstream.uid)
    return (upstream.deployment_id, upstream.revision, "")


def _fitting(found: list[Upstream], prompt: Callable[[], str]) -> list[Upstream]:
    """The bucket of a prompt's length among these upstreams."""
    bounds = {one.max_prompt_tokens for one in found}
    if len(bounds) <= 1:
        return found
    bucket = _bucket(bounds, prompt)
    return [one for one in found if one.max_prompt_tokens == bucket]


def _bucket(bounds: Collection[int | None], prompt: Callable[[], str]) -> int | None:
    """The smallest bound that a prompt fits in, else the one without a bound."""
    known = sorted(bound for bound in bounds if bound is not None)
    if not known:
        return None
    tokens = len(prompt()) // LETTERS_PER_TOKEN
    fits = next((bound for bound in known if tokens <= bound), None)
    # Too long for every bucket: the largest one's engine knows best what to say.
    return fits if fits is not None or None in bounds else known[-1]
