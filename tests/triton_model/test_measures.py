"""What is published: counters grow by what happened, histograms see each value, and a page documents each family."""

from __future__ import annotations

from typing import Any

import pytest
from llamacpp_measures import FAMILIES, FINISH_REASONS, Family, Measures, MetricsPublisher

LABELS = {"model": "demo", "version": "1"}


class Metric:
    """One metric of Triton; counters refuse to be set, as there."""

    def __init__(self, family: Family, labels: dict[str, str]) -> None:
        self.family = family
        self.labels = labels
        self.value = 0.0
        self.seen: list[float] = []
        self.calls = 0

    def increment(self, value: float) -> None:
        assert self.family.kind == "counter"
        assert value > 0
        self.value += value
        self.calls += 1

    def set(self, value: float) -> None:
        assert self.family.kind == "gauge"
        self.value = value
        self.calls += 1

    def observe(self, value: float) -> None:
        assert self.family.kind == "histogram"
        self.seen.append(value)


class Registry:
    """Every metric that was made."""

    def __init__(self) -> None:
        self.metrics: list[Metric] = []

    def make(self, family: Family, labels: dict[str, str]) -> Metric:
        self.metrics.append(Metric(family, labels))
        return self.metrics[-1]

    def named(self, name: str, **labels: str) -> Metric:
        (found,) = (
            metric
            for metric in self.metrics
            if metric.family.name == name and labels.items() <= metric.labels.items()
        )
        return found


@pytest.fixture
def published() -> tuple[Measures, MetricsPublisher, Registry]:
    measures = Measures(slots=4, kv_tokens_capacity=256)
    registry = Registry()
    return measures, MetricsPublisher(measures, registry.make, LABELS), registry


def test_only_what_changed_is_sent(published: tuple[Measures, MetricsPublisher, Registry]) -> None:
    measures, publisher, registry = published
    measures.admitted(10, 4, 0.1)
    measures.generated += 3
    measures.running = 2
    publisher.publish()
    publisher.publish()
    tokens = registry.named("inflight_generated_tokens_total")
    assert (tokens.value, tokens.calls) == (3, 1)
    assert registry.named("inflight_prompt_tokens_total").value == 10
    assert registry.named("inflight_prompt_tokens_cached_total").value == 4
    assert registry.named("inflight_requests_running").value == 2
    assert registry.named("inflight_slots").value == 4
    assert registry.named("inflight_kv_tokens_capacity").value == 256
    measures.generated += 2
    publisher.publish()
    assert tokens.value == 5


def test_every_reason_has_its_counter_from_the_start(
    published: tuple[Measures, MetricsPublisher, Registry],
) -> None:
    measures, publisher, registry = published
    for reason in FINISH_REASONS:
        measures.finished(reason, 1.0)
    publisher.publish()
    for reason in FINISH_REASONS:
        assert registry.named("inflight_requests_finished_total", reason=reason).value == 1
    assert registry.named("inflight_e2e_seconds").seen == [1.0, 1.0]


def test_each_observation_is_seen_once(published: tuple[Measures, MetricsPublisher, Registry]) -> None:
    measures, publisher, registry = published
    measures.first_token(0.2)
    measures.gap(0.01)
    measures.gap(0.02)
    measures.stepped(3)
    publisher.publish()
    publisher.publish()
    assert registry.named("inflight_ttft_seconds").seen == [0.2]
    assert registry.named("inflight_itl_seconds").seen == [0.01, 0.02]
    assert registry.named("inflight_batch_size").seen == [3.0]


def test_stopping_publishes_the_rest(published: tuple[Measures, MetricsPublisher, Registry]) -> None:
    measures, publisher, registry = published
    publisher.start()
    measures.generated += 7
    publisher.stop()
    assert registry.named("inflight_generated_tokens_total").value == 7


def test_all_carry_model_and_version(published: tuple[Measures, MetricsPublisher, Registry]) -> None:
    registry: Any = published[2]
    assert {metric.family.name for metric in registry.metrics} == {family.name for family in FAMILIES}
    assert all(metric.labels.items() >= LABELS.items() for metric in registry.metrics)


def test_buckets_grow() -> None:
    for family in FAMILIES:
        assert list(family.buckets) == sorted(set(family.buckets))
        assert bool(family.buckets) == (family.kind == "histogram")
