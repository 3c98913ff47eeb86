"""Each rule of the advisor: a scenario in which it speaks, one in which it is content, and no guessing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from apps.control.domain.advice.figures import Figures
from apps.control.domain.advice.outcome import Advice, CannotSay, Fine, Outcome
from apps.control.domain.advice.rulebook import RULES, opinion
from tests.control.scenarios import CALM, figures, sizes, subject


@dataclass(frozen=True, slots=True)
class Case:
    """A rule with what makes it speak and what does not; `change` is (field, after) of its button."""

    speaks: Callable[[], tuple[Any, Figures]]
    quiet: Callable[[], tuple[Any, Figures]]
    words: str
    change: tuple[str, Any] | None = None
    evidence: dict[str, float] = field(default_factory=dict)


def dynamic(**changes: Any) -> Any:
    return subject(strategy="dynamic", **changes)


def bursts(level: float) -> Callable[[float], float]:
    """High for half of each tenth of the range."""
    return lambda at: level if (at * 10) % 1 < 0.5 else 0.0


CASES: dict[str, Case] = {
    "preferred_sizes_never_form": Case(
        lambda: (
            dynamic(preferred_batch_sizes=[16]),
            figures(distributions={"triton_batch_size": sizes(s1=90, s2=60)}),
        ),
        lambda: (
            dynamic(preferred_batch_sizes=[16]),
            figures(distributions={"triton_batch_size": sizes(s1=90, s16=60)}),
        ),
        "Of 150 executions 0.0% had a preferred size (16)",
        ("preferred_batch_sizes", []),
    ),
    "delay_only_adds_latency": Case(
        lambda: (
            dynamic(max_queue_delay_microseconds=20_000),
            figures(distributions={"triton_batch_size": sizes(s1=98, s2=2)}, queue_mean_ms=19.0),
        ),
        lambda: (
            dynamic(max_queue_delay_microseconds=20_000),
            figures(distributions={"triton_batch_size": sizes(s1=10, s8=90)}),
        ),
        "98% of 100 executions hold a single request",
        ("max_queue_delay_microseconds", 0),
        {"queue_mean_ms": 19.0},
    ),
    "batch_size_never_reached": Case(
        lambda: (subject(), figures(requests_running=3.0)),
        lambda: (subject(), figures(requests_running=9.0)),
        "At most 3 requests ran at once; there are 16 slots",
        ("max_batch_size", 4),
        {"requests_running": 3.0},
    ),
    "batch_size_always_full": Case(
        lambda: (subject(), figures(requests_running=16.0, requests_waiting=5.0)),
        lambda: (subject(), figures(requests_running=16.0, requests_waiting=0.2)),
        "The 16 slots were 100% busy, and 5.0 requests waited",
        ("max_batch_size", 32),
        {"requests_waiting": 5.0},
    ),
    "no_batching_while_waiting": Case(
        lambda: (subject(strategy="none"), figures(requests_running=1.0, requests_waiting=3.0)),
        lambda: (subject(strategy="none"), figures(requests_running=1.0, requests_waiting=0.0)),
        "Requests waited in 100% of the time while one at a time ran",
        ("strategy", "inflight"),
    ),
    "queue_grows_under_limit": Case(
        lambda: (subject(), figures(requests_waiting=lambda at: 60 * at, requests_per_second=1.0)),
        # It grows just as much, but is served within seconds.
        lambda: (subject(), figures(requests_waiting=lambda at: 60 * at, requests_per_second=20.0)),
        "Waiting requests grew from 15.0 to 45.0 while 1.00 a second ended",
        ("max_queue_size", 16),
    ),
    "refused_while_idle": Case(
        lambda: (subject(max_queue_size=4), figures(requests_rejected_per_second=0.2)),
        lambda: (
            subject(max_queue_size=4),
            figures(requests_rejected_per_second=0.2, requests_running=16.0, requests_waiting=0.0),
        ),
        "180 requests were refused, yet slots were free in 100% of the time",
        ("max_queue_size", 16),
    ),
    "kv_cache_too_small": Case(
        lambda: (subject(), figures(kv_use=0.99, requests_waiting=4.0)),
        lambda: (subject(), figures(kv_use=0.99)),
        "The KV cache was full in 100% of the time",
    ),
    "kv_cache_idle": Case(
        lambda: (
            subject(builder="llamacpp", device="cpu"),
            figures(kv_use=0.05, kv_tokens_used=1000.0, requests_running=8.0),
        ),
        lambda: (subject(builder="llamacpp", device="cpu"), figures(kv_use=0.4, kv_tokens_used=1000.0)),
        "At most 5% of the KV cache was used",
        ("max_seq_len", 256),
        {"kv_use": 0.05},
    ),
    "reuse_without_hits": Case(
        lambda: (subject(), figures(cached_prompt_share=0.001)),
        lambda: (subject(), figures(cached_prompt_share=0.3)),
        "0.1% of prompt tokens came from the cache in 1800 requests",
    ),
    "reuse_across_replicas": Case(
        lambda: (subject(replicas=2), figures(cached_prompt_share=0.6)),
        lambda: (subject(replicas=2), figures(cached_prompt_share=0.1)),
        "60% of prompt tokens come from the cache, and 2 servers",
    ),
    "cpu_bound": Case(
        lambda: (subject(), figures(cpu_use=0.95, gpu_use=0.4)),
        lambda: (subject(), figures(cpu_use=0.95, gpu_use=0.95)),
        "the processor was 95% busy and the GPU 40%",
    ),
    "gpu_idle_while_waiting": Case(
        lambda: (subject(), figures(gpu_use=0.1, requests_waiting=2.0)),
        lambda: (subject(), figures(gpu_use=0.9, requests_waiting=2.0)),
        "Requests waited for 900 s while the GPU was 10% busy",
    ),
    "long_prompts_starve_decode": Case(
        lambda: (
            subject(chunked_context=False),
            figures(prompt_tokens_per_second=bursts(4000.0), itl_p99_ms=lambda at: 400 if bursts(1.0)(at) else 20),
        ),
        lambda: (subject(chunked_context=False), figures(prompt_tokens_per_second=bursts(4000.0))),
        "Answers stall 20.0 times longer between tokens",
    ),
    "engine_stands_still": Case(
        lambda: (subject(), figures(engine_stale=lambda at: 1.0 if at > 0.5 else 0.0)),
        # Nothing changes because nothing is asked of it.
        lambda: (subject(), figures(engine_stale=1.0, requests_active=0.0)),
        "The engine took no step for 449 s although requests were active",
    ),
}  # fmt: skip


def said(rule: str, pair: tuple[Any, Figures]) -> Outcome:
    return next(each for each in opinion(*pair).outcomes if each.id == rule)


def test_every_rule_has_its_scenarios() -> None:
    assert {rule.id for rule in RULES} == set(CASES)


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_speaks(rule: str) -> None:
    case = CASES[rule]
    found = said(rule, case.speaks())
    assert isinstance(found, Advice)
    assert case.words in found.sentence
    assert found.action
    assert found.evidence
    told = {each.key: each.value for each in found.evidence}
    for key, value in case.evidence.items():
        assert told[key] == pytest.approx(value)
    change = (found.change.field, found.change.after) if found.change else None
    assert change == case.change


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_is_content(rule: str) -> None:
    assert isinstance(said(rule, CASES[rule].quiet()), Fine)


@pytest.mark.parametrize("rule", CASES)
@pytest.mark.parametrize("wrong", [None, math.nan, -1.0, math.inf])
def test_missing_or_impossible_figures_give_no_advice(rule: str, wrong: float | None) -> None:
    """Everything that the engine tells is wrong, distributions included."""
    made, _figures = CASES[rule].speaks()
    found = said(rule, (made, figures(**dict.fromkeys(CALM, wrong))))
    assert isinstance(found, CannotSay | Fine)


@pytest.mark.parametrize("rule", CASES)
def test_half_a_minute_and_half_a_range_give_no_advice(rule: str) -> None:
    made, told = CASES[rule].speaks()
    short = Figures(told.until - 30, told.until, told.samples[-30:], told.distributions)
    holes = Figures(told.since, told.until, told.samples[-400:], told.distributions)
    for few in (short, holes, Figures(told.since, told.until)):
        found = said(rule, (made, few))
        assert isinstance(found, CannotSay)
        assert found.applies


def test_a_calm_deployment_gets_no_advice() -> None:
    found = opinion(subject(), figures())
    assert found.advice == ()
    assert len(found.fine) >= 8
    assert found.coverage > 0.99


def test_questions_that_do_not_arise_are_told_apart_from_missing_data() -> None:
    found = opinion(subject(builder="llamacpp", device="cpu", reuse=None), figures())
    assert {"cpu_bound", "gpu_idle_while_waiting"} <= {each.id for each in found.not_here}
    assert "reuse_without_hits" in {each.id for each in found.unknown}


def test_a_share_above_one_is_no_share() -> None:
    assert figures(kv_use=40.0).values("kv_use") == []
    assert isinstance(said("kv_cache_too_small", (subject(), figures(kv_use=99.0))), CannotSay)


def test_more_slots_are_not_advised_where_the_kv_cache_has_no_room() -> None:
    pair = (subject(), figures(requests_running=16.0, requests_waiting=5.0, kv_use=0.97))
    found = said("batch_size_always_full", pair)
    assert isinstance(found, Advice)
    assert found.change is None
    assert "no room" in found.sentence


def test_the_largest_batch_size_is_not_raised() -> None:
    pair = (subject(max_batch_size=256), figures(requests_running=256.0, requests_waiting=5.0))
    found = said("batch_size_always_full", pair)
    assert isinstance(found, Advice)
    assert found.change is None


def test_the_gravest_comes_first() -> None:
    pair = (subject(), figures(kv_use=0.99, requests_waiting=4.0, cached_prompt_share=0.0))
    assert [each.weight for each in opinion(*pair).advice] == ["warning", "info"]
