"""How many servers a deployment should have, as a pure function of bounds, figures and time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from apps.core.exceptions import InvalidInput
from apps.serving import schedules
from apps.serving.autoscale_policy import Scaling, check_scaling, policy_of
from apps.serving.domain.autoscale import Decision, Policy, Situation, bounds_at, decide
from apps.serving.domain.autoscale_needs import Metric, Point, Target, covered, need
from apps.serving.domain.schedule import Entry, last_at

NOW = datetime(2030, 3, 6, 12, 0, tzinfo=UTC).timestamp()
POLICY = Policy(least=1, most=8, targets=(Target("in_flight", 4.0),), down_window=60.0)


def points(seconds: float, until: float = NOW, **figures: Any) -> tuple[Point, ...]:
    """Five-second points up to a moment, all with the same figures."""
    known: dict[str, Any] = {"servers": 2.0, "running": 8.0, "waiting": 0.0, "slots": 8.0, **figures}
    return tuple(
        Point(at=until - seconds + 5.0 * each, seconds=5.0, **known) for each in range(int(seconds / 5))
    )


def situation(**changes: Any) -> Situation:
    known: dict[str, Any] = {"replicas": 1, "current": 2, "serving": 2, "now": NOW, "points": points(60)}
    return Situation(**{**known, "since": NOW - 3600.0, **changes})


def decided(policy: Policy = POLICY, **changes: Any) -> tuple[int, str]:
    found = decide(policy, situation(**changes))
    return found.replicas, found.reason


@pytest.mark.parametrize(
    ("metric", "target", "figures", "wanted"),
    [
        # Requests of each server: 16 on two servers with 4 wanted are work for four.
        ("in_flight", 4.0, {"running": 10.0, "waiting": 6.0}, 4),
        ("in_flight", 4.0, {"running": 8.0, "waiting": 0.5}, 2),
        ("in_flight", 4.0, {"running": 8.8, "waiting": 0.0}, 2),
        ("in_flight", 4.0, {"running": 4.4, "waiting": 0.0}, 2),
        ("in_flight", 4.0, {"running": 3.6, "waiting": 0.0}, 1),
        ("in_flight", 4.0, {"running": 0.0, "waiting": 0.0}, 0),
        ("in_flight", 4.0, {"running": 90.0, "waiting": 90.0}, 4),
        ("in_flight", 4.0, {"running": None}, None),
        ("in_flight", 4.0, {"waiting": None}, None),
        # A queue says that servers are missing; that there are too many only free slots can say.
        ("waiting", 1.0, {"waiting": 3.0}, 3),
        ("waiting", 1.0, {"waiting": 2.0}, 2),
        ("waiting", 1.0, {"waiting": 0.0, "running": 2.0}, 1),
        ("waiting", 1.0, {"waiting": 0.0, "running": 3.0}, 2),
        ("waiting", 1.0, {"waiting": 0.0, "running": 2.0, "slots": None}, None),
        ("waiting", 1.0, {"waiting": 0.0, "running": None}, None),
        ("waiting", 1.0, {"waiting": None}, None),
        ("ttft_ms", 500.0, {"ttft_ms": 600.0}, 3),
        ("ttft_ms", 500.0, {"ttft_ms": 5000.0}, 3),
        ("ttft_ms", 500.0, {"ttft_ms": 5000.0, "servers": 4.0}, 6),
        ("ttft_ms", 500.0, {"ttft_ms": 300.0, "running": 7.0}, 2),
        ("ttft_ms", 500.0, {"ttft_ms": 300.0, "running": 1.0}, 1),
        ("ttft_ms", 500.0, {"ttft_ms": None, "running": 1.0}, 1),
        ("ttft_ms", 500.0, {"ttft_ms": None, "running": None}, None),
        # Shares are proportional.
        ("kv_use", 0.5, {"kv_use": 0.9}, 4),
        ("kv_use", 0.5, {"kv_use": 0.52}, 2),
        ("kv_use", 0.5, {"kv_use": 0.2}, 1),
        ("kv_use", 0.5, {"kv_use": None}, None),
        ("gpu_use", 0.6, {"gpu_use": 0.95}, 4),
        ("gpu_use", 0.6, {"gpu_use": None, "running": 0.0, "waiting": 0.0}, 0),
        ("gpu_use", 0.6, {"gpu_use": None, "running": 1.0}, None),
        ("in_flight", 4.0, {"servers": None}, None),
        ("in_flight", 4.0, {"servers": 0.0}, None),
    ],
)
def test_what_a_moment_asks_for(
    metric: Metric, target: float, figures: dict[str, Any], wanted: int | None
) -> None:
    found = need(points(5, **figures)[0], (Target(metric, target),))
    assert found.servers == wanted
    assert bool(found.missing) == (wanted is None)


def test_the_target_that_asks_for_most_decides_and_a_missing_one_is_said() -> None:
    both = (Target("in_flight", 4.0), Target("kv_use", 0.5))
    found = need(points(5, kv_use=0.9)[0], both)
    assert (found.servers, found.by, found.missing) == (4, "kv_use", ())
    assert need(points(5)[0], both).missing == ("kv_use",)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, (2, "steady")),
        # More only when it was asked for throughout the window.
        ({"points": points(60, running=16.0)}, (4, "up_in_flight")),
        ({"points": points(60) + points(5, NOW, running=16.0)}, (2, "steady")),
        ({"points": points(60, running=160.0)}, (4, "up_in_flight")),
        # Eight are wanted: sixteen for a moment are chance; seventeen are not, nor are eleven all the time.
        ({"points": points(45, NOW - 15, running=6.0) + points(15, running=16.0)}, (2, "steady")),
        ({"points": points(45, NOW - 15) + points(15, running=17.0)}, (4, "up_in_flight")),
        ({"points": points(60, running=11.0)}, (3, "up_in_flight")),
        ({"points": points(60, running=11.0)[:-1] + points(5, running=8.0)}, (2, "steady")),
        ({"points": points(30, NOW - 30, servers=1.0) + points(30, running=11.0)}, (2, "steady")),
        ({"current": 8, "serving": 8, "points": points(60, servers=8.0, running=80.0)}, (8, "most")),
        ({"points": points(60, running=16.0), "last_up": NOW - 5.0}, (2, "cooldown")),
        ({"points": points(60, running=16.0), "last_up": NOW - 20.0}, (4, "up_in_flight")),
        # What was asked for is not asked for again while it starts.
        ({"current": 4, "points": points(60, running=16.0)}, (4, "steady")),
        ({"current": 4, "points": points(60, running=40.0)}, (4, "steady")),
        (
            {"current": 3, "points": points(60, running=20.0), "reason": "no_free_share"},
            (3, "no_room"),
        ),
        # Fewer only when the whole window is known and asks for no more.
        ({"points": points(60, running=2.0)}, (1, "down")),
        ({"points": points(30, NOW - 30, running=8.0) + points(30, running=2.0)}, (2, "steady")),
        ({"points": points(30, running=2.0)}, (2, "missing")),
        ({"points": points(55, NOW - 5, running=2.0) + points(5, running=None)}, (2, "missing")),
        ({"points": points(20, NOW - 40, running=None) + points(40, running=2.0)}, (2, "missing")),
        ({"points": points(60, running=2.0), "last_up": NOW - 30.0}, (2, "cooldown")),
        ({"points": points(60, running=2.0), "last_down": NOW - 30.0}, (2, "cooldown")),
        ({"points": points(60, running=2.0), "serving": 1}, (2, "starting")),
        ({"points": points(60, running=2.0), "rolling": True}, (2, "rollout")),
        ({"points": points(60, running=16.0), "rolling": True}, (4, "up_in_flight")),
        ({"points": points(60, running=2.0), "since": NOW - 20.0}, (2, "new")),
        # Old figures change nothing, whatever they say.
        ({"points": ()}, (2, "stale")),
        ({"points": points(60, NOW - 25, running=160.0)}, (2, "stale")),
        ({"points": points(60, NOW - 25, running=0.0)}, (2, "stale")),
        ({"points": points(60, running=None)}, (2, "missing")),
        # Bounds come first.
        ({"current": 9, "serving": 9}, (8, "bounds")),
        ({"current": 9, "serving": 9, "rolling": True}, (9, "rollout")),
        ({"current": 9, "serving": 9, "points": ()}, (8, "bounds")),
    ],
)
def test_decisions_by_load(changes: dict[str, Any], wanted: tuple[int, str]) -> None:
    assert decided(**changes) == wanted


def test_a_queue_counts_only_after_those_who_start_have_worked_on_it() -> None:
    policy = replace(POLICY, targets=(Target("waiting", 1.0),))
    full = points(60, waiting=6.0)
    assert decided(policy, points=full) == (3, "up_waiting")
    assert decided(policy, points=points(40, NOW - 20, servers=1.0) + points(20, waiting=6.0)) == (
        2,
        "steady",
    )
    assert decided(policy, points=points(30, NOW - 30, servers=1.0) + points(30, waiting=6.0)) == (
        3,
        "up_waiting",
    )


def test_a_moment_of_many_requests_keeps_no_server() -> None:
    quiet, busy = points(40, NOW - 20, running=2.0), points(5, NOW - 15, running=3.0)
    assert decided(points=quiet + busy + points(15, running=2.0)) == (1, "down")


def test_a_load_at_the_edge_of_two_numbers_does_not_flap() -> None:
    current, changes = 2, 0
    seen: list[Point] = []
    last_up = last_down = None
    for step in range(720):
        now = NOW + 5.0 * step
        total = 4.0 * 1.5 + (1.2 if step % 2 else -1.2)
        seen = [
            *seen[-11:],
            Point(now - 5.0, 5.0, float(current), min(total, 4.0 * current), 0.0, 4.0 * current),
        ]
        found = decide(
            POLICY,
            Situation(1, current, current, now, tuple(seen), since=0.0, last_up=last_up, last_down=last_down),
        )
        if found.replicas != current:
            changes += 1
            last_up, last_down = (now, last_down) if found.replicas > current else (last_up, now)
            current = found.replicas
    assert (current, changes) == (2, 0)


IDLE = replace(POLICY, least=0, idle=60.0)
QUIET = {
    "idle_points": points(60, running=0.0),
    "points": points(60, running=0.0),
    "current": 1,
    "serving": 1,
}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        (QUIET, (0, "idle")),
        ({**QUIET, "asked": 1}, (1, "steady")),
        ({**QUIET, "rolling": True}, (1, "steady")),
        ({**QUIET, "serving": 0}, (1, "steady")),
        ({**QUIET, "since": NOW - 30.0}, (1, "steady")),
        ({**QUIET, "since": None}, (1, "steady")),
        ({**QUIET, "idle_points": points(60, running=None)}, (1, "steady")),
        ({**QUIET, "idle_points": points(60, waiting=None)}, (1, "steady")),
        ({**QUIET, "idle_points": points(55, NOW - 5, running=0.0) + points(5, running=0.2)}, (1, "steady")),
        ({**QUIET, "idle_points": points(40, running=0.0)}, (1, "steady")),
        ({"current": 0, "serving": 0, "points": ()}, (0, "asleep")),
        ({"current": 0, "serving": 0, "points": (), "asked": 3}, (1, "asked")),
    ],
)
def test_sleeping_and_waking(changes: dict[str, Any], wanted: tuple[int, str]) -> None:
    assert decided(IDLE, **changes) == wanted
    if wanted == (0, "idle"):
        assert decided(POLICY, **changes) == (1, "steady")


def test_a_deployment_without_targets_sleeps_and_wakes_to_its_replicas() -> None:
    policy = Policy(least=0, most=64, idle=60.0)
    assert decided(policy, replicas=3, current=0, serving=0, points=(), asked=1) == (1, "asked")
    assert decided(policy, replicas=3, current=1, serving=1, points=()) == (3, "bounds")
    quiet = points(60, running=0.0)
    assert decided(policy, replicas=3, current=3, serving=3, points=(), idle_points=quiet) == (0, "idle")


# ---------------------------------------------------------------------- schedules


def at(text: str, zone: str = "Europe/Berlin") -> datetime:
    from zoneinfo import ZoneInfo

    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


@pytest.mark.parametrize(
    ("line", "zone", "now", "wanted"),
    [
        ("0 8 * * *", "Europe/Berlin", "2030-03-06T12:00", "2030-03-06T08:00"),
        ("0 8 * * *", "Europe/Berlin", "2030-03-06T08:00", "2030-03-06T08:00"),
        ("0 8 * * *", "Europe/Berlin", "2030-03-06T07:59", "2030-03-05T08:00"),
        ("*/15 9-17 * * *", "Europe/Berlin", "2030-03-06T12:07", "2030-03-06T12:00"),
        ("30 8 * * mon-fri", "Europe/Berlin", "2030-03-10T12:00", "2030-03-08T08:30"),
        ("0 0 1 * *", "Europe/Berlin", "2030-03-06T12:00", "2030-03-01T00:00"),
        ("0 0 13 * 5", "Europe/Berlin", "2030-03-06T12:00", "2030-03-01T00:00"),
        ("0 0 29 2 *", "Europe/Berlin", "2030-03-06T12:00", "2028-02-29T00:00"),
        ("0 12 25 dec *", "Europe/Berlin", "2030-03-06T12:00", "2029-12-25T12:00"),
        # The clocks go from 02:00 to 03:00: what is left out begins after it.
        ("30 2 * * *", "Europe/Berlin", "2030-03-31T12:00", "2030-03-31T03:30"),
        # They go back from 03:00 to 02:00: what comes twice begins the first time.
        ("30 2 * * *", "Europe/Berlin", "2030-10-27T12:00", "2030-10-27T02:30"),
    ],
)
def test_the_newest_moment_of_a_schedule(line: str, zone: str, now: str, wanted: str) -> None:
    # In an hour that comes twice only moments of one zone compare.
    assert last_at(schedules.parse(line), zone, at(now)) == at(wanted).astimezone(UTC)


def test_a_schedule_that_never_was_says_nothing() -> None:
    assert last_at(schedules.parse("0 0 30 2 *"), "UTC", at("2030-03-06T12:00")) is None


@pytest.mark.parametrize(
    "line", ["", "0 8 * *", "60 8 * * *", "0 24 * * *", "0 8 0 * *", "0 8 * 13 *", "0 8 * * 7-9", "a * * * *",
             "*/0 * * * *", "1-5x * * * *", "*/5;ls * * * *", "0 8 * * foo", "0 8 * * * *", "-1 * * * *"]
)  # fmt: skip
def test_a_line_that_is_no_schedule_is_refused(line: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        schedules.parse(line)
    assert refused.value.field == "at"
    assert refused.value.remedy


def entry(line: str, least: int | None, most: int | None) -> Entry:
    return Entry(schedules.parse(line), "UTC", least, most, line)


def test_the_schedule_sets_bounds_from_its_newest_moment_on() -> None:
    day = (entry("0 8 * * *", 3, None), entry("0 20 * * *", None, 1))
    policy = replace(POLICY, schedule=day)
    noon, night = NOW, NOW + 9 * 3600.0
    assert (bounds_at(policy, noon).least, bounds_at(policy, noon).most) == (3, 8)
    assert (bounds_at(policy, night).least, bounds_at(policy, night).most) == (1, 1)
    assert decided(policy) == (3, "schedule")
    assert decide(policy, situation(now=night)).replicas == 1
    plain = Policy(least=1, most=64, schedule=day)
    assert decided(plain, replicas=2, current=2) == (3, "schedule")
    assert decide(plain, situation(now=night, replicas=2, current=3, serving=3)).replicas == 1


def test_a_schedule_wakes_and_keeps_awake() -> None:
    policy = replace(IDLE, schedule=(entry("0 8 * * *", 2, None), entry("0 20 * * *", 0, None)))
    assert decided(policy, current=0, serving=0, points=()) == (2, "schedule")
    assert decided(policy, **{**QUIET, "current": 2, "serving": 2})[0] == 2
    night = NOW + 9 * 3600.0
    quiet = points(60, night, running=0.0)
    found = decide(policy, situation(now=night, points=quiet, idle_points=quiet))
    assert (found.replicas, found.reason) == (0, "idle")


def test_a_decision_keeps_the_figures_that_led_to_it() -> None:
    found: Decision = decide(POLICY, situation(points=points(60, running=20.0), asked=2))
    assert found.figures["targets"] == {"in_flight": {"is": 10.0, "wanted": 4.0}}
    assert (found.figures["current"], found.figures["least"], found.figures["most"]) == (2, 1, 8)
    assert (found.figures["asked"], found.figures["at"]) == (2, NOW)
    assert found.sentence == "Requests of each server: 10 for 15 s or more, the target is 4."
    slowly = decide(POLICY, situation(points=points(60, running=11.0)))
    assert slowly.sentence == "Requests of each server: 5.5 on average over 60 s, the target is 4."


def test_how_much_of_a_range_is_told() -> None:
    assert covered(points(60), NOW - 60, NOW) == 1.0
    assert covered(points(30), NOW - 60, NOW) == 0.5
    assert covered((), NOW - 60, NOW) == 0.0


# ---------------------------------------------------------------------- what people give


@pytest.mark.parametrize(
    ("given", "field", "word"),
    [
        ({"min_replicas": 0}, "scaling", "idle_seconds"),
        ({"idle_seconds": 60}, "scaling", "min_replicas 0"),
        ({"min_replicas": 3, "max_replicas": 2}, "scaling", "above max_replicas"),
        ({"targets": [{"metric": "in_flight", "value": 4}]}, "scaling", "max_replicas"),
        (
            {"targets": [{"metric": "cpu", "value": 4}], "max_replicas": 2},
            "scaling.targets.0.metric",
            "in_flight",
        ),
        ({"targets": [{"metric": "kv_use", "value": 80}], "max_replicas": 2}, "scaling.targets.0", "share"),
        (
            {"targets": [{"metric": "waiting", "value": 0}], "max_replicas": 2},
            "scaling.targets.0.value",
            "greater",
        ),
        ({"schedule": [{"at": "0 25 * * *", "min_replicas": 1}]}, "scaling.schedule.0.at", "hour"),
        (
            {"schedule": [{"at": "0 8 * * *", "timezone": "Mars/Olympus", "min_replicas": 1}]},
            "scaling.schedule.0.timezone",
            "Mars",
        ),
        ({"schedule": [{"at": "0 8 * * *"}]}, "scaling.schedule.0", "both"),
        (
            {"schedule": [{"at": "0 8 * * *", "min_replicas": 5, "max_replicas": 2}]},
            "scaling.schedule.0",
            "above",
        ),
        ({"down_window_seconds": 1}, "scaling.down_window_seconds", "5"),
        ({"replicas": 2}, "scaling.replicas", "xtra"),
        ("2..6", "scaling", "mapping"),
    ],
)
def test_wrong_settings_are_refused_by_field(given: Any, field: str, word: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_scaling(given)
    assert refused.value.field == field
    assert word in refused.value.sentence


def test_settings_become_a_policy() -> None:
    kept = check_scaling(
        {
            "min_replicas": 0,
            "max_replicas": 4,
            "idle_seconds": 600,
            "targets": [{"metric": "in_flight", "value": 8}],
            "schedule": [{"at": "0 8 * * MON-FRI", "timezone": "Europe/Berlin", "min_replicas": 2}],
        }
    )
    assert "up_window_seconds" not in kept
    settings = Scaling.model_validate(kept)
    policy = policy_of(settings)
    assert (policy.least, policy.most, policy.idle) == (0, 4, 600.0)
    assert policy.targets == (Target("in_flight", 8.0),)
    assert policy.schedule[0].text == "0 8 * * mon-fri Europe/Berlin"
    assert (settings.start(1), settings.start(9), Scaling().start(3), Scaling().acts) == (1, 4, 3, False)
