"""Slots without upstreams behind them, for the admission alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from apps.gateway.access.admission import Text
from apps.gateway.domain.facts import Upstream

PLACE = Upstream("place", "triton", "http://127.0.0.1:9")


class Places:
    """So many slots as `most` says (None: any number), for whatever route."""

    def __init__(self, most: int | None = 2) -> None:
        self.capacity = most
        self.held = 0

    def lane(self, route: str, text: Text) -> Hashable:
        """A line for each route."""
        return route

    def room(self, route: str, text: Text) -> bool:
        """Whether one is free."""
        return self.capacity is None or self.held < self.capacity

    def take(self, route: str, text: Text) -> Upstream | None:
        """Hold one."""
        if not self.room(route, text):
            return None
        self.held += 1
        return PLACE

    def took(self, place: Upstream) -> None:
        """Hold one more, free or not."""
        self.held += 1

    def give_back(self, place: Upstream) -> None:
        """It is free."""
        self.held -= 1

    def most(self, route: str) -> int | None:
        """All of them."""
        return self.capacity


class Lanes(Places):
    """The same, where a function says what a request waits for."""

    def __init__(self, most: int | None, lane: Callable[[str, str], Hashable]) -> None:
        super().__init__(most)
        self._lane = lane

    def lane(self, route: str, text: Text) -> Hashable:
        """As the function says."""
        return self._lane(route, text())
