"""Comparing: the verdict's words, corrections, spreads of repeats, and how many instances a load needs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from apps.loadtests.domain import student
from apps.loadtests.domain.capacity import Point, highest_rate, plan
from apps.loadtests.domain.compare import (
    METRICS,
    Arm,
    Comparison,
    Difference,
    Sample,
    compare,
    sample,
    sentence,
    value_of,
)
from apps.loadtests.domain.metrics import Slo, Window
from apps.loadtests.domain.records import columns
from tests.loadtests.rows import SECONDS, synthetic

WINDOW = Window(4.0, SECONDS)


def _sample(seed: int, speed: float = 1.0) -> Sample:
    return sample(columns(synthetic(seed, speed)), WINDOW, "closed", Slo(ttft_ms=500))


def _compare(speeds: list[float], others: list[float], **more: object) -> Comparison:
    one = Arm("old", [_sample(10 + index, speed) for index, speed in enumerate(speeds)])
    other = Arm("new", [_sample(50 + index, speed) for index, speed in enumerate(others)])
    return compare([one, other], **more)  # type: ignore[arg-type]


def test_a_faster_side_is_found_with_an_interval_around_the_truth() -> None:
    found = _compare([1, 1, 1], [1.2, 1.2, 1.2]).arms[0]
    tokens = found.differences["output_tokens_per_second"]
    assert tokens.better is True
    assert tokens.low < 1.2 < tokens.high
    assert found.differences["latency_mean_ms"].better is True
    assert found.verdict.startswith("+")
    assert "tokens/s (" in found.verdict


def test_the_same_twice_is_not_called_different() -> None:
    found = _compare([1, 1, 1], [1, 1, 1]).arms[0]
    assert not any(item.different for item in found.differences.values())
    assert "no difference in tokens/s shown" in found.verdict


def test_repeats_that_differ_beyond_their_noise_widen_the_interval() -> None:
    steady = _compare([1, 1, 1], [1.2, 1.2, 1.2]).arms[0].differences["output_tokens_per_second"]
    wild = _compare([1, 1, 1], [0.8, 1.2, 1.7]).arms[0].differences["output_tokens_per_second"]
    assert wild.spread
    assert not wild.different
    assert math.log(wild.high / wild.low) > 3 * math.log(steady.high / steady.low)


WORLDS = {
    # Whether requests hang together inside a run, how far whole runs differ, how heavy the tails are.
    "quiet": (0.0, 0.0, 3.0),
    "hangs together": (0.9, 0.0, 3.0),
    "runs differ": (0.3, 0.05, 3.0),
    "heavy tails": (0.6, 0.03, 1.2),
}


def _world(drawn: np.random.Generator, world: str, faster: float) -> Sample:
    """A run of a known world: tokens a block, autocorrelated, times an effect of the run."""
    tied, between, tail = WORLDS[world]
    noise = drawn.standard_t(tail * 2, 24) * 0.08
    for index in range(1, noise.size):
        noise[index] = tied * noise[index - 1] + math.sqrt(1 - tied**2) * noise[index]
    effect = math.exp(drawn.normal(0, between)) * faster
    return Sample(24.0, 24, {"tokens": 100 * effect * np.exp(np.clip(noise, -1, 1))}, {})


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("repeats", [3, 6])
def test_false_alarms_stay_at_their_level_whatever_hangs_together(world: str, repeats: int) -> None:
    drawn = np.random.default_rng(5)
    count, alarms = 300, 0
    for number in range(count):
        arms = [Arm(side, [_world(drawn, world, 1.0) for _ in range(repeats)]) for side in "AB"]
        found = compare(arms, seed=number, metrics=["output_tokens_per_second"], draws=4).arms[0]
        alarms += found.differences["output_tokens_per_second"].different
    # 5% of 300 comparisons is 15, give or take 3.8.
    assert 4 <= alarms <= 27


def test_two_runs_alone_are_judged_by_their_own_noise_and_it_is_said() -> None:
    found = _compare([1], [1.2])
    assert found.arms[0].differences["output_tokens_per_second"].different
    assert "Fewer than three runs" in found.notes[0]
    assert not _compare([1, 1, 1], [1, 1, 1]).notes


def test_drift_that_hits_both_sides_of_a_repeat_cancels_in_pairs() -> None:
    paired = _compare([0.8, 1, 1.3], [0.96, 1.2, 1.56])
    assert paired.paired
    assert paired.arms[0].differences["output_tokens_per_second"].different
    unpaired = _compare([0.8, 1, 1.3], [0.96, 1.2])
    assert not unpaired.paired
    assert not unpaired.arms[0].differences["output_tokens_per_second"].different
    assert "not compared repeat by repeat" in unpaired.notes[0]


def test_every_other_metric_is_corrected_for_being_many() -> None:
    found = _compare([1, 1, 1], [1.2, 1.2, 1.2], primary="latency_mean_ms").arms[0].differences
    assert found["latency_mean_ms"].p_adjusted == found["latency_mean_ms"].p
    others = [item for name, item in found.items() if name != "latency_mean_ms"]
    assert all(item.p_adjusted >= item.p for item in others)
    smallest = min(others, key=lambda item: item.p)
    assert smallest.p_adjusted == pytest.approx(min(1, smallest.p * len(others)))


def test_a_metric_that_a_run_lacks_is_left_out() -> None:
    one, other = _sample(1), _sample(2)
    bare = Sample(other.seconds, other.blocks, {"tokens": other.rates["tokens"]}, {})
    found = compare([Arm("a", [one]), Arm("b", [bare])]).arms[0].differences
    assert set(found) == {"output_tokens_per_second"}


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(ValueError, match="two configurations"):
        compare([Arm("a", [_sample(1)]), Arm("b", [])])


def _difference(metric: str, ratio: float, low: float, high: float, different: bool) -> Difference:
    better = (ratio > 1) == METRICS[metric].more if different else None
    return Difference(metric, 1.0, ratio, ratio, low, high, 0.01, 0.01, different, better, False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            [
                ("output_tokens_per_second", 1.18, 1.15, 1.21, True),
                ("ttft_p99_ms", 0.99, 0.95, 1.03, False),
            ],
            "+18% tokens/s (15 to 21); TTFT p99 no worse",
        ),
        ([("output_tokens_per_second", 0.9, 0.85, 0.96, True)], "\u221210% tokens/s (\u221215 to \u22124)"),
        (
            [("output_tokens_per_second", 1.01, 0.98, 1.04, False)],
            "no difference in tokens/s shown (\u22122 to 4)",
        ),
        (
            [("output_tokens_per_second", 1.2, 1.1, 1.3, True), ("latency_p99_ms", 1.25, 1.1, 1.4, True)],
            "+20% tokens/s (10 to 30); latency p99 25% higher (10 to 40)",
        ),
        (
            [("output_tokens_per_second", 1.2, 1.1, 1.3, True), ("ttft_p99_ms", 1.05, 0.9, 1.2, False)],
            "+20% tokens/s (10 to 30); TTFT p99 undecided (\u221210 to 20)",
        ),
        ([], "Output tokens was not measured in every run"),
    ],
)
def test_the_verdict_in_words(given: list[tuple[str, float, float, float, bool]], words: str) -> None:
    differences = {item[0]: _difference(*item) for item in given}
    assert sentence(differences, "output_tokens_per_second") == words


def test_student() -> None:
    assert student.t_quantile(0.95, 2) == pytest.approx(4.3027, abs=1e-3)
    assert student.t_quantile(0.95, 1000) == pytest.approx(1.9623, abs=1e-3)
    assert student.t_two_sided(2.2281, 10) == pytest.approx(0.05, abs=1e-4)
    assert student.chi_squared_above(5.991, 2) == pytest.approx(0.05, abs=0.01)


def _point(rate: float, ttft_ms: float, seed: int = 0) -> Point:
    """A step whose times to the first token spread by a tenth around `ttft_ms`."""
    drawn = np.random.default_rng(seed)
    values = np.sort(ttft_ms * np.exp(drawn.normal(0, 0.1, 240)))
    block = drawn.integers(0, 12, 240)
    return Point(
        rate,
        Sample(60.0, 12, {"requests": np.bincount(block, minlength=12) * 1.0}, {"ttft": (values, block)}),
    )


CURVE = [_point(rate, ttft) for rate, ttft in ((1, 100), (2, 120), (4, 200), (8, 900))]


def test_capacity_between_measured_steps() -> None:
    found = plan(CURVE, 30, "ttft_p50_ms", 500)
    assert found.rate_each is not None
    assert 4 < found.rate_each < 8
    assert found.instances == math.ceil(30 / found.rate_each)
    assert found.least is not None
    assert found.most is not None
    assert found.least <= found.instances <= found.most
    assert not found.extrapolated
    assert (
        f"For 30 requests/s at TTFT p50 under 500 ms you need {found.instances} instances" in found.sentence
    )
    assert "not measured" in found.notes[0]


def test_capacity_beyond_what_was_measured_says_so() -> None:
    found = plan(CURVE[:3], 30, "ttft_p50_ms", 500)
    assert found.extrapolated
    assert found.rate_each == 4
    assert any("more was not measured" in note for note in found.notes)
    nothing = plan(CURVE, 30, "ttft_p50_ms", 50)
    assert nothing.instances is None
    assert "Not answered" in nothing.sentence


def test_a_step_whose_requests_got_no_answer_does_not_bear_its_rate() -> None:
    quick = [*CURVE[:3], replace(_point(8, 210), lost=0.3)]
    assert plan([*CURVE[:3], _point(8, 210)], 30, "ttft_p50_ms", 500).extrapolated
    found = plan(quick, 30, "ttft_p50_ms", 500)
    assert (found.rate_each, found.extrapolated, len(found.curve)) == (4, False, 3)
    assert "At 8 requests/s 30% got no answer" in found.notes[1]
    none = plan([replace(_point(1, 100), lost=0.5)], 30, "ttft_p50_ms", 500)
    assert none.instances is None
    assert "left 50% without an answer" in none.sentence


def test_the_interval_is_open_where_no_step_was_light_or_heavy_enough() -> None:
    heavy = plan(CURVE[:3], 30, "ttft_p50_ms", 500)
    assert (heavy.rate_high, heavy.least) == (None, 1)
    # The lightest of two steps keeps the bound by a hair, so nobody is sure that it does.
    edge = plan([_point(1, 495), _point(2, 2000)], 30, "ttft_p50_ms", 500)
    assert (edge.rate_low, edge.most) == (None, None)
    assert "or more)" in edge.sentence
    assert any("too short to be sure" in note for note in edge.notes)


def test_a_curve_shared_by_instances_is_divided() -> None:
    alone, shared = plan(CURVE, 30, "ttft_p50_ms", 500), plan(CURVE, 30, "ttft_p50_ms", 500, instances=2)
    assert shared.rate_each == pytest.approx((alone.rate_each or 0) / 2)


def test_a_curve_is_made_to_rise_first() -> None:
    assert highest_rate([1, 2, 3], [100, 90, 400], 200) == pytest.approx(
        2 + math.log(200 / math.sqrt(9000)) / math.log(400 / math.sqrt(9000))
    )
    with pytest.raises(ValueError, match="no latency"):
        plan(CURVE, 30, "requests_per_second", 5)


@pytest.mark.parametrize("percent", [50, 99])
def test_quantiles_of_many_values_come_from_some_of_them(percent: int) -> None:
    drawn = np.random.default_rng(1)
    values = np.sort(drawn.lognormal(5, 1, 20_000))
    run = Sample(60.0, 12, {}, {"ttft": (values, drawn.integers(0, 12, 20_000))})
    found = value_of(run, METRICS[f"ttft_p{percent}_ms"])
    assert found == pytest.approx(float(np.percentile(values, percent)), rel=0.01)
