"""What each kind of server says, with the traps of its metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from apps.telemetry.domain import batch_stats, derive, prometheus
from apps.telemetry.domain.derive import Interval, Window
from apps.telemetry.domain.dialects.dcgm import is_blank, throttling
from apps.telemetry.domain.dialects.trtllm_backend import unit_of_timestamp
from apps.telemetry.domain.marks import dump, load

DATA = Path(__file__).parent.parent / "data" / "metrics"


def intervals(*texts: str, step: float = 1.0) -> list[Interval]:
    """What happened between several scrapes, `step` seconds apart; the first has gauges only."""
    window, before, found = Window(), None, []
    for number, text in enumerate(texts):
        now = derive.read(prometheus.parse(text, derive.WANTED), number * step)
        now = derive.carried(now, before)
        found.append(derive.interval(now, before, window))
        before = now
    return found


def last(*texts: str, step: float = 1.0) -> derive.Sample:
    return derive.sample(0.0, intervals(*texts, step=step)[-1])


def success(**models: int) -> str:
    return "\n".join(
        f'nv_inference_request_success{{model="{m}",version="1"}} {n}' for m, n in models.items()
    )


def trtllm(model: str = "tensorrt_llm", iteration: int = 1, running: int = 4, **blocks: float) -> str:
    label = f'model="{model}",version="1"'
    batcher = "nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric"
    lines = [
        f'nv_trt_llm_general_metrics{{general_type="iteration_counter",{label}}} {iteration}',
        f'nv_trt_llm_request_metrics{{request_type="scheduled",{label}}} {running}',
        f'nv_trt_llm_request_metrics{{request_type="active",{label}}} {running}',
        f'nv_trt_llm_request_metrics{{request_type="max",{label}}} 8',
        f'{batcher}="generation_requests",{label}}} {running}',
        f'{batcher}="paused_requests",{label}}} 2',
        f'nv_trt_llm_runtime_memory_metrics{{memory_type="pinned",{label}}} 1000',
    ]
    lines += [
        f'nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="{kind}",{label}}} {value}'
        for kind, value in blocks.items()
    ]
    return "\n".join(lines)


def test_counters_are_compared_by_model_and_version() -> None:
    # One model was loaded anew and began at 0 while its neighbour went on: the sum alone fell by 85.
    found = last(success(a=100, b=50), success(a=5, b=60))
    assert found["requests_per_second"] == 15
    # A model that appears between two scrapes began in that time.
    assert last(success(a=100), success(a=100, b=7))["requests_per_second"] == 7
    # One that is unloaded takes nothing back.
    assert last(success(a=100, b=50), success(a=101))["requests_per_second"] == 1
    # A series that is missing once and back with what it had counts nothing twice.
    assert last(success(a=100, b=50), success(a=101), success(a=101, b=50))["requests_per_second"] == 0


def test_the_same_model_with_and_without_a_gpu_label_is_one() -> None:
    text = (DATA / "h200-kind-gpu.txt").read_text()
    later = text.replace("} 2000", "} 2080").replace("} 250\n", "} 260\n")
    found = last(text, later)
    assert found["requests_per_second"] == 80
    assert found["triton_batch_size_mean"] == 8


def test_ensemble_and_steps_are_never_added() -> None:
    def text(by: int) -> str:
        names = ("ensemble", "preprocessing", "tensorrt_llm", "postprocessing", "tensorrt_llm_2")
        failures = [
            f'nv_inference_request_failure{{model="{name}",version="1",reason="BACKEND"}} {by // 5}'
            for name in names
        ]
        return "\n".join([success(**dict.fromkeys(names, 10 + by)), *failures])

    found = last(text(0), text(5))
    assert found["requests_per_second"] == 5
    assert found["requests_failed_per_second"] == 1  # it failed as a step and as the ensemble
    # A server of steps alone: the engine's requests, not those of its tokeniser.
    alone = last(success(preprocessing=0, tensorrt_llm=0), success(preprocessing=9, tensorrt_llm=4))
    assert alone["requests_per_second"] == 4


def test_gauges_of_an_idle_engine_are_marked_and_not_shown() -> None:
    scrapes = [trtllm(iteration=7)] * 4
    fresh = last(trtllm(iteration=6), trtllm(iteration=7))
    assert (fresh["requests_running"], fresh["engine_stale"], fresh["batch_size_mean"]) == (4, 0, 4)
    stale = last(*scrapes)
    assert (stale["requests_running"], stale["engine_stale"]) == (None, 1)
    assert (stale["batch_size_mean"], stale["requests_paused"]) == (None, None)
    assert stale["slots"] == 8  # a size and no state
    # The first two looks cannot know, and a long prompt makes one iteration last.
    assert last(*scrapes[:2])["engine_stale"] == 0
    assert last(*scrapes, trtllm(iteration=8))["requests_running"] == 4


def test_an_engine_without_a_distribution_is_looked_at() -> None:
    found = intervals(*(trtllm(iteration=number, running=number) for number in range(1, 6)))
    batches = [each.fresh["batch_size"] for each in found if "batch_size" in each.fresh]
    assert sum(each.count for each in batches) == 4
    assert sum(each.total for each in batches) == 2 + 3 + 4 + 5
    assert "batch_size" not in intervals(*[trtllm()] * 3)[-1].fresh  # an old figure is no look


def test_blocks_of_two_models_are_never_mixed() -> None:
    one = trtllm("tensorrt_llm", used=10, max=100, tokens_per=32, free=95, reused=5)
    other = trtllm("tensorrt_llm_2", used=50, max=100, tokens_per=64, free=40, reused=7)
    found = last(f"{one}\n{other}")
    assert found["kv_tokens_capacity"] == 100 * 32 + 100 * 64
    assert found["kv_tokens_used"] == 10 * 32 + 50 * 64
    assert found["kv_use"] == 60 / 200  # used / max, never used / (used + free)
    assert (found["kv_blocks_used"], found["kv_blocks_free"], found["kv_blocks_capacity"]) == (60, 135, 200)
    assert found["runtime_pinned_memory_bytes"] == 2000


def test_reused_blocks_are_a_trend_and_no_hit_rate() -> None:
    found = last(trtllm(iteration=1, reused=100), trtllm(iteration=2, reused=130))
    assert found["kv_blocks_reused_per_second"] == 30
    assert found["kv_hit_rate"] is None


@pytest.mark.parametrize(
    ("value", "unit", "seconds"),
    [
        (1_700_074_049, "s", 1_700_074_049.0),
        (1_752_800_000_123_456, "us", 1_752_800_000.123456),
        (0, "s", 0.0),
    ],
)
def test_unit_of_the_timestamp(value: float, unit: str, seconds: float) -> None:
    assert unit_of_timestamp(value) == (unit, pytest.approx(seconds))


def test_labels_in_any_order_and_unknown_ones() -> None:
    text = (
        'nv_trt_llm_request_metrics{version="1",model="m",request_type="scheduled"} 3\n'
        'nv_trt_llm_request_metrics{request_type="brand_new",model="m",version="1"} 99\n'
        'nv_trt_llm_new_metrics{model="m"} 1\n'
    )
    assert last(text)["requests_running"] == 3


def test_pinned_memory_of_triton_is_not_the_engines() -> None:
    found = last("nv_pinned_memory_pool_used_bytes 5\nnv_pinned_memory_pool_total_bytes 10")
    assert (found["pinned_pool_used_bytes"], found["pinned_pool_total_bytes"]) == (5, 10)
    assert found["runtime_pinned_memory_bytes"] is None


def test_failures_by_reason_and_the_response_cache() -> None:
    def text(n: int) -> str:
        reasons = "\n".join(
            f'nv_inference_request_failure{{model="m",version="1",reason="{reason}"}} {n * factor}'
            for factor, reason in enumerate(("REJECTED", "CANCELED", "BACKEND", "OTHER"), start=1)
        )
        cache = f'nv_cache_num_hits_per_model{{model="m"}} {n * 3}\nnv_cache_num_misses_per_model{{model="m"}} {n}'
        return f"{success(m=0)}\n{reasons}\n{cache}"

    found = last(text(0), text(1))
    assert found["requests_rejected_per_second"] == 1
    assert found["requests_cancelled_per_second"] == 2
    assert found["requests_failed_per_second"] == 7
    assert found["response_cache_hit_rate"] == 0.75
    assert last(success(m=0), success(m=1))["requests_failed_per_second"] is None  # not told


def test_nothing_is_divided_by_no_traffic() -> None:
    text = (DATA / "h200-idle.txt").read_text()
    found = last(text, text)
    assert found["requests_per_second"] == 0
    for name in ("queue_mean_ms", "request_mean_ms", "triton_batch_size_mean", "cached_prompt_share"):
        assert found[name] is None


def test_means_of_triton_are_microseconds_of_requests() -> None:
    idle, load_ = ((DATA / f"h200-{name}.txt").read_text() for name in ("idle", "load"))
    found = last(idle, load_)
    assert found["request_mean_ms"] == pytest.approx(16605335 / 8 / 1000)
    assert found["queue_mean_ms"] == pytest.approx(15289 / 8 / 1000, abs=1e-5)


def test_a_python_model_that_answers_later_is_not_believed_about_its_durations() -> None:
    def text(n: int) -> str:
        return (
            f'inflight_requests_running{{model="m",version="1"}} 2\n'
            f'inflight_requests_finished_total{{model="m",version="1",reason="stop"}} {n}\n'
            f'inflight_requests_finished_total{{model="m",version="1",reason="rejected"}} {n * 2}\n'
            f'nv_inference_request_success{{model="m",version="1"}} {n * 5}\n'
            f'nv_inference_request_failure{{model="m",version="1",reason="REJECTED"}} {n * 9}\n'
            f'nv_inference_request_duration_us{{model="m",version="1"}} {n * 1000}\n'
        )

    found = last(text(0), text(1))
    assert found["requests_accepted_per_second"] == 5  # what Triton calls success is the hand-over
    assert found["requests_per_second"] == 3
    assert found["requests_rejected_per_second"] == 2
    assert found["request_mean_ms"] is None


def test_trtllm_serve() -> None:
    def text(n: int) -> str:
        label = 'model_name="m",engine_type="pytorch"'
        return (
            f'trtllm_request_success_total{{{label},finished_reason="stop"}} {n}\n'
            f'trtllm_request_error_total{{{label},http_code="500"}} {n * 2}\n'
            f'trtllm_request_error_total{{{label},http_code="429"}} {n * 3}\n'
            f'trtllm_time_to_first_token_seconds_bucket{{{label},le="0.1"}} {n * 10}\n'
            f'trtllm_time_to_first_token_seconds_bucket{{{label},le="+Inf"}} {n * 10}\n'
            f"trtllm_time_to_first_token_seconds_sum{{{label}}} {n}\n"
            f"trtllm_time_to_first_token_seconds_count{{{label}}} {n * 10}\n"
            f'trtllm_time_per_output_token_seconds_bucket{{{label},le="0.01"}} {n}\n'
            f'trtllm_time_per_output_token_seconds_bucket{{{label},le="+Inf"}} {n}\n'
            f"trtllm_kv_cache_hit_rate{{{label}}} 0.4\ntrtllm_kv_cache_utilization{{{label}}} 0.7\n"
            f"trtllm_server_queue_length{{{label}}} 6\n"
        )

    found = last(text(0), text(1))
    assert found["ttft_p50_ms"] == pytest.approx(50)  # seconds became milliseconds
    assert found["tpot_p50_ms"] == pytest.approx(5)
    assert found["itl_p50_ms"] is None  # one mean an answer is no gap between tokens
    assert (found["kv_use"], found["kv_hit_rate"], found["requests_waiting"]) == (0.7, 0.4, 6)
    assert (found["requests_failed_per_second"], found["requests_rejected_per_second"]) == (2, 3)


def test_dcgm_units_blanks_and_slices() -> None:
    gpu = 'gpu="0",UUID="GPU-1",modelName="NVIDIA H200"'
    text = f"""
DCGM_FI_DEV_GPU_UTIL{{{gpu}}} 45
DCGM_FI_DEV_GPU_UTIL{{{gpu},GPU_I_ID="7",GPU_I_PROFILE="1g.18gb"}} 99
DCGM_FI_DEV_FB_USED{{{gpu}}} 1000
DCGM_FI_DEV_FB_FREE{{{gpu}}} 3000
DCGM_FI_DEV_FB_RESERVED{{{gpu}}} 96
DCGM_FI_DEV_SM_CLOCK{{{gpu}}} 1980
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{gpu}}} 5000
DCGM_FI_DEV_MEMORY_TEMP{{{gpu}}} 9223372036854775794
DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{gpu}}} 68
DCGM_FI_DEV_XID_ERRORS{{{gpu}}} 79
DCGM_FI_DEV_GPU_TEMP{{gpu="1",UUID="GPU-2"}} 50
"""
    gpus = derive.read(prometheus.parse(text, derive.WANTED), 0.0).figures.gpus
    assert gpus["GPU-1"] == {
        "gpu_use": 0.45,
        "gpu_memory_used_bytes": 1000 * 2**20,
        "gpu_memory_total_bytes": 4096 * 2**20,
        "gpu_sm_clock_hertz": 1980e6,
        "energy_total_joules": 5.0,
        "gpu_throttle_power": 1.0,
        "gpu_throttle_thermal": 1.0,
        "gpu_throttle_hardware": 0.0,
        "gpu_xid_last": 79.0,
    }
    assert gpus["GPU-2"] == {"gpu_temperature_celsius": 50.0}
    assert is_blank(2147483632.0)
    assert is_blank(140737488355328.0)
    assert not is_blank(150754820096.0)
    assert throttling(0x1) == {"gpu_throttle_power": 0, "gpu_throttle_thermal": 0, "gpu_throttle_hardware": 0}


def test_executed_batches_by_the_statistics_api() -> None:
    document: Any = json.loads((DATA / "h200-statistics.json").read_text())
    (series, found), *_none = batch_stats.read(document).items()
    assert series == "burn/1"
    assert (found.count, found.total, found.mean()) == (250, 2000, 8)
    assert found.counts[found.bounds.index(7.0)] == 0
    assert found.counts[found.bounds.index(8.0)] == 250
    text = {
        "model_stats": [
            {"name": "m", "batch_stats": [{"batch_size": "3", "compute_infer": {"count": "7"}}, {}]}
        ]
    }
    assert batch_stats.read(text)["m"].count == 7
    for broken in (None, [], {}, {"model_stats": 5}):
        with pytest.raises(ValueError, match="model_stats"):
            batch_stats.read(broken)
    assert batch_stats.read({"model_stats": ["x", {"name": "m"}]}) == {}
    # Nothing executed yet is a beginning to count from; executions without sizes are not known.
    idle, silent = {"name": "m", "execution_count": 0}, {"name": "m", "execution_count": 4}
    assert batch_stats.read({"model_stats": [idle]})["m"].count == 0
    assert batch_stats.read({"model_stats": [silent]}) == {}


def test_a_silence_counts_and_makes_no_rate() -> None:
    found = intervals(success(a=0), success(a=30), step=30.0)[-1]
    assert found.amounts["requests"] == 30
    assert derive.sample(0.0, found)["requests_per_second"] is None


def test_where_the_counters_stood_outlives_the_process() -> None:
    reading = derive.read(prometheus.parse(success(a=5), derive.WANTED), 100.0)
    document = json.loads(json.dumps(dump(reading, 101.0, 5001.0)))
    restored = load(document, 200.0, 5004.0)
    assert restored is not None
    assert restored.at == pytest.approx(196.0)
    now = derive.read(prometheus.parse(success(a=9), derive.WANTED), 200.0)
    assert derive.interval(now, restored, Window()).amounts["requests"] == 4
    for broken in (
        None,
        {},
        {"at": 1, "counters": 3, "histograms": {}},
        {"at": "x", "counters": {}, "histograms": {}},
    ):
        assert load(broken, 0.0, 0.0) is None
