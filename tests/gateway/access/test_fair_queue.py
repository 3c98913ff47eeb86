"""Who goes next: classes, the share of the low ones, fairness among keys, and who leaves a full queue."""

from __future__ import annotations

import random

import pytest

from apps.gateway.domain.facts import Priority
from apps.gateway.domain.fair_queue import KEPT_KEYS, FairQueue, Waiting
from tests.gateway.access.simulation import Client, run

HIGH, NORMAL, LOW = Priority.HIGH, Priority.NORMAL, Priority.LOW


def drain(queue: FairQueue) -> list[Waiting]:
    found = []
    while (waiting := queue.pop()) is not None:
        found.append(waiting)
    return found


def test_an_empty_queue_has_nobody() -> None:
    queue = FairQueue()
    assert len(queue) == 0
    assert queue.pop() is None


def test_of_one_key_the_first_comes_first() -> None:
    queue = FairQueue()
    added = [queue.add(1, NORMAL, cost) for cost in (5, 500, 1, 50)]
    assert drain(queue) == added


def test_higher_classes_go_first() -> None:
    queue = FairQueue()
    low, normal, high = (queue.add(1, priority, 10) for priority in (LOW, NORMAL, HIGH))
    assert drain(queue) == [high, normal, low]


def test_lower_classes_have_their_turns_all_the_same() -> None:
    queue = FairQueue()
    for _number in range(1000):
        for priority in Priority:
            queue.add(int(priority), priority, 10)
    first = [queue.pop() for _turn in range(321)]
    counts = {p: sum(1 for item in first if item and item.priority == p) for p in Priority}
    assert counts == {HIGH: 261, NORMAL: 40, LOW: 20}


def test_a_class_that_was_away_saved_no_turns() -> None:
    queue = FairQueue()
    for _number in range(100):
        queue.add(1, HIGH, 10)
    for _turn in range(50):
        queue.pop()
    queue.add(2, LOW, 10)
    assert [queue.pop().priority for _turn in range(15)] == [HIGH] * 15  # type: ignore[union-attr]


def test_a_key_with_many_requests_takes_no_turns_of_others() -> None:
    queue = FairQueue()
    for _number in range(50):
        queue.add(1, NORMAL, 10)
    late = [queue.add(2, NORMAL, 10) for _number in range(3)]
    turns = [queue.pop() for _turn in range(7)]
    assert [item for item in turns if item and item.key == 2] == late


def test_fairness_counts_tokens_not_requests() -> None:
    queue = FairQueue()
    for _number in range(100):
        queue.add(1, NORMAL, 1000)
        queue.add(2, NORMAL, 100)
    turns = [queue.pop() for _turn in range(55)]
    long = sum(1 for item in turns if item and item.key == 1)
    assert long == pytest.approx(5, abs=1)


def test_a_key_that_was_away_hoards_nothing() -> None:
    queue = FairQueue()
    for _number in range(30):
        queue.add(1, NORMAL, 10)
    for _turn in range(20):
        queue.pop()
    for _number in range(20):
        queue.add(2, NORMAL, 10)
    turns = [queue.pop() for _turn in range(10)]
    assert sum(1 for item in turns if item and item.key == 2) == pytest.approx(5, abs=1)


def test_what_was_really_used_is_charged() -> None:
    queue = FairQueue()
    for key in (1, 2):
        queue.add(key, NORMAL, 10)
        queue.pop()
    queue.charge(1, NORMAL, 990)
    for _number in range(20):
        queue.add(1, NORMAL, 10)
        queue.add(2, NORMAL, 10)
    turns = [queue.pop() for _turn in range(20)]
    assert all(item and item.key == 2 for item in turns)
    queue.charge(99, LOW, 5)


def test_a_removed_request_has_no_turn() -> None:
    queue = FairQueue()
    added = [queue.add(key, priority, 10) for key in (1, 2) for priority in Priority for _n in range(3)]
    out = added[::2]
    for waiting in [*out, *out]:
        queue.remove(waiting)
    assert len(queue) == len(added) - len(out)
    assert {item.order for item in drain(queue)} == {item.order for item in added[1::2]}
    assert [queue.length_of(priority) for priority in Priority] == [0, 0, 0]


def test_it_keeps_no_account_of_keys_without_end() -> None:
    queue = FairQueue()
    for key in range(3 * KEPT_KEYS):
        queue.add(key, NORMAL, 10)
        queue.pop()
    assert len(queue._classes[NORMAL].keys) <= KEPT_KEYS


@pytest.mark.parametrize(
    ("waiting", "newcomer", "leaves"),
    [
        # (key, class) in the order of arrival; the newcomer; which of the waiting leaves, None: the newcomer itself
        ([(1, LOW), (2, LOW), (3, NORMAL)], (4, HIGH), 1),
        ([(1, LOW), (1, LOW), (2, LOW)], (4, NORMAL), 1),
        ([(1, HIGH), (2, HIGH)], (3, NORMAL), None),
        ([(1, NORMAL), (2, LOW)], (3, LOW), None),
        ([(1, LOW)], (1, LOW), None),
        ([(1, LOW), (1, LOW), (1, LOW)], (2, LOW), 2),
        ([(1, LOW), (1, LOW), (2, LOW)], (2, LOW), None),
        ([(1, HIGH), (1, HIGH), (1, HIGH)], (2, HIGH), 2),
        ([(1, HIGH), (1, HIGH), (1, HIGH)], (1, HIGH), None),
        ([], (1, HIGH), None),
        ([], (1, LOW), None),
    ],
)
def test_who_leaves_a_full_queue(
    waiting: list[tuple[int, Priority]], newcomer: tuple[int, Priority], leaves: int | None
) -> None:
    queue = FairQueue()
    added = [queue.add(key, priority, 10) for key, priority in waiting]
    assert queue.victim(*newcomer) is (None if leaves is None else added[leaves])


def test_a_victim_is_found_behind_those_that_left() -> None:
    queue = FairQueue()
    added = [queue.add(1, LOW, 10) for _number in range(4)]
    queue.remove(added[3])
    queue.remove(added[2])
    assert queue.victim(2, HIGH) is added[1]


def test_random_orders_lose_and_double_nobody() -> None:
    chance = random.Random(7)
    queue, inside, served = FairQueue(), {}, set()
    for _step in range(5000):
        what = chance.random()
        if what < 0.5:
            waiting = queue.add(chance.randrange(6), Priority(chance.randrange(3)), chance.randrange(1, 500))
            inside[waiting.order] = waiting
        elif what < 0.8:
            popped = queue.pop()
            assert (popped is None) == (not inside)
            if popped is not None:
                del inside[popped.order]
                assert popped.order not in served
                served.add(popped.order)
        elif inside:
            gone = inside.pop(chance.choice(list(inside)))
            queue.remove(gone)
        assert len(queue) == len(inside)


class TestSaturation:
    """Four times more work than capacity, in simulated time."""

    def test_high_waits_a_third_of_normal_and_low_still_moves(self) -> None:
        clients = [Client(key=int(p) * 100 + n, priority=p) for p in (HIGH, NORMAL) for n in range(28)]
        clients += [Client(key=200 + n, priority=LOW) for n in range(8)]
        outcome = run(clients, slots=16, seconds=600, warm=60)
        high = outcome.p50(lambda key: key < 100)
        normal = outcome.p50(lambda key: 100 <= key < 200)
        assert high <= normal / 3
        low = [wait for key, waits in outcome.waits.items() if key >= 200 for wait in waits]
        assert len(low) > 400
        assert {key for key in outcome.waits if key >= 200} == {200 + n for n in range(8)}

    def test_equal_classes_differ_by_less_than_a_tenth(self) -> None:
        clients = [Client(key=n // 8, seconds=0.5 + 0.13 * (n % 5)) for n in range(64)]
        outcome = run(clients, slots=16, seconds=600, warm=60)
        tokens = outcome.tokens.values()
        assert max(tokens) / min(tokens) < 1.1

    def test_a_key_with_eight_times_the_clients_gets_no_more(self) -> None:
        clients = [Client(key=0) for _n in range(56)] + [Client(key=1) for _n in range(8)]
        outcome = run(clients, slots=8, seconds=600, warm=60)
        assert outcome.tokens[0] / outcome.tokens[1] == pytest.approx(1.0, abs=0.1)

    def test_long_and_short_requests_share_the_tokens(self) -> None:
        long = [Client(key=0, cost=2000, seconds=4.0) for _n in range(16)]
        short = [Client(key=1, cost=100, seconds=0.2) for _n in range(16)]
        outcome = run(long + short, slots=8, seconds=1200, warm=120)
        assert outcome.tokens[0] / outcome.tokens[1] == pytest.approx(1.0, abs=0.1)

    def test_no_key_of_a_class_is_left_waiting(self) -> None:
        clients = [Client(key=n, starts=n * 0.7) for n in range(40)]
        outcome = run(clients, slots=4, seconds=300, warm=40)
        longest = max(max(waits) for waits in outcome.waits.values())
        assert longest <= 2 * 40 / 4
