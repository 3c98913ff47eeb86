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
        ("strategy", "static"),
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
