"""Conditions over samples: true, false, and cannot say."""

from __future__ import annotations

from typing import Any

import pytest

from apps.core.exceptions import InvalidInput
from apps.telemetry.domain.alerting import burn, conditions, judge
from apps.telemetry.domain.alerting.burn import Requests
from apps.telemetry.domain.alerting.conditions import Absence, BurnRate, Change, Events, InState, Threshold

NOW = 1_000_000.0


def samples(
    values: list[float | None], key: str = "kv_use", end: float = NOW, step: float = 1.0
) -> list[dict[str, Any]]:
    """One sample every `step` seconds, the last at `end`."""
    first = end - (len(values) - 1) * step
    return [{"at": first + index * step, key: value} for index, value in enumerate(values)]


ABOVE = Threshold(key="kv_use", value=0.9, clear=0.8, window_seconds=15)


@pytest.mark.parametrize(
    ("values", "active", "cleared"),
    [
        ([0.95] * 20, True, False),
        ([0.85] * 20, False, False),  # between the two: stays what it is
        ([0.7] * 20, False, True),
        ([0.9] * 20, False, False),  # at the limit is not above it
        ([None] * 5 + [0.95] * 15, True, False),
    ],
)
def test_a_threshold_with_hysteresis(values: list[float | None], active: bool, cleared: bool) -> None:
    found = judge.threshold(ABOVE, samples(values), NOW)
    assert (found.active, found.cleared) == (active, cleared)
    assert found.limit == 0.9


def test_null_is_neither_true_nor_false() -> None:
    found = judge.threshold(ABOVE, samples([None] * 20), NOW)
    assert (found.active, found.cleared, found.silence) == (None, None, "null")
    # And never 0: "below" does not hold for what is not told.
    below = Threshold(key="kv_use", compare="below", value=0.5)
    assert judge.threshold(below, samples([None] * 20), NOW).active is None


def test_old_samples_say_nothing_about_now() -> None:
    found = judge.threshold(ABOVE, samples([0.95] * 20, end=NOW - 16), NOW)
    assert (found.active, found.silence) == (None, "gap")
    assert judge.threshold(ABOVE, [], NOW).silence == "gap"


@pytest.mark.parametrize(
    ("statistic", "value"), [("mean", 3.25), ("median", 1.5), ("max", 9.0), ("min", 1.0), ("last", 9.0)]
)
def test_statistics_of_the_window(statistic: Any, value: float) -> None:
    condition = Threshold(key="requests_waiting", value=0, statistic=statistic, window_seconds=4)
    old = samples([100.0] * 10, "requests_waiting", end=NOW - 4)
    found = judge.threshold(condition, old + samples([1.0, 1.0, 2.0, 9.0], "requests_waiting"), NOW)
    assert found.value == value


def test_a_share_of_two_metrics() -> None:
    condition = Threshold(key="gpu_memory_used_bytes", per="gpu_memory_total_bytes", value=0.97, clear=0.95)
    made = [{"at": NOW - 1, "gpu_memory_used_bytes": 98.0, "gpu_memory_total_bytes": 100.0}]
    assert judge.threshold(condition, made, NOW).active
    for total in (None, 0.0):
        without = [{"at": NOW - 1, "gpu_memory_used_bytes": 98.0, "gpu_memory_total_bytes": total}]
        assert judge.threshold(condition, without, NOW).active is None


def test_below_clears_above() -> None:
    condition = Threshold(key="kv_use", compare="below", value=0.5)
    assert condition.clear_value == pytest.approx(0.55)
    assert judge.threshold(condition, samples([0.4] * 20), NOW).active
    assert judge.threshold(condition, samples([0.52] * 20), NOW).cleared is False
    assert judge.threshold(condition, samples([0.6] * 20), NOW).cleared


def test_a_limit_of_zero_clears_at_zero() -> None:
    condition = Threshold(key="gpu_ecc_uncorrected", value=0, statistic="last")
    assert judge.threshold(condition, samples([1.0], "gpu_ecc_uncorrected"), NOW).active
    found = judge.threshold(condition, samples([0.0], "gpu_ecc_uncorrected"), NOW)
    assert (found.active, found.cleared) == (False, True)


FALL = Change(
    key="cached_prompt_share", direction="fall", by=0.5, at_least=0.1, window_seconds=60, baseline_seconds=120
)


def test_a_hit_rate_that_falls() -> None:
    series = samples([0.8] * 120 + [0.3] * 60, "cached_prompt_share")
    found = judge.change(FALL, series, NOW)
    assert found.active
    assert found.value == pytest.approx(0.3)
    assert found.limit == pytest.approx(0.4)
    assert found.facts["baseline"] == pytest.approx(0.8)
    assert judge.change(FALL, samples([0.8] * 120 + [0.5] * 60, "cached_prompt_share"), NOW).active is False
    assert judge.change(FALL, samples([0.8] * 180, "cached_prompt_share"), NOW).cleared


def test_a_baseline_near_zero_says_nothing_about_a_fall() -> None:
    assert judge.change(FALL, samples([0.05] * 120 + [0.0] * 60, "cached_prompt_share"), NOW).active is False


def test_a_change_over_a_gap_is_not_said() -> None:
    before = samples([0.8] * 60, "cached_prompt_share", end=NOW - 200)
    assert judge.change(FALL, before + samples([0.1] * 60, "cached_prompt_share"), NOW).silence == "gap"
    # Half of the recent window missing is a gap too.
    partly = samples([0.8] * 150, "cached_prompt_share", end=NOW - 40)
    assert judge.change(FALL, partly, NOW).active is None


def test_a_change_needs_values_not_only_samples() -> None:
    idle = samples([0.8] * 120 + [None] * 57 + [0.1] * 3, "cached_prompt_share")
    found = judge.change(FALL, idle, NOW)
    assert (found.active, found.silence) == (None, "null")


def test_a_queue_that_grows_by_an_amount() -> None:
    rule = Change(
        key="requests_waiting",
        direction="rise",
        by=4,
        relative=False,
        window_seconds=60,
        baseline_seconds=120,
    )
    assert judge.change(rule, samples([0.0] * 120 + [4.5] * 60, "requests_waiting"), NOW).active
    assert judge.change(rule, samples([50.0] * 180, "requests_waiting"), NOW).active is False
    # A relative rise from nothing is not a number.
    relative = rule.model_copy(update={"relative": True, "by": 0.5})
    assert judge.change(relative, samples([0.0] * 180, "requests_waiting"), NOW).active is None


def test_coarse_samples_cover_their_windows() -> None:
    series = samples([0.8] * 12 + [0.3] * 6, "cached_prompt_share", step=10.0)
    assert judge.change(FALL, series, NOW).active


def test_absence_is_a_kind_of_its_own() -> None:
    rule = Absence(seconds=30)
    assert judge.absence(rule, samples([0.1] * 5), NOW, NOW - 500).active is False
    assert judge.absence(rule, samples([0.1] * 5, end=NOW - 31), NOW, NOW - 500).active
    assert judge.absence(rule, [], NOW, NOW - 31).active
    # Nobody listened long enough to say so.
    found = judge.absence(rule, samples([0.1] * 5, end=NOW - 300), NOW, NOW - 10)
    assert (found.active, found.silence) == (None, "gap")


def test_absence_of_one_metric() -> None:
    rule = Absence(key="kv_use", seconds=30)
    series = samples([0.5] * 3, end=NOW - 60) + samples([None] * 60)
    assert judge.absence(rule, series, NOW, NOW - 500).active
    assert judge.absence(Absence(seconds=30), series, NOW, NOW - 500).active is False


def test_events_are_counted_in_their_window() -> None:
    rule = Events(event="instance_restart", count=2, within_seconds=600)
    assert judge.events(rule, [NOW - 10, NOW - 599], NOW).active
    found = judge.events(rule, [NOW - 10, NOW - 601], NOW)
    assert (found.active, found.cleared, found.value) == (False, True, 1.0)


def test_states() -> None:
    rule = InState(states=("lost",))
    assert judge.in_state(rule, "lost").active
    assert judge.in_state(rule, "ready").cleared


BURN = BurnRate(indicator="errors", objective=0.99)


def counts(**by_window: tuple[float | None, float | None]) -> Any:
    return lambda seconds: Requests(*by_window[f"s{seconds}"])


def test_a_budget_burns_only_where_both_windows_say_so() -> None:
    quiet = (1000.0, 1.0)
    fast = (1000.0, 200.0)  # burn rate 20
    slow = (1000.0, 80.0)  # burn rate 8
    page = counts(s3600=fast, s300=fast, s21600=quiet, s1800=quiet)
    found = burn.judge(BURN, page)
    assert (found.active, found.cleared) == (True, False)
    assert found.value == pytest.approx(20.0)
    assert found.limit == 14.4
    over = burn.judge(BURN, counts(s3600=fast, s300=quiet, s21600=quiet, s1800=quiet))
    assert (over.active, over.cleared) == (False, True)
    assert burn.judge(BURN, counts(s3600=slow, s300=slow, s21600=slow, s1800=slow)).active
    assert burn.judge(BURN, counts(s3600=slow, s300=slow, s21600=quiet, s1800=quiet)).active is False


def test_a_budget_says_nothing_without_requests() -> None:
    nothing = (None, None)
    assert burn.judge(BURN, counts(s3600=nothing, s300=nothing, s21600=nothing, s1800=nothing)).active is None
    few = (5.0, 5.0)
    assert burn.judge(BURN, counts(s3600=few, s300=few, s21600=few, s1800=few)).active is None


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({}, "condition.kind"),
        ({"kind": "sql"}, "condition.kind"),
        ("threshold", "condition"),
        ({"kind": "threshold", "key": "kv_usage", "value": 1}, "condition.key"),
        ({"kind": "threshold", "key": "kv_use"}, "condition.value"),
        ({"kind": "threshold", "key": "kv_use", "value": float("nan")}, "condition.value"),
        ({"kind": "threshold", "key": "kv_use", "value": 1, "clear": 2}, "condition"),
        ({"kind": "threshold", "key": "kv_use", "value": 1, "window_seconds": 0}, "condition.window_seconds"),
        ({"kind": "threshold", "key": "kv_use", "value": 1, "threshold": 2}, "condition.threshold"),
        ({"kind": "change", "key": "kv_use", "direction": "fall", "by": 2}, "condition"),
        ({"kind": "burn_rate", "indicator": "ttft"}, "condition"),
        ({"kind": "burn_rate", "indicator": "errors", "limit_ms": 5}, "condition"),
        ({"kind": "burn_rate", "indicator": "errors", "objective": 0.5}, "condition"),
        ({"kind": "state", "states": []}, "condition.states"),
        ({"kind": "state", "states": ["sleepy"]}, "condition.states"),
        ({"kind": "events", "event": "instance_restart", "count": 0}, "condition.count"),
    ],
)
def test_a_condition_that_cannot_be_is_refused_at_its_field(value: Any, where: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        conditions.parse(value, "deployment", {"deployment": ("ready", "failed")})
    assert caught.value.field == where
    assert caught.value.remedy


def test_a_kind_that_does_not_fit_its_target_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot be asked of a node"):
        conditions.parse({"kind": "burn_rate", "indicator": "errors"}, "node")


def test_both_spellings_are_read_and_written() -> None:
    camel = {"kind": "threshold", "key": "kv_use", "value": 0.9, "windowSeconds": 30}
    found = conditions.parse(camel, "deployment")
    assert found == conditions.parse({**conditions.plain(found)}, "deployment")
    assert conditions.plain(found, camel=True)["windowSeconds"] == 30
    assert conditions.plain(found)["window_seconds"] == 30
