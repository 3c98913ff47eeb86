"""From two scrapes to one sample."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from apps.telemetry.domain import derive, prometheus
from apps.telemetry.domain.derive import Interval, Reading, Window
from apps.telemetry.domain.thinning import thin
from apps.telemetry.domain.vocabulary import BY_NAME, NAMES, Kind

DATA = Path(__file__).parent.parent / "data" / "metrics"


def reading(text: str, at: float) -> Reading:
    return derive.read(prometheus.parse(text, derive.WANTED), at)


def sample_of(*texts: str) -> derive.Sample:
    """The sample of the last of several scrapes, a second apart."""
    window, before, happened = Window(), None, Interval({}, {}, {})
    for at, text in enumerate(texts):
        now = reading(text, float(at))
        now = derive.carried(now, before)
        happened, before = derive.interval(now, before, window), now
    return derive.sample(1000.0, happened)


def llamacpp(
    requests: int = 0,
    tokens: int = 0,
    prompt: int = 0,
    cached: int = 0,
    fast: int = 0,
    slow: int = 0,
    kv: int = 100,
) -> str:
    """What the llama.cpp model says; `fast` answers had a TTFT up to 100 ms, `slow` ones up to 1 s."""
    labels = 'model="demo",version="1"'
    return f"""
# TYPE inflight_ttft_seconds histogram
inflight_ttft_seconds_bucket{{{labels},le="0.1"}} {fast}
inflight_ttft_seconds_bucket{{{labels},le="1"}} {fast + slow}
inflight_ttft_seconds_bucket{{{labels},le="+Inf"}} {fast + slow}
inflight_ttft_seconds_sum{{{labels}}} {fast * 0.05 + slow * 0.5}
inflight_ttft_seconds_count{{{labels}}} {fast + slow}
inflight_batch_size_bucket{{{labels},le="4"}} {requests}
inflight_batch_size_bucket{{{labels},le="+Inf"}} {requests}
inflight_batch_size_sum{{{labels}}} {requests * 3}
inflight_batch_size_count{{{labels}}} {requests}
inflight_requests_finished_total{{{labels},reason="stop"}} {requests}
inflight_requests_finished_total{{{labels},reason="cancelled"}} 1
inflight_generated_tokens_total{{{labels}}} {tokens}
inflight_prompt_tokens_total{{{labels}}} {prompt}
inflight_prompt_tokens_cached_total{{{labels}}} {cached}
inflight_requests_running{{{labels}}} 2
inflight_requests_waiting{{{labels}}} 1
inflight_slots{{{labels}}} 4
inflight_slots_busy{{{labels}}} 2
inflight_kv_tokens_used{{{labels}}} {kv}
inflight_kv_tokens_capacity{{{labels}}} 1000
"""


def test_two_scrapes_of_the_llamacpp_model() -> None:
    found = sample_of(llamacpp(10, 100, 50, 10, fast=5), llamacpp(12, 160, 150, 60, fast=15, slow=0))
    assert found["requests_per_second"] == 2
    assert found["generated_tokens_per_second"] == 60
    assert found["prompt_tokens_per_second"] == 100
    assert found["cached_prompt_share"] == 0.5
    assert found["batch_size_mean"] == 3
    assert found["ttft_p50_ms"] == pytest.approx(50)
    assert found["requests_running"] == 2
    assert found["requests_waiting"] == 1
    assert (found["slots"], found["slots_busy"]) == (4, 2)
    assert (found["kv_tokens_used"], found["kv_tokens_capacity"], found["kv_use"]) == (100, 1000, 0.1)
    # Not told, so not 0.
    assert found["itl_p50_ms"] is None
    assert found["gpu_use"] is None


def test_the_first_scrape_has_gauges_and_no_rates() -> None:
    found = sample_of(llamacpp(10, 100, fast=5))
    assert found["requests_running"] == 2
    assert found["requests_per_second"] is None
    assert found["ttft_p50_ms"] is None
    assert found["batch_size_mean"] is None


def test_a_restart_counts_from_zero_and_never_below() -> None:
    found = sample_of(llamacpp(100, 5000, fast=90), llamacpp(3, 40, fast=2))
    assert found["requests_per_second"] == 4  # 3 that stopped and 1 that was cancelled: all of them new
    assert found["generated_tokens_per_second"] == 40


def test_percentiles_look_back_ten_seconds() -> None:
    scrapes = [llamacpp(fast=0), llamacpp(fast=4)] + [llamacpp(fast=4)] * 9
    assert sample_of(*scrapes)["ttft_p50_ms"] is not None
    assert sample_of(*scrapes, llamacpp(fast=4))["ttft_p50_ms"] is None


def test_a_server_that_says_nothing_of_use_is_all_null() -> None:
    found = sample_of("nv_cpu_utilization 0.5", "nv_cpu_utilization 0.6")
    assert {name for name, value in found.items() if value is not None} == {"at"}
    assert set(found) == {"at", *NAMES}


def test_a_family_without_samples_is_null_not_zero() -> None:
    text = (DATA / "oddities.txt").read_text()
    found = sample_of(text, text.replace("40.000000", "45.000000"))
    assert found["requests_per_second"] == 5
    assert found["ttft_p50_ms"] is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("trtllm-0.7.txt", {"kv_use": 37 / 6239, "kv_tokens_capacity": 399_296, "kv_tokens_used": 37 * 64}),
        (
            "trtllm-0.19.txt",
            {
                "kv_use": 0.25,
                "kv_tokens_capacity": 204_800,
                "kv_tokens_used": 51_200,
                "requests_waiting": 3,
                "requests_running": 64,
                "slots": 64,
                "slots_busy": 64,
            },
        ),
    ],
)
def test_tensorrt_llm_of_two_ages(name: str, expected: dict[str, float]) -> None:
    text = (DATA / name).read_text()
    found = sample_of(text, text)
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, rel=1e-3), key


def test_waiting_of_an_old_release_is_active_less_scheduled_and_never_negative() -> None:
    text = (DATA / "trtllm-0.7.txt").read_text()  # active 0, scheduled 1
    assert sample_of(text)["requests_waiting"] == 0


def test_steps_of_an_ensemble_are_not_requests() -> None:
    def counted(by: int) -> str:
        names = ("ensemble", "preprocessing", "tensorrt_llm", "postprocessing")
        return "\n".join(f'nv_inference_request_success{{model="{name}"}} {10 + by}' for name in names)

    assert sample_of(counted(0), counted(5))["requests_per_second"] == 5


def test_a_real_server_with_gpus() -> None:
    idle, load = ((DATA / f"h200-{name}.txt").read_text() for name in ("idle", "load"))
    found = sample_of(idle, load)
    assert found["requests_per_second"] is not None
    assert found["kv_use"] is None
    # Device figures come from NVML, not from here: Triton's are repeated for two seconds.
    assert found["gpu_use"] is None


def test_two_servers_merge_by_sums_and_histograms() -> None:
    def happened(*texts: str) -> Interval:
        return derive.interval(reading(texts[1], 1.0), reading(texts[0], 0.0), Window())

    one = happened(llamacpp(fast=0, kv=100), llamacpp(10, 100, 100, 100, fast=99, kv=100))
    other = happened(llamacpp(slow=0, kv=900), llamacpp(2, 20, 100, 0, slow=1, kv=900))
    found = derive.sample(1.0, derive.merge([one, other]))
    assert found["requests_per_second"] == 12
    assert found["requests_running"] == 4
    assert found["kv_use"] == 0.5
    assert found["cached_prompt_share"] == 0.5
    assert found["ttft_p50_ms"] == pytest.approx(100 * 50 / 99)
    p99 = found["ttft_p99_ms"]
    assert p99 == pytest.approx(100)


def test_what_one_server_does_not_tell_is_taken_from_those_that_do() -> None:
    silent = derive.interval(reading("x 1", 1.0), reading("x 1", 0.0), Window())
    telling = derive.interval(reading(llamacpp(4), 1.0), reading(llamacpp(2), 0.0), Window())
    found = derive.sample(1.0, derive.merge([silent, telling]))
    assert found["requests_per_second"] == 2
    assert derive.sample(1.0, derive.merge([silent, silent]))["requests_per_second"] is None


def test_thinning_keeps_peaks_gaps_and_nulls() -> None:
    def at(second: int, **values: float | None) -> derive.Sample:
        return {"at": float(second)} | dict.fromkeys(NAMES, None) | values

    samples = [
        at(s, requests_running=float(s % 2), ttft_p99_ms=900.0 if s == 5 else 10.0) for s in range(100)
    ]
    samples += [at(s, requests_running=1.0) for s in range(300, 400)]
    thinned = thin(samples, 40)
    assert len(thinned) <= 40
    assert max(s["ttft_p99_ms"] or 0 for s in thinned) == 900.0
    assert not [s for s in thinned if 105 < (s["at"] or 0) < 295]
    assert thinned[-1]["at"] == 399
    assert thinned[-1]["ttft_p99_ms"] is None
    assert thinned[0]["requests_running"] == pytest.approx(0.5, abs=0.2)
    assert thin(samples[:5], 40) == samples[:5]


def test_every_key_is_explained() -> None:
    for name in NAMES:
        key = BY_NAME[name]
        assert key.title
        assert key.source
    assert {k.kind for k in BY_NAME.values()} == set(get_args(Kind))
