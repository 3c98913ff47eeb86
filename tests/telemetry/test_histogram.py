"""Quantiles, differences and sums of cumulative histograms."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.telemetry.domain import prometheus
from apps.telemetry.domain.histogram import Histogram, delta, merge, read

INF = math.inf


def of(bounds: list[float], observations: list[float]) -> Histogram:
    """The histogram that a server would keep of these observations."""
    edges = (*bounds, INF)
    counts = tuple(float(sum(value <= edge for value in observations)) for edge in edges)
    return Histogram(edges, counts, sum(observations))


# Values by the rule of Prometheus' histogram_quantile, worked out by hand.
@pytest.mark.parametrize(
    ("counts", "q", "expected"),
    [
        ((2, 4, 8, 8), 0.5, 20.0),
        ((2, 4, 8, 8), 0.25, 10.0),
        ((2, 4, 8, 8), 0.75, 30.0),
        ((2, 4, 8, 8), 1.0, 40.0),
        ((2, 4, 8, 8), 0.125, 5.0),
        ((0, 0, 4, 4), 0.5, 30.0),
        ((0, 4, 4, 8), 0.99, 40.0),  # in the infinite bucket: at least the highest finite bound
        ((0, 0, 0, 3), 0.5, 40.0),
        ((4, 4, 4, 4), 0.0, 0.0),
    ],
)
def test_quantiles(counts: tuple[float, ...], q: float, expected: float) -> None:
    assert Histogram((10, 20, 40, INF), counts, 0).quantile(q) == pytest.approx(expected)


def test_no_observations_is_no_quantile() -> None:
    empty = Histogram((10, INF), (0, 0), 0)
    assert empty.quantile(0.5) is None
    assert empty.mean() is None
    assert Histogram((INF,), (5,), 10).quantile(0.5) is None


def test_a_first_bucket_that_ends_below_zero_has_no_beginning() -> None:
    assert Histogram((-5, 5, INF), (2, 4, 4), 0).quantile(0.25) == -5


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 99, allow_nan=False), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(observations: list[float], q: float) -> None:
    bounds = [1.0, 5.0, 10.0, 25.0, 50.0, 100.0]
    value = of(bounds, observations).quantile(q)
    true = sorted(observations)[max(0, math.ceil(q * len(observations) - 1e-9) - 1)]
    lower = max((bound for bound in [0.0, *bounds] if bound < true), default=0.0)
    upper = min(bound for bound in bounds if bound >= true)
    assert value is not None
    assert lower - 1e-9 <= value <= upper + 1e-9


@settings(deadline=None)
@given(st.lists(st.floats(0, 60), max_size=20), st.lists(st.floats(0, 60), max_size=20))
def test_a_difference_is_what_came_between(before: list[float], after: list[float]) -> None:
    bounds = [10.0, 20.0, 50.0]
    between = delta(of(bounds, before + after), of(bounds, before))
    assert between.counts == of(bounds, after).counts
    assert between.total == pytest.approx(sum(after), abs=1e-6)


def test_after_a_restart_everything_is_new() -> None:
    new, old = of([10], [1, 2]), of([10], [1, 2, 3, 4])
    assert delta(new, old) == new
    assert delta(new, None) == new
    assert delta(new, of([20], [1])) == new


def test_percentiles_of_two_servers_come_from_the_sum_not_the_mean() -> None:
    busy, idle = of([10, 100, 1000], [50.0] * 99), of([10, 100, 1000], [900.0])
    both = merge([busy, idle])
    assert both is not None
    assert both.count == 100
    p99 = both.quantile(0.99)
    assert p99 == pytest.approx(100.0)
    mean = ((busy.quantile(0.99) or 0) + (idle.quantile(0.99) or 0)) / 2
    assert mean > 500


def test_histograms_with_other_buckets_are_added_where_both_are_exact() -> None:
    both = merge([of([10, 20, 40], [5, 15, 30]), of([10, 40], [5, 30])])
    assert both is not None
    assert both.bounds == (10, 40, INF)
    assert both.counts == (2, 5, 5)
    assert merge([]) is None


def test_reading_sums_label_sets_and_mends_counts_that_fall() -> None:
    text = """
t_bucket{model="a",le="1"} 3
t_bucket{model="a",le="+Inf"} 2
t_sum{model="a"} 4
t_count{model="a"} 2
t_bucket{model="b",le="1"} 1
t_bucket{model="b",le="+Inf"} 1
t_sum{model="b"} 0.5
t_count{model="b"} 1
"""
    exposition = prometheus.parse(text)
    found = read(exposition, "t")
    assert found is not None
    assert (found.bounds, found.counts, found.total) == ((1, INF), (4, 4), 4.5)
    only_b = read(exposition, "t", model="b")
    assert only_b is not None
    assert only_b.count == 1


def test_a_histogram_without_samples_is_none_and_one_without_buckets_has_its_mean() -> None:
    assert read(prometheus.parse("# TYPE t histogram"), "t") is None
    found = read(prometheus.parse("t_sum 9\nt_count 3"), "t")
    assert found is not None
    assert (found.mean(), found.quantile(0.5)) == (3.0, None)
    assert read(prometheus.parse('t_bucket{le="x"} 1\nt_bucket{le="1"} NaN'), "t") is None
