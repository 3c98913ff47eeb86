"""Slots: the sequences of the KV cache, what each still holds, and which one serves a new prompt best."""

from __future__ import annotations

from dataclasses import dataclass, field

# Copying another slot's cache pays from so many saved prompt tokens on: on the CPU 32 tokens cost some 100 ms of
# prefill, a copy of a slot of 1024 tokens of the demo model a few.
SHARE_FROM_TOKENS = 32


@dataclass(slots=True)
class Slot:
    """One sequence of the cache. `tokens` are those whose keys and values it holds, from position 0 on."""

    number: int
    busy: bool = False
    tokens: list[int] = field(default_factory=list)
    last_used: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a prompt goes: the slot, how many of its tokens are already there, and whose cache to copy first."""

    slot: Slot
    kept: int
    donor: Slot | None = None


class SlotTable:
    """All slots of the context."""

    def __init__(self, count: int, prefix_cache: bool = True) -> None:
        self.slots = [Slot(number) for number in range(count)]
        self._prefix_cache = prefix_cache
        self._clock = 0

    @property
    def busy(self) -> int:
        """Slots that serve a request now."""
        return sum(slot.busy for slot in self.slots)

    def place(self, prompt: list[int]) -> Placement | None:
        """Choose a free slot for a prompt and mark it busy; None when all are.

        The free slot that holds the longest beginning of the prompt wins, among equals one beside those that are
        busy (see gap), then the one unused longest. At least two tokens are computed anew: the last one's logits are
        needed, and a step of one token runs through another kernel than a prompt, so that the same prompt would not
        give the same bits twice.
        """
        free = [slot for slot in self.slots if not slot.busy]
        if not free:
            return None
        most = max(len(prompt) - 2, 0) if self._prefix_cache else 0
        near = self._beside_busy()
        best = max(
            free,
            key=lambda slot: (common_prefix(slot.tokens, prompt, most), slot.number in near, -slot.last_used),
        )
        kept = common_prefix(best.tokens, prompt, most)
        donor = None
        if most >= kept + SHARE_FROM_TOKENS:
            other = max(self.slots, key=lambda slot: common_prefix(slot.tokens, prompt, most))
            shared = common_prefix(other.tokens, prompt, most)
            if other is not best and shared >= kept + SHARE_FROM_TOKENS:
                donor, kept = other, shared
        self._clock += 1
        best.busy, best.last_used = True, self._clock
        return Placement(best, kept, donor)

    def gap(self) -> tuple[Slot, Slot] | None:
        """A busy slot and the free one to move it to, so that busy slots are neighbours; None if they are."""
        busy = [slot.number for slot in self.slots if slot.busy]
        if not busy or busy[-1] - busy[0] + 1 == len(busy):
            return None
        hole = next(number for number in range(busy[0], busy[-1]) if not self.slots[number].busy)
        return self.slots[busy[-1]], self.slots[hole]

    def move(self, source: Slot, target: Slot) -> None:
        """`target` now holds and serves what `source` did; `source` is free and holds it still."""
        target.tokens = list(source.tokens)
        target.busy, target.last_used = True, source.last_used
        self.release(source)

    def _beside_busy(self) -> range:
        busy = [slot.number for slot in self.slots if slot.busy]
        return range(busy[0] - 1, busy[-1] + 2) if busy else range(0)

    def release(self, slot: Slot) -> None:
        """Free a slot; what it holds stays for the next prompt that begins alike."""
        self._clock += 1
        slot.busy, slot.last_used = False, self._clock


def common_prefix(held: list[int], prompt: list[int], most: int) -> int:
    """How many tokens at the beginning are the same, at most `most`."""
    most = min(most, len(held), len(prompt))
    if held[:most] == prompt[:most]:
        return most
    low = 0
    for low in range(most):
        if held[low] != prompt[low]:
            break
    return low
