"""What a batching profile means, and what in it does nothing."""

from __future__ import annotations

from typing import Any

import pytest

from apps.core.exceptions import InvalidInput
from apps.serving.domain import batching

SNAPSHOT: dict[str, Any] = {
    "name": "b",
    "strategy": "inflight",
    "max_batch_size": 16,
    "max_queue_delay_microseconds": 0,
    "max_seq_len": 1024,
    "max_queue_size": 256,
    "threads": 0,
}


def ids(**changes: Any) -> list[str]:
    facts = {key: changes.pop(key) for key in list(changes) if key not in SNAPSHOT}
    return [finding.id for finding in batching.findings({**SNAPSHOT, **changes}, **facts)]


def test_facts() -> None:
    assert batching.facts(SNAPSHOT) == batching.BatchingFacts("inflight", 16, 1024, 0, 256, 0)
    assert batching.facts({**SNAPSHOT, "strategy": "none"}).slots == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("strategy", "batched"),
        ("preferred_batch_sizes", [17]),
        ("preferred_batch_sizes", ["4"]),
        ("preferred_batch_sizes", 4),
        ("queue_timeout_microseconds", -1),
        ("max_batch_size", 0),
        ("max_seq_len", None),
        ("threads", -1),
        ("threads", True),
    ],
)
def test_a_wrong_value_is_named(key: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        batching.facts({**SNAPSHOT, key: value})
    assert caught.value.field == key
    assert caught.value.remedy


def test_kv_cache_of_the_demo_model() -> None:
    # SmolLM2-135M: 30 layers, 3 KV heads of 64, 16 bit, keys and values.
    per_token = 30 * 3 * 64 * 2 * 2
    assert batching.kv_cache_bytes(batching.facts(SNAPSHOT), per_token) == 16 * 1024 * 23_040


def test_what_does_nothing_is_said() -> None:
    assert ids() == []
    assert ids(strategy="none") == ["batch_size_without_effect"]
    assert ids(strategy="none", max_batch_size=1) == []
    assert ids(max_queue_delay_microseconds=100) == ["queue_delay_without_effect"]
    assert ids(max_queue_size=0) == ["no_waiting_requests"]


def test_what_bites_on_this_machine_is_said() -> None:
    assert ids(threads=8, cores=2) == ["threads_exceed_cores"]
    assert ids(threads=2, cores=2) == []
    assert ids(max_position_embeddings=512) == ["context_exceeds_model"]
    assert ids(kv_bytes_per_token=23_040, memory_bytes=2**20) == ["kv_cache_exceeds_memory"]
    assert ids(kv_bytes_per_token=23_040, memory_bytes=2**34) == []


def test_batches_of_triton() -> None:
    facts = batching.facts(
        {
            **SNAPSHOT,
            "strategy": "dynamic",
            "preferred_batch_sizes": [8, 4, 4],
            "queue_timeout_microseconds": 5,
        }
    )
    assert (facts.in_batches, facts.slots) == (True, 16)
    assert (facts.preferred_batch_sizes, facts.queue_timeout_microseconds) == ((4, 8), 5)
    assert not batching.facts(SNAPSHOT).in_batches


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"preferred_batch_sizes": [4]}, ["preferred_sizes_without_effect"]),
        ({"queue_timeout_microseconds": 4}, ["queue_timeout_without_effect"]),
        ({"strategy": "dynamic", "max_queue_delay_microseconds": 9}, ["batch_ends_together"]),
        (
            {"strategy": "static", "preferred_batch_sizes": [4]},
            ["preferred_sizes_without_effect", "batch_ends_together"],
        ),
    ],
)
def test_each_strategy_says_which_settings_it_does_not_use(changes: dict[str, Any], found: list[str]) -> None:
    snapshot = {**SNAPSHOT, **changes}
    assert [finding.id for finding in batching.findings(snapshot)] == found
