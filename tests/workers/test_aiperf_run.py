"""A load run by AIPerf in this process with a real child: a double of the program that acts on AIPerf's arguments."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from apps.core.exceptions import InvalidInput, NotPossibleNow
from apps.fleet import programs
from apps.fleet.models import Node
from apps.gateway.models import GatewayKey
from apps.loadtests import attempts, comparing, dispatch, generators, selectors, serialize, services
from apps.loadtests.models import LoadRun
from tests import objects
from tests.support import aiperf_double
from workers import load_attempt, load_run
from workers.child_attempt import CHECKOUT

pytestmark = pytest.mark.django_db(transaction=True)


def _scenario(**more: Any) -> dict[str, Any]:
    return {
        "target": "demo",
        "via": "gateway",
        "load": {"concurrency": [2]},
        "prompts": {"output": {"mean": 4.0}},
        "timing": {
            "warm_up_seconds": 0.2,
            "seconds": 0.6,
            "most_seconds": 0.6,
            "requests": 1,
            "until_steady": False,
        },
        "slo": {"ttft_ms": 500.0},
        **more,
    }


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[User]:
    """An OpenAI-style API in the gateway's place, an installed double, a node that knows of it."""
    settings.INFLIGHT_HOME = tmp_path / "home"
    settings.INFLIGHT_AIPERF_BIN = str(aiperf_double.install(tmp_path / "venv"))
    monkeypatch.setattr(dispatch, "_publish", lambda row: None)
    monkeypatch.setattr(load_attempt, "KEY_KNOWN_SECONDS", 0.0)
    found = programs.aiperf()
    assert found is not None
    Node.objects.create(
        node_id=settings.INFLIGHT_NODE_ID, state="ready", hostname="here", versions={"aiperf": found.version}
    )
    argv = [
        sys.executable,
        "-m",
        "tests.support.openai_double",
        "--port",
        "0",
        "--chunks",
        "4",
        "--gap-ms",
        "5",
    ]
    with subprocess.Popen(argv, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            settings.INFLIGHT_GATEWAY_URL = f"http://127.0.0.1:{server.stdout.readline().split()[-1]}"
            objects.deployment()
            yield User.objects.create_superuser("root")
        finally:
            server.kill()


def test_it_runs_the_same_load_and_stands_beside_ours(world: User) -> None:
    row = services.start_scenario(world, _scenario(), generator="aiperf")
    assert load_run.run_load(row.pk, "load")
    row.refresh_from_db()
    assert (row.state, row.sentence, row.generator) == ("succeeded", "", "aiperf")
    step = row.summary["steps"][0]
    figures = step["figures"]
    assert figures["completed"] > 0
    assert figures["ttft_mean_ms"] > 0
    assert figures["tpot_mean_ms"] == pytest.approx(5.0, abs=4.0)
    assert figures["goodput_per_second"] == figures["requests_per_second"]
    assert row.environment["generator"] == {"name": "aiperf", "version": "0.13.0", "processes": 1}
    assert row.started_at.timestamp() <= row.summary["began"] <= row.finished_at.timestamp()
    assert [point["at"] for point in row.series] == [float(second + 1) for second in range(len(row.series))]
    assert set(step["cdf"]) == {"ttft", "tpot", "latency"}
    # The key stood in the environment alone, and is gone.
    key = GatewayKey.objects.get()
    assert key.revoked_at is not None
    log = Path(row.log_path).read_text()
    assert "--api-key" not in log
    assert "Phase profiling (profiling) complete" in log
    # Its records are ours: warm-up requests are in them and not in the window.
    data = selectors.columns(row)
    assert data.size > figures["completed"]
    assert (data.sent < step["begin"]).any()
    place = Path(row.folder)
    assert (place / "step-0/aiperf/profile_export_aiperf.json").is_file()
    left = {path.name for path in place.rglob("*")}
    assert not left & {"prompts.jsonl", "profile_export.jsonl", "inputs.json", "work"}

    assert generators.beside(row) is None
    ours = services.repeat_run(world, row, generator="inflight")
    assert ours.seed == row.seed
    assert load_run.run_load(ours.pk, "load")
    ours.refresh_from_db()
    assert ours.state == "succeeded", ours.sentence
    told = serialize.run_dict(ours)["beside"]
    assert (told["ours"], told["aiperf"], told["version"]) == (ours.number, row.number, "0.13.0")
    names = {line["figure"] for line in told["steps"][0]["rows"]}
    assert {"ttft_mean_ms", "tpot_mean_ms", "output_tokens_per_second"} <= names
    assert told == serialize.run_dict(LoadRun.objects.get(pk=row.pk))["beside"]
    assert comparing.compare_runs([[ours], [row]], ["ours", "aiperf"], "ttft_mean_ms")["verdict"]


def test_a_stop_keeps_what_was_measured_and_a_failure_says_aiperfs_own_words(
    world: User, settings: Any
) -> None:
    timing = {"warm_up_seconds": 0.1, "seconds": 60.0, "most_seconds": 60.0, "until_steady": False}
    row = services.start_scenario(world, _scenario(timing=timing), generator="aiperf")
    claim = attempts.claim_run(row.pk, "load", settings.INFLIGHT_NODE_ID)
    assert claim is not None
    attempt = load_run.AiperfAttempt(claim, "load")

    def stop() -> None:
        until = time.monotonic() + 30
        while time.monotonic() < until and attempt.told.phase != "profiling":
            time.sleep(0.05)
        time.sleep(0.3)
        services.stop_run("cli", LoadRun.objects.get(pk=row.pk))

    thread = threading.Thread(target=stop)
    thread.start()
    attempt.run()
    thread.join(30)
    row.refresh_from_db()
    assert (row.state, row.reason) == ("succeeded", "stopped"), row.sentence
    assert row.summary["steps"][0]["figures"]["completed"] > 0

    settings.INFLIGHT_GATEWAY_URL = "http://127.0.0.1:1"
    failing = services.start_scenario(world, _scenario(), generator="aiperf")
    load_run.run_load(failing.pk, "load")
    failing.refresh_from_db()
    assert (failing.state, failing.reason) == ("failed", "aiperf_failed")
    assert "inference request(s) failed" in failing.sentence


def test_what_it_cannot_do_is_refused_naming_the_field(world: User) -> None:
    with pytest.raises(InvalidInput) as refused:
        services.start_scenario(
            world,
            _scenario(load={"mode": "open", "rate": [2.0], "arrivals": "bursty"}, timing={}),
            generator="aiperf",
        )
    assert [each.where for each in refused.value.findings] == ["timing.until_steady", "load.arrivals"]
    with pytest.raises(InvalidInput, match="no generator"):
        services.start_scenario(world, _scenario(), generator="other")
    Node.objects.update(versions={})
    with pytest.raises(NotPossibleNow, match="no AIPerf on the node"):
        services.start_scenario(world, _scenario(), generator="aiperf")
