"""Which upstream saw a prompt's beginning last: its KV cache may still hold it."""

from __future__ import annotations

from collections import OrderedDict

# Letters of one block; about a hundred tokens. A shorter common beginning saves next to nothing.
BLOCK = 400
MOST_BLOCKS = 32
KEPT = 20_000


class Prefixes:
    """Beginnings of prompts, in blocks, and the upstream that each went to. Bounded: the oldest are forgotten."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, int], str] = OrderedDict()

    def marks(self, prompt: str) -> list[int]:
        """Hashes of the beginnings of a prompt, shortest first, each over all before it."""
        found: list[int] = []
        mark = 0
        for start in range(0, min(len(prompt) // BLOCK, MOST_BLOCKS) * BLOCK, BLOCK):
            mark = hash((mark, prompt[start : start + BLOCK]))
            found.append(mark)
        return found

    def holders(self, route: str, marks: list[int]) -> list[str]:
        """Upstreams that saw a beginning of it, the longest first."""
        found: list[str] = []
        for mark in reversed(marks):
            uid = self._seen.get((route, mark))
            if uid is not None and uid not in found:
                found.append(uid)
        return found

    def remember(self, route: str, marks: list[int], uid: str) -> None:
        """A prompt with these beginnings went there."""
        for mark in marks:
            self._seen[route, mark] = uid
            self._seen.move_to_end((route, mark))
        while len(self._seen) > KEPT:
            self._seen.popitem(last=False)
