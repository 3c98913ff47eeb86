"""One real tuning on the embedded engine, and its winner applied by a rolling update.

    make up DETACH=1 && make tune                            # 10 trials; INFLIGHT_HOME for a home of your own
    .venv/bin/python -m benchmarks.tune --trials 4 --seconds 8

It makes a deployment of its own (`tune-demo`) out of the demo's engine with a beginner's configuration, has
the product tune it through the same services as the page, and prints the trials, the report, the revisions
before and after. While the winner is rolled out, requests go to the deployment's servers without a pause, and
it is said how many failed. The deployment is deleted at the end (--keep leaves it).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.home import HomeProblem, enter

if TYPE_CHECKING:
    from apps.loadtests.tuning_models import Tuning
    from apps.serving.models import Deployment

NAME = "tune-demo"
# Static batches of four that wait for each other: what somebody might begin with.
BEGINNER = {"strategy": "static", "max_batch_size": 4, "max_queue_delay_microseconds": 200_000}
PARAMETERS = {
    "strategy": ["inflight", "dynamic", "static"],
    "max_batch_size": [2, 4, 8, 16, 32],
    "max_queue_delay_microseconds": [20_000, 200_000],
}


class TuneProblem(RuntimeError):
    """The run could not be made; the text says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit 0 where a winner was applied and serves, 1 where not."""
    options = _parser().parse_args(arguments)
    try:
        enter(options.home)
        return _run(options)
    except (HomeProblem, TuneProblem) as problem:
        print(problem, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune", description=__doc__.splitlines()[0])
    parser.add_argument("--home", type=Path, default=Path(os.environ.get("INFLIGHT_HOME", "var")))
    parser.add_argument("--build", default="", help="a build profile; default: the first with an engine")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--warm-up", type=float, default=4.0)
    parser.add_argument("--seconds", type=float, default=15.0, help="measured time of a trial")
    parser.add_argument(
        "--ttft", type=float, help="TTFT p99 that must be kept, ms; default: that of the beginner"
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="leave the deployment")
    return parser


def _run(options: argparse.Namespace) -> int:
    from apps.loadtests import services, tuning

    began = time.monotonic()
    deployment = _deployment(options.build)
    try:
        bound = options.ttft or _ttft_now(options)
        row = services.start_tuning("make tune", _request(options, bound))
        _wait_for_end(row, options.minutes * 60 + 300)
        row = tuning.tuning(row.number)
        print("\n".join(_told(row)))
        if row.winner is None:
            raise TuneProblem("The tuning has no winner: see its report above.")
        return _apply(row, deployment, began)
    finally:
        if not options.keep:
            _remove()


def _scenario(options: argparse.Namespace) -> dict[str, Any]:
    from apps.loadtests.domain.batching_study import scenario_of

    return scenario_of(NAME, options.clients, options.warm_up, options.seconds)


def _ttft_now(options: argparse.Namespace) -> float:
    """TTFT p99 of the beginner's configuration on this machine as busy as it is, ms: what wins may not be worse."""
    from apps.loadtests import services

    run = services.start_scenario("make tune", _scenario(options), allow_production=True)

    def over() -> bool:
        run.refresh_from_db()
        return bool(run.is_terminal)

    _until(over, 300, "end its first run")
    steps = (run.summary or {}).get("steps") or [{"figures": {}}]
    found = steps[0]["figures"].get("ttft_p99_ms")
    if not found:
        raise TuneProblem(f"The first run told no TTFT: {run.sentence} {run.remedy}")
    print(f"TTFT p99 now {found:.0f} ms: the bound.", file=sys.stderr)
    return float(found)


def _request(options: argparse.Namespace, ttft: float) -> dict[str, Any]:
    return {
        "deployment": NAME,
        "parameters": PARAMETERS,
        "constraints": [{"figure": "ttft_p99_ms", "most": ttft}],
        "scenario": _scenario(options),
        "trials": options.trials,
        "minutes": options.minutes,
        "seed": options.seed,
    }


def _deployment(build: str) -> Deployment:
    """A deployment with the beginner's configuration that serves."""
    from apps.engines.models import BuildProfile
    from apps.engines.selectors import newest_engine
    from apps.serving import selectors
    from apps.serving import services as serving
    from apps.serving.models import Deployment

    names = [row for row in BuildProfile.objects.order_by("pk") if newest_engine(row) is not None]
    chosen = next((row for row in names if not build or row.name == build), None)
    if chosen is None:
        raise TuneProblem("No build profile has an engine yet: start the home with make up and wait for it.")
    _remove()
    serving.save_batching_profile("make tune", {"name": NAME, **BEGINNER})
    row = serving.save_deployment(
        "make tune",
        {
            "name": NAME,
            "build_profile": chosen,
            "batching": NAME,
            "placement": {"device": "any", "share": 10},
        },
    )
    serving.deploy("make tune", row)
    _until(lambda: bool(selectors.endpoints(Deployment.objects.get(pk=row.pk))), 300, "serve")
    return Deployment.objects.get(pk=row.pk)


def _until(done: Callable[[], bool], seconds: float, what: str) -> float:
    """Wait until it is so; how long that took. Raises TuneProblem."""
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > seconds:
            raise TuneProblem(f"{NAME} did not {what} within {seconds:.0f} s; see make status and the page.")
        time.sleep(0.5)
    return time.monotonic() - began


def _wait_for_end(row: Tuning, seconds: float) -> None:
    """Print each trial as it ends."""
    from apps.loadtests import tuning_space
    from apps.loadtests.domain.tuner_report import words

    space = tuning_space.space_of(row)
    shown: set[int] = set()

    def over() -> bool:
        row.refresh_from_db()
        for trial in row.trials.order_by("number"):
            if trial.is_terminal and trial.number not in shown:
                shown.add(trial.number)
                told = (trial.figures or {}).get("output_tokens_per_second")
                text = trial.state if told is None else f"{told:.1f} tokens/s"
                print(
                    f"trial {trial.number} ({trial.source}): {words(space.acting(trial.configuration))}: {text}",
                    file=sys.stderr,
                )
        return row.is_terminal

    _until(over, seconds, "end its tuning")


def _told(row: Tuning) -> list[str]:
    """The trials as Markdown, then the report."""
    from apps.loadtests import tuning_space
    from apps.loadtests.domain.tuner_report import words

    space = tuning_space.space_of(row)
    lines = [
        "| trial | proposed by | configuration | tokens/s | TTFT p99 (ms) | latency p99 (ms) | |",
        "|---|---|---|---|---|---|---|",
    ]
    for trial in row.trials.order_by("number"):
        told = trial.figures or {}
        cells = [
            "-" if (value := told.get(name)) is None else f"{value:.1f}"
            for name in ("output_tokens_per_second", "ttft_p99_ms", "latency_p99_ms")
        ]
        mark = (
            "winner" if trial.number == row.winner else trial.sentence if trial.state != "succeeded" else ""
        )
        chosen = words(space.acting(trial.configuration))
        lines.append(f"| {trial.number} | {trial.source} | {chosen} | {' | '.join(cells)} | {mark} |")
    return [*lines, "", *(f"- {line}" for line in row.report), ""]


class Traffic:
    """One request after the other to whatever serves, in a thread of its own."""

    def __init__(self, url: Callable[[], tuple[str, str] | None]) -> None:
        self.answered, self.failed, self.reasons = 0, 0, set[str]()
        self._url, self._stop = url, threading.Event()
        self._thread = threading.Thread(target=self._go)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _go(self) -> None:
        from django.db import connection

        while not self._stop.is_set():
            place = self._url()
            if place is None:
                self.failed += 1
                self.reasons.add("no server serves")
                self._stop.wait(0.2)
                continue
            body = json.dumps({"text_input": "Count to five.", "max_tokens": 16, "stream": False}).encode()
            asked = urllib.request.Request(
                f"{place[0]}/v2/models/{place[1]}/generate_stream", body, {"Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(asked, timeout=30) as response:
                    response.read()
                self.answered += 1
            except (urllib.error.URLError, OSError) as problem:
                self.failed += 1
                self.reasons.add(str(problem))
        connection.close()


def _apply(row: Tuning, deployment: Deployment, began: float) -> int:
    from apps.loadtests import services
    from apps.serving import selectors
    from apps.serving.models import Deployment

    def place() -> tuple[str, str] | None:
        found = selectors.endpoints(Deployment.objects.get(pk=deployment.pk))
        return (found[0].http_url, found[0].model) if found else None

    before = deployment.active_revision
    with Traffic(place) as traffic:
        services.apply_tuning("make tune", row)

        def rolled_out() -> bool:
            fresh = Deployment.objects.select_related("active_revision").get(pk=deployment.pk)
            new = fresh.active_revision
            return new is not None and before is not None and new.pk != before.pk and fresh.state == "ready"

        took = _until(rolled_out, 300, "roll out its winner")
    fresh = Deployment.objects.select_related("active_revision").get(pk=deployment.pk)
    revisions = ", ".join(f"r{each.number} {each.state}" for each in fresh.revisions.order_by("number"))
    failed = f"{traffic.failed} failed" + (
        f" ({'; '.join(sorted(traffic.reasons))})" if traffic.reasons else ""
    )
    print(f"- Applied by a rolling update in {took:.0f} s: {revisions}; profile {fresh.batching.name}.")
    print(f"- Meanwhile {traffic.answered} requests were answered, {failed}.")
    print(f"- Took {time.monotonic() - began:.0f} s in all.")
    return 0 if not traffic.failed else 1


def _remove() -> None:
    """The deployment of an earlier or this run, with its profiles."""
    from apps.core.exceptions import InflightError
    from apps.serving import services as serving
    from apps.serving.models import BatchingProfile, Deployment

    row = Deployment.objects.filter(name=NAME).first()
    if row is not None:
        if row.desired == Deployment.Desired.RUNNING:
            serving.stop("make tune", row)
        _until(lambda: Deployment.objects.get(pk=row.pk).state in ("stopped", "failed"), 120, "stop")
        serving.delete_deployment("make tune", Deployment.objects.get(pk=row.pk))
    for profile in BatchingProfile.objects.filter(name__startswith=NAME):
        with contextlib.suppress(InflightError):
            serving.delete_batching_profile("make tune", profile)


if __name__ == "__main__":
    sys.exit(main())
