"""AIPerf's summary file read back, and what is no such file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.loadtests.domain.aiperf import UnreadableResults, beside, read_results

# Shape and units as AIPerf 0.13.0 wrote them.
WRITTEN: dict[str, Any] = {
    "schema_version": "1.4",
    "aiperf_version": "0.13.0",
    "benchmark_id": "x",
    "request_throughput": {"unit": "requests/sec", "avg": 2.47},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 79.1},
    "time_to_first_token": {"unit": "ms", "avg": 51.4, "p50": 51.2, "p99": 53.9, "count": 24, "sum": 1233.6},
    "inter_token_latency": {"unit": "ms", "avg": 50.09, "p50": 50.1, "p99": 50.3, "count": 24},
    "request_latency": {"unit": "ms", "avg": 1604.2, "p50": 1604.0, "p99": 1609.0, "count": 24},
    "request_count": {"unit": "requests", "avg": 24.0},
    "error_summary": [{"error_details": {"code": 500}, "count": 3}],
    "input_config": {"anything": "else"},
}


def test_figures_have_our_names_and_stand_beside_ours() -> None:
    found = read_results(json.dumps(WRITTEN))
    assert (found.version, found.completed, found.errors, found.cancelled) == ("0.13.0", 24, 3, False)
    assert found.figures["tpot_mean_ms"] == 50.09
    rows = beside({"ttft_mean_ms": 50.9, "tpot_mean_ms": None}, found)
    assert [row["figure"] for row in rows] == ["ttft_mean_ms"]
    assert rows[0]["apart"] == pytest.approx(50.9 / 51.4 - 1)


def test_what_it_does_not_give_is_null() -> None:
    bare = {key: WRITTEN[key] for key in ("schema_version", "aiperf_version")}
    found = read_results(json.dumps(bare))
    assert set(found.figures.values()) == {None}
    assert (found.completed, found.errors) == (None, 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON"),
        ("[]", "the file"),
        (json.dumps({**WRITTEN, "schema_version": "2.0"}), "has schema 2.0"),
        (json.dumps({**WRITTEN, "aiperf_version": None}), "aiperf_version"),
        (json.dumps({**WRITTEN, "request_latency": {"unit": "sec", "avg": 1.6}}), "is in sec, not in ms"),
        (json.dumps({**WRITTEN, "request_latency": {"unit": "ms"}}), "request_latency.avg"),
        (json.dumps({**WRITTEN, "request_latency": {"unit": "ms", "avg": -1}}), "cannot be"),
        (json.dumps({**WRITTEN, "error_summary": [{"count": -1}]}), "error_summary.0.count"),
    ],
)
def test_a_file_that_is_something_else_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(UnreadableResults, match=words):
        read_results(text)
