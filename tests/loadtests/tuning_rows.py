"""A tuning as a worker leaves it."""

from __future__ import annotations

from typing import Any

from apps.core import clock
from apps.loadtests import tuning_space
from apps.loadtests.domain.batching_study import scenario_of
from apps.loadtests.domain.tuner_parameters import DEFAULTS
from apps.loadtests.tuning_models import Trial, Tuning
from apps.serving.models import Deployment


def figures(tokens: float, ttft: float) -> dict[str, float | None]:
    """What a run told."""
    return {"output_tokens_per_second": tokens, "ttft_p99_ms": ttft, "latency_p99_ms": 10 * ttft}


def config(**chosen: Any) -> dict[str, Any]:
    """A configuration of the usual parameters."""
    return {
        "strategy": "inflight",
        "max_batch_size": 16,
        "max_queue_delay_microseconds": 0,
        "max_queue_size": 256,
        **chosen,
    }


def space() -> list[dict[str, Any]]:
    """The usual parameters, each with a few values."""
    values: dict[str, list[Any]] = {
        "strategy": ["inflight", "dynamic"],
        "max_batch_size": [4, 8, 16, 32],
        "max_queue_delay_microseconds": [0, 20_000],
        "max_queue_size": [32, 256],
    }
    return [
        {"name": name, "values": values[name], "ordered": name != "strategy"} for name in DEFAULTS["llamacpp"]
    ]


def tuning(deployment: Deployment, number: int = 1, state: str = "succeeded", trials: int = 4) -> Tuning:
    """A tuning with a trial of what ran, a better one, one that breaks its bound, one that the plan refused."""
    ended = clock.now() if state != "running" else None
    row = Tuning.objects.create(
        number=number,
        state=state,
        deployment=deployment,
        target=deployment.name,
        request={
            "deployment": deployment.name,
            "objectives": ["output_tokens_per_second"],
            "constraints": [{"figure": "ttft_p99_ms", "most": 500.0}],
            "trials": 6,
        },
        scenario={**scenario_of(deployment.name, 16)},
        space=space(),
        base=tuning_space.base_of(deployment),
        share=10,
        seed=1,
        winner=2 if ended else None,
        report=["Best: strategy inflight, max_batch_size 8 (trial 2), 150 tokens/s.", "Second: none."]
        if ended
        else [],
        finished_at=ended,
    )
    made = [
        ("succeeded", config(), "present", figures(120.0, 300.0), ""),
        ("succeeded", config(max_batch_size=8), "prior", figures(150.0, 200.0), ""),
        ("succeeded", config(max_batch_size=32), "model", figures(180.0, 900.0), ""),
        (
            "infeasible",
            config(strategy="dynamic", max_batch_size=32),
            "sampler",
            None,
            "8.0 GiB are needed.",
        ),
    ]
    for index, (ends, chosen, source, told, sentence) in enumerate(made[:trials], 1):
        Trial.objects.create(
            tuning=row,
            number=index,
            state=ends,
            configuration=chosen,
            source=source,
            figures=told,
            sentence=sentence,
            finished_at=clock.now(),
        )
    return row
