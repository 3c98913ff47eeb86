"""Adaptive batching: the controller as a table, and its moves on the gateway's table, the audit trail, the charts."""

from __future__ import annotations

import time
from typing import Any

import pytest

from apps.accounts.roles import OPERATOR, VIEWER
from apps.control import adaptive
from apps.control.domain.adaptive import (
    Aim,
    Bounds,
    Memory,
    Pace,
    Seen,
    Setting,
    Track,
    decide,
    memory_of,
)
from apps.core.exceptions import InvalidInput, NotAllowed
from apps.core.models import AuditEntry
from apps.dashboard.charts import marks
from apps.gateway import adaptive as admission
from apps.gateway import services
from apps.gateway.models import RequestLog
from apps.gateway.table import current_version, load_table
from apps.serving.models import Deployment
from tests import people
from tests.loadtests.test_services import serving_deployment

AIM = Aim(ttft_ms=1000.0, itl_ms=50.0)
BOUNDS = Bounds(admitted=(2, 16), queue=(1, 100), delay=(0, 100_000))
NOW = Pace(hold=1, settle_seconds=0.0)
# Eight slots, each held for four seconds: two answers/s are all that they give.
BUSY = Setting(admitted=8, queue=50)
FULL = {"requests": 50, "arrivals_per_second": 3.0, "answers_per_second": 2.0}


def seen(**values: Any) -> Seen:
    return Seen(**{**FULL, **values})


@pytest.mark.parametrize(
    ("setting", "given", "lever", "after"),
    [
        # Time between tokens beyond the promise: fewer at once in proportion, a fifth at most, one at least.
        (Setting(admitted=16), {"itl_ms": 90.0}, "admitted", 12),
        (Setting(admitted=16), {"itl_ms": 51.0}, "admitted", 14),
        (Setting(admitted=3), {"itl_ms": 60.0}, "admitted", 2),
        (Setting(admitted=2), {"itl_ms": 60.0}, "admitted", None),
        # Well within and somebody waits: more in proportion, a quarter at most; nobody waits or at the bound: none.
        (Setting(admitted=8), {"itl_ms": 30.0, "waiting": 3.0}, "admitted", 10),
        (Setting(admitted=12), {"itl_ms": 39.0, "waiting": 3.0}, "admitted", 13),
        (Setting(admitted=2), {"itl_ms": 39.0, "waiting": 3.0}, "admitted", 3),
        (Setting(admitted=8), {"itl_ms": 30.0, "waiting": 0.0}, "admitted", None),
        (Setting(admitted=16), {"itl_ms": 30.0, "waiting": 3.0}, "admitted", None),
        # Between low and high nothing moves; what is absent or rests on few requests moves nothing.
        (Setting(admitted=8), {"itl_ms": 45.0, "waiting": 3.0}, "admitted", None),
        (Setting(admitted=8), {}, "admitted", None),
        (Setting(admitted=8), {"itl_ms": 90.0, "requests": 2}, "admitted", None),
        # As many may wait as have their first token in time nine times out of ten: 1 s at 2 or 8 answers/s.
        (Setting(queue=50), {"ttft_ms": 4000.0}, "queue", 1),
        (Setting(queue=50), {"ttft_ms": 700.0}, "queue", None),
        (BUSY, {"ttft_ms": 700.0, "waiting": 2.0, "slot_seconds": 4.0}, "queue", None),
        # More wait than that: theirs will come late, whatever those saw who were answered.
        (BUSY, {"ttft_ms": 700.0, "waiting": 3.0, "slot_seconds": 4.0}, "queue", 1),
        (BUSY, {"ttft_ms": None, "waiting": 3.0, "slot_seconds": 4.0}, "queue", 1),
        # Slots that are free most of the time tell what is asked of them, not what they give: 8 slots of 1 s.
        (BUSY, {"ttft_ms": 700.0, "waiting": 7.0, "slot_seconds": 1.0}, "queue", None),
        (Setting(queue=1), {"ttft_ms": 200.0, "refused_share": 0.2, "answers_per_second": 8.0}, "queue", 5),
        (
            Setting(queue=1),
            {"ttft_ms": 200.0, "refused_share": 0.0, "answers_per_second": 8.0},
            "queue",
            None,
        ),
        # Half a batch of 8 comes in 400 ms at 10 requests/s, but a quarter of the promise is 250 ms: bound 100 ms.
        (Setting(admitted=8, delay=0), {"arrivals_per_second": 10.0}, "delay", 100_000),
        (Setting(admitted=8, delay=0), {"arrivals_per_second": 80.0}, "delay", 50_000),
        (Setting(admitted=8, delay=50_000), {"arrivals_per_second": 1.0}, "delay", 0),
        (Setting(admitted=8, delay=50_000), {"arrivals_per_second": 80.0, "waiting": 9.0}, "delay", 0),
        (Setting(admitted=8, delay=45_000), {"arrivals_per_second": 80.0}, "delay", None),
        # A lever outside its bounds is brought inside at once.
        (Setting(admitted=40), {}, "admitted", 16),
    ],
)
def test_each_lever_moves_by_the_figure_that_it_acts_on(
    setting: Setting, given: dict[str, Any], lever: str, after: int | None
) -> None:
    found, _memory, moves = decide(setting, BOUNDS, AIM, NOW, seen(**given), Memory(), 100.0)
    mine = [move for move in moves if move.lever == lever]
    assert [move.after for move in mine] == ([] if after is None else [after])
    assert getattr(found, lever) == (getattr(setting, lever) if after is None else after)
    assert all(move.sentence for move in moves)


def test_it_holds_rests_and_does_not_swing() -> None:
    pace, setting, memory = Pace(hold=2, settle_seconds=15.0), Setting(admitted=10), Memory()
    slow, quick = seen(itl_ms=70.0), seen(itl_ms=20.0, waiting=5.0)
    story = []
    for now, what in [
        (0, slow),
        (5, quick),
        (10, slow),
        (15, slow),
        (20, slow),
        (25, quick),
        (30, quick),
        (35, quick),
    ]:
        setting, memory, _moves = decide(setting, BOUNDS, AIM, pace, what, memory, float(now))
        story.append(setting.admitted)
    # One look is no reason; two in a row are; it rests for 15 s, and for 30 s before it turns back.
    assert story == [10, 10, 10, 8, 8, 8, 8, 8]
    setting, memory, moves = decide(setting, BOUNDS, AIM, pace, quick, memory, 46.0)
    assert (setting.admitted, len(moves)) == (10, 1)


def test_a_queue_of_which_most_come_too_late_needs_no_second_look() -> None:
    pace, held = Pace(hold=2, settle_seconds=15.0), {"slot_seconds": 4.0}
    found, memory, moves = decide(BUSY, BOUNDS, AIM, pace, seen(waiting=3.0, **held), Memory(), 0.0)
    assert (found.queue, moves, memory.busy_rate) == (50, (), 2.0)
    assert memory_of(memory.as_dict()) == memory
    found, memory, moves = decide(BUSY, BOUNDS, AIM, pace, seen(waiting=5.0, **held), Memory(), 0.0)
    assert (found.queue, [move.reason for move in moves]) == (1, ["queue_beyond"])
    # And then it rests like any other.
    quick = seen(ttft_ms=100.0, refused_share=0.5, answers_per_second=20.0)
    for now in (5.0, 10.0, 14.0):
        found, memory, moves = decide(found, BOUNDS, AIM, pace, quick, memory, now)
        assert moves == ()


def test_what_it_remembers_survives_and_rubbish_is_forgotten() -> None:
    memory = Memory({"admitted": Track(1, 2, 5.0, -1)})
    assert memory_of(memory.as_dict()) == memory
    assert memory_of({"admitted": {"way": 1}, "beauty": {}, "queue": 3}) == Memory()


# ---------------------------------------------------------------------- with rows


@pytest.fixture
def demo(db: None) -> Deployment:
    """A deployment that serves with 16 slots, adaptive admission on."""
    row = serving_deployment()
    settings = {
        "enabled": True,
        "itl_ms": 50.0,
        "ttft_ms": 1000.0,
        "hold": 1,
        "settle_seconds": 0,
        "window_seconds": 5,
    }
    services.save_adaptive(people.person(OPERATOR), row, settings)
    return row


def test_a_move_is_in_the_gateways_table_in_the_audit_trail_and_on_the_charts(demo: Deployment) -> None:
    assert load_table().routes["demo"].upstreams[0].slots == 16
    before = current_version()
    slow = seen(itl_ms=80.0, ttft_ms=5000.0, waiting=20.0, running=16.0)
    assert adaptive.sweep(lambda _row, _seconds: slow, now=1000.0) == 2
    route = load_table().routes["demo"]
    assert (route.upstreams[0].slots, route.queue_size) == (12, 4)
    assert current_version() > before
    entry = AuditEntry.objects.filter(verb=admission.MOVED).earliest("pk")
    assert (entry.detail["before"], entry.detail["after"]) == (16, 12)
    assert entry.detail["figures"]["itl_ms"] == 80.0
    drawn = marks.of(demo, time.time() - 60, time.time() + 60)
    assert {"admits 12", "queue 4"} <= {mark.label for mark in drawn}
    # Nothing to do: nothing is written but the look.
    calm = seen(itl_ms=45.0, ttft_ms=900.0)
    version = current_version()
    assert adaptive.sweep(lambda _row, _seconds: calm, now=1005.0) == 0
    row = admission.of(demo)
    assert row is not None
    assert (row.admitted, current_version()) == (12, version)
    assert "ITL p90 45 ms" in row.sentence


def test_switched_off_its_bounds_are_gone_and_a_look_that_was_under_way_keeps_nothing(
    demo: Deployment,
) -> None:
    (stale,) = admission.enabled()
    services.save_adaptive("test", demo, {"enabled": False})
    assert adaptive.look(stale, seen(itl_ms=80.0), 1000.0) == 0
    assert load_table().routes["demo"].upstreams[0].slots == 16
    assert adaptive.sweep() == 0


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"enabled": True, "ttft_ms": None, "itl_ms": None}, "ttft_ms", "Nothing is promised"),
        ({"least_admitted": 8, "most_admitted": 4}, "", "exchange them"),
        ({"least_queue": 8, "most_queue": 4}, "", "exchange them"),
        ({"hold": 0}, "hold", "greater than or equal to 1"),
        ({"beauty": 1}, "beauty", "Extra inputs"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    demo: Deployment, given: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        services.save_adaptive("test", demo, given)
    assert caught.value.field == field
    with pytest.raises(NotAllowed):
        services.save_adaptive(people.person(VIEWER), demo, {"enabled": False})


def test_it_sees_what_requests_saw(demo: Deployment) -> None:
    from apps.core import clock

    for number in range(10):
        RequestLog.objects.create(
            request_id=str(number),
            at=clock.now(),
            route="demo",
            endpoint="chat",
            status=200,
            outcome="ok" if number else "refused",
            ttft_ms=100.0 * number,
            total_ms=100.0 * number + 1000.0,
            completion_tokens=11,
        )
    found = adaptive.seen_by(demo, 10.0)
    assert (found.requests, found.arrivals_per_second, found.refused_share) == (9, 1.0, 0.1)
    assert found.itl_ms == pytest.approx(100.0)
    assert found.ttft_ms == pytest.approx(820.0)
