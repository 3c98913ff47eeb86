"""Runs as a load worker leaves them: synthetic records, the summary that the domain makes of them, a study of
two arms."""

from __future__ import annotations

import copy
import functools
import gzip
import json
import math
import random
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from apps.core import clock
from apps.loadtests import comparing
from apps.loadtests.domain import records
from apps.loadtests.domain.generator import judge
from apps.loadtests.domain.metrics import Window
from apps.loadtests.domain.records import Record
from apps.loadtests.domain.results import summarise_run
from apps.loadtests.domain.scenario import Scenario, parse
from apps.loadtests.models import LoadRun, LoadTest, Study
from apps.serving.models import Deployment
from tests.loadtests import quality_rows, tuning_rows

SECONDS = 20.0


def scenario(target: str = "demo", **more: Any) -> Scenario:
    """A closed loop of four clients, an SLO."""
    return parse({"target": target, "load": {"concurrency": [4]}, "slo": {"ttft_ms": 500.0}, **more})


def synthetic(
    seed: int, speed: float = 1.0, clients: int = 4, seconds: float = SECONDS, step: int = 0
) -> list[Record]:
    """What a closed loop of so many clients sees of a server that takes about 10 ms a token."""
    drawn = random.Random(seed)
    found = []
    for client in range(clients):
        at = 0.01 * client
        while at < seconds:
            tokens = drawn.randint(8, 64)
            gap = 0.01 * math.exp(drawn.gauss(0, 0.2)) / speed
            first = at + 0.05 * math.exp(drawn.gauss(0, 0.4)) / speed
            times = tuple(first + gap * index for index in range(tokens))
            found.append(
                Record(
                    at,
                    at + 0.0005,
                    times,
                    (1,) * tokens,
                    times[-1],
                    tokens,
                    20,
                    tokens,
                    step=step,
                    index=len(found),
                )
            )
            at = times[-1]
    return found


def write(folder: Path, rows: list[Record]) -> None:
    """The file of records that a part writes."""
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / "records-0.jsonl.gz", "wb") as file:
        for row in rows:
            file.write(json.dumps(records.as_line(row)).encode() + b"\n")


@functools.cache
def _measured(number: int, speed: float, target: str) -> dict[str, Any]:
    """The summary of a run, worked out once a process."""
    return summary(synthetic(number, speed), scenario(target), [(4.0, Window(4.0, SECONDS), "measured")])


@functools.cache
def shared_folder() -> Path:
    """Where the records of a process's worlds lie; they are the same in each."""
    return Path(tempfile.mkdtemp(prefix="inflight-load-rows-"))


_verdicts: dict[tuple[int, int], dict[str, Any]] = {}


def summary(rows: list[Record], given: Scenario, windows: list[tuple[float, Window, str]]) -> dict[str, Any]:
    """What the coordinator writes."""
    part = {
        "cpu": 0.2,
        "late": {"p50_ms": 0.2, "p99_ms": 1.1, "most_ms": 3.0},
        "lag": {"p50_ms": 0.1, "p99_ms": 0.8},
    }
    found = summarise_run(records.columns(rows), windows, given.load.metrics_mode, given.slo.as_slo())
    return {**found, "generator": {**judge([part], given.load.mode), "others_cpu": 0.4}, "seed": 1}


def series(seconds: int = 30) -> list[dict[str, Any]]:
    """Live points of a run."""
    return [
        {
            "at": float(second),
            "step": 0,
            "started": 5,
            "completed": 5,
            "errors": 0,
            "tokens": 150 + 10 * math.sin(second / 3),
            "running": 4,
            "latency_mean_ms": 400.0,
            "ttft_p50_ms": 60.0,
            "ttft_most_ms": 90.0,
            "warm": second > 5,
        }
        for second in range(1, seconds)
    ]


def run(
    number: int, folder: Path, deployment: Deployment | None = None, *, speed: float = 1.0, **columns: Any
) -> LoadRun:
    """A run that has ended, its records in a folder of its own."""
    given = scenario(deployment.name if deployment else "demo")
    if not (folder / f"{number}-1").is_dir():
        write(folder / f"{number}-1", synthetic(number, speed))
    now = clock.now()
    values = {
        "state": "succeeded",
        "target": given.target,
        "deployment": deployment,
        "scenario": given.model_dump(mode="json"),
        "seed": number,
        "summary": copy.deepcopy(_measured(number, speed, given.target)),
        "series": series(),
        "environment": {
            "engine": {"quantization": "F16"},
            "batching": {"strategy": "inflight"},
            "instances": [],
        },
        "folder": str(folder / f"{number}-1"),
        "progress": 1.0,
        "started_at": now - timedelta(seconds=40),
        "finished_at": now,
        **columns,
    }
    return LoadRun.objects.create(number=number, **values)


def study(number: int, folder: Path, deployment: Deployment, first: int = 1, repeats: int = 3) -> Study:
    """A study that has ended: the second arm a fifth faster, its runs from `first` on."""
    labels = ("slow", "quick")
    row = Study.objects.create(
        number=number,
        state="succeeded",
        study_kind=Study.Kind.DEPLOYMENTS,
        title="slow against quick",
        arms=[
            {"label": label, "deployment": deployment.name, "own": False, "settings": {}} for label in labels
        ],
        repeats=repeats,
        scenario=scenario(deployment.name).model_dump(mode="json"),
        primary="output_tokens_per_second",
        seed=7,
    )
    for turn in range(2 * repeats):
        arm = turn % 2
        strategy = {"strategy": labels[arm]}
        environment = {"engine": {"quantization": "F16"}, "batching": strategy, "instances": []}
        run(
            first + turn,
            folder,
            deployment,
            speed=1.2 if arm else 1.0,
            study=row,
            arm=arm,
            repeat=turn // 2,
            environment=environment,
        )
    if (first, repeats) not in _verdicts:
        _verdicts[first, repeats] = comparing.verdict_of(row)
    row.verdict = _verdicts[first, repeats]
    row.save()
    return row


def everything(deployment: Deployment, folder: Path | None = None) -> Study:
    """A study with its six runs, one that runs, a load test."""
    LoadTest.objects.create(name="steady", scenario=scenario(deployment.name).model_dump(mode="json"))
    place = folder or shared_folder()
    found = study(1, place, deployment)
    tuning_rows.tuning(deployment)
    unfinished = {"summary": None, "progress": 0.4, "eta_seconds": 20.0, "finished_at": None}
    run(7, place, deployment, state="running", **unfinished)
    quality_rows.everything(deployment)
    return found
