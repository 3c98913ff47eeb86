"""The waiting queue and the choice of a slot."""

from __future__ import annotations

import pytest
from llamacpp_errors import QueueFull
from llamacpp_queue import WaitingQueue
from llamacpp_slots import SlotTable, common_prefix


def test_the_queue_is_first_in_first_out_and_gives_back_whom_it_is_asked_for() -> None:
    queue: WaitingQueue[str] = WaitingQueue(3)
    for key, name in enumerate("abc"):
        queue.put(key, name)
    with pytest.raises(QueueFull):
        queue.put(3, "d")
    queue.put(3, "d", places_free=1)
    assert queue.remove(1) == "b"
    assert queue.remove(1) is None
    assert [queue.take(), queue.take(), queue.take(), queue.take()] == ["a", "c", "d", None]


def test_a_more_urgent_class_goes_first_and_within_a_class_who_came_first() -> None:
    queue: WaitingQueue[str] = WaitingQueue(9)
    for key, (name, level) in enumerate([("a", 3), ("b", 2), ("c", 1), ("d", 2), ("e", 1)]):
        queue.put(key, name, level=level)
    assert queue.remove(4) == "e"
    assert [queue.take() for _ in range(5)] == ["c", "b", "d", "a", None]


def test_no_class_is_passed_over_for_good() -> None:
    queue: WaitingQueue[int] = WaitingQueue(10_000)
    for key in range(600):
        queue.put(key, 1 + key % 3, level=1 + key % 3)
    taken = [queue.take() for _ in range(100)]
    assert taken[:8] == [1] * 8
    assert taken[8] == 2
    # As in the gateway: about one turn in nine, and one in seventeen.
    assert (taken.count(2), taken.count(3)) == (10, 5)


def test_a_class_that_did_not_wait_has_no_claim_from_before() -> None:
    queue: WaitingQueue[int] = WaitingQueue(100)
    for key in range(20):
        queue.put(key, 1, level=1)
    for _ in range(18):
        queue.take()
    queue.put(99, 3, level=3)
    assert [queue.take(), queue.take(), queue.take()] == [1, 1, 3]


def test_drain_empties_in_order() -> None:
    queue: WaitingQueue[str] = WaitingQueue(9)
    for key, name in enumerate("ab"):
        queue.put(key, name)
    assert queue.drain() == ["a", "b"]
    assert len(queue) == 0


@pytest.mark.parametrize(
    ("held", "prompt", "most", "shared"),
    [
        ([], [1, 2], 9, 0),
        ([1, 2, 3], [1, 2, 4], 9, 2),
        ([1, 2, 3], [1, 2, 3, 4], 9, 3),
        ([1, 2, 3], [1, 2, 3], 1, 1),
        ([5], [1], 9, 0),
        ([1, 2], [1], 9, 1),
    ],
)
def test_common_prefix(held: list[int], prompt: list[int], most: int, shared: int) -> None:
    assert common_prefix(held, prompt, most) == shared


def test_the_slot_with_the_longest_beginning_wins_and_at_least_two_tokens_are_left() -> None:
    table = SlotTable(3)
    table.slots[1].tokens = [1, 2, 3, 4, 5, 6]
    placement = table.place([1, 2, 3, 4, 5, 6])
    assert placement is not None
    assert (placement.slot.number, placement.kept, placement.donor) == (1, 4, None)


def test_without_a_match_the_slot_unused_longest_is_taken() -> None:
    table = SlotTable(2)
    first = table.place([1, 2, 3])
    assert first is not None
    table.release(first.slot)
    second = table.place([7, 8, 9])
    assert second is not None
    assert second.slot.number != first.slot.number


def test_no_free_slot_is_none() -> None:
    table = SlotTable(1)
    assert table.place([1]) is not None
    assert table.place([1]) is None
    assert table.busy == 1


def test_a_donor_is_used_only_where_it_saves_enough() -> None:
    table = SlotTable(2)
    long = list(range(100))
    busy = table.place(long)
    assert busy is not None
    busy.slot.tokens = long
    near = table.place([*range(20), 999, 998])
    assert near is not None
    assert near.donor is None
    table.release(near.slot)
    shared = table.place([*range(60), 999, 998])
    assert shared is not None
    assert shared.donor is busy.slot
    assert shared.kept == 60


def test_a_new_prompt_sits_beside_the_busy_slots() -> None:
    table = SlotTable(5)
    for slot in table.slots:
        slot.last_used = 9 - slot.number
    table.slots[1].busy = True
    placement = table.place([1, 2, 3])
    assert placement is not None
    assert placement.slot.number in (0, 2)


def test_a_gap_between_busy_slots_is_closed_from_above() -> None:
    table = SlotTable(5)
    for number in (1, 4):
        table.slots[number].busy = True
        table.slots[number].tokens = [number]
    found = table.gap()
    assert found is not None
    source, target = found
    assert (source.number, target.number) == (4, 2)
    table.move(source, target)
    assert target.tokens == source.tokens == [4]
    assert (target.busy, source.busy) == (True, False)
    assert table.gap() is None


def test_neighbours_anywhere_and_nobody_are_no_gap() -> None:
    table = SlotTable(4)
    assert table.gap() is None
    for number in (2, 3):
        table.slots[number].busy = True
    assert table.gap() is None
