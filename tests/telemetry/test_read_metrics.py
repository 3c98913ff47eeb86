"""`manage.py read_metrics`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.telemetry.domain.report import report
from apps.telemetry.domain.vocabulary import NAMES

DATA = Path(__file__).parent.parent / "data" / "metrics"


def of(name: str) -> dict[str, Any]:
    return report((DATA / name).read_text())


def test_kv_blocks_and_units_of_two_ages() -> None:
    old, new = of("trtllm-0.7.txt")["derived"], of("trtllm-0.19.txt")["derived"]
    assert old["kv_used_fraction"] == pytest.approx(0.00593, abs=5e-6)
    assert (old["capacity_tokens"], old["timestamp_unit"], old["timestamp"]) == (399_296, "s", 1_700_074_049)
    assert new["kv_used_fraction"] == 0.25
    assert (new["capacity_tokens"], new["timestamp_unit"]) == (204_800, "us")
    assert new["timestamp"] == pytest.approx(1_752_800_000.123456)
    assert (new["mean_output_tokens"], new["waiting"], new["saturated"]) == (122.5, 3, True)
    assert old["saturated"] is False
    assert old["mean_output_tokens"] is None


def test_oddities() -> None:
    found = of("oddities.txt")
    assert found["families"]["nv_inference_request_success"] == {"simple": 40.0, 'a,b}"c\\d': 1_500_000.0}
    assert found["families"]["nv_inference_request_failure"] is None
    assert found["families"]["nv_inference_load_ratio"] is None
    derived = found["derived"]
    assert (derived["gpu_utilization_percent"], derived["power"], derived["energy"]) == (
        12.0,
        None,
        317_000.0,
    )
    assert found["findings"] == []


def test_real_servers_with_gpus() -> None:
    idle, load = of("h200-idle.txt")["derived"], of("h200-load.txt")["derived"]
    assert (idle["requests_total"], load["requests_total"]) == (0, 8)
    assert (idle["gpu_use"], load["gpu_use"]) == (0, 1)
    assert (idle["request_mean_ms"], load["power"]) == (None, 691.013)
    assert load["triton_batch_size_mean"] == 4
    assert (load["requests_failed_total"], load["requests_rejected_total"]) == (0, 0)
    summary = of("h200-idle.txt")["families"]["nv_inference_request_summary_us"]
    assert summary is None or all(value == value for value in summary.values())  # NaN is no value
    assert set(NAMES) <= set(load)


def test_histograms_and_versions_are_shown_as_they_are() -> None:
    text = (
        "# TYPE h histogram\n"
        'h_bucket{model="m",le="1"} 1\nh_bucket{model="m",le="+Inf"} 2\nh_sum{model="m"} 3\nh_count{model="m"} 2\n'
        '# TYPE g gauge\ng{model="m",version="1"} 1\ng{model="m",version="2"} 2\nplain 7\n'
        'kind{kind="a",model="x"} 1\nkind{kind="a",model="y"} 2\n'
    )
    families = report(text)["families"]
    assert families["h"] == {"m": {"count": 2, "sum": 3, "buckets": {"1": 1, "+Inf": 2}}}
    assert families["g"] == {"m": 1, "m@2": 2}
    assert families["plain"] == 7
    assert families["kind"] == {"x/a": 1, "y/a": 2}


def test_iteration_stats_as_json() -> None:
    rows = [
        {
            "iter": number,
            "numActiveRequests": 5,
            "numQueuedRequests": 2,
            "numCompletedRequests": 1,
            "kvCacheStats": {
                "maxNumBlocks": 10,
                "usedNumBlocks": 4,
                "tokensPerBlock": 32,
                "cacheHitRate": 0.5,
            },
            "inflightBatchingStats": {"numScheduledRequests": number, "numPausedRequests": None},
        }
        for number in (2, 4)
    ]
    derived = report(json.dumps(rows))["derived"]
    assert (derived["requests_active"], derived["requests_waiting"]) == (5, 2)
    assert (derived["kv_use"], derived["kv_hit_rate"], derived["capacity_tokens"]) == (0.4, 0.5, 320)
    assert (derived["batch_size_mean"], derived["requests_finished"]) == (3, 2)
    assert derived["requests_paused"] is None
    assert report("[]")["derived"]["requests_finished"] is None


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    call_command("read_metrics", str(DATA / "trtllm-0.19.txt"), "--json")
    assert json.loads(capsys.readouterr().out)["derived"]["waiting"] == 3
    call_command("read_metrics", str(DATA / "trtllm-0.19.txt"))
    assert "kv_use" in capsys.readouterr().out
    page = tmp_path / "page.html"
    page.write_text("<html><body>502 Bad Gateway</body></html>\n")
    with pytest.raises(SystemExit) as ended:
        call_command("read_metrics", str(page), "--json")
    assert ended.value.code == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["id"] == "not_an_exposition"
    with pytest.raises(CommandError) as wrong:
        call_command("read_metrics", str(tmp_path / "missing"))
    assert wrong.value.returncode == 2
