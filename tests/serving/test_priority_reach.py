"""How far a request's class reaches, for each kind of model."""

from __future__ import annotations

import pytest

from apps.serving.domain import pbtxt, priority_reach

IFB = 'backend: "tensorrtllm" dynamic_batching { priority_levels: 3 default_priority_level: 2 }'
LEVELS = 'backend: "python" dynamic_batching { priority_levels: 3 default_priority_level: 2 }'


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ('platform: "ensemble"', "gateway", "ensemble drops"),
        (IFB, "gateway", "at once"),
        (LEVELS, "triton", "Triton's queue"),
        ('backend: "python" dynamic_batching { }', "gateway", "no priority levels"),
        ('backend: "python"', "gateway", "no priority levels"),
    ],
)
def test_somebodys_own_model(text: str, where: str, said: str) -> None:
    found = priority_reach.of_config(pbtxt.parse(text))
    assert (found.where, said in found.sentence) == (where, True)
    assert bool(found.remedy) == (where == "gateway")


@pytest.mark.parametrize(
    ("strategy", "classes", "where"),
    [
        ("inflight", False, "engine"),
        ("none", True, "engine"),
        ("dynamic", True, "triton"),
        ("static", True, "triton"),
        ("static", False, "gateway"),
    ],
)
def test_the_embedded_model(strategy: str, classes: bool, where: str) -> None:
    assert priority_reach.of_strategy(strategy, classes).where == where
