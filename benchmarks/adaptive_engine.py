"""Does adaptive admission help on the real engine? The same load through the gateway, in turns without and with it.

    make up DETACH=1 && .venv/bin/python -m benchmarks.adaptive_engine      # INFLIGHT_HOME for a home of your own
    .venv/bin/python -m benchmarks.adaptive_engine --repeats 1 --seconds 60

A closed loop first tells what the engine does with all its slots busy. Promised is a time between tokens of 80% of
that, which it cannot keep with all of them, and a time to the first token; then more requests a second arrive
(Poisson) than it answered. Turns alternate; in each that is adaptive, the controller begins from its widest bounds,
and learns during the warm-up and on. Runs, figures and verdict are the product's own; so are the moves, which are
rows of the audit trail. Adaptive admission is off again at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import load
from benchmarks.home import HomeProblem, enter

if TYPE_CHECKING:
    from apps.loadtests.models import LoadRun
    from apps.serving.models import Deployment

ACTOR = "benchmark"
# Of the time between tokens with every slot busy, and of the requests/s that were answered then.
PROMISED_SHARE, ARRIVING_SHARE = 0.8, 1.3
SHOWN = ("goodput_per_second", "requests_per_second", "ttft_p99_ms", "tpot_p99_ms")


class RunProblem(RuntimeError):
    """A run could not be made; the text says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit 0 where more requests are good with it, and each move is in the audit trail; 1 where not."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.adaptive_engine", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--home", type=Path, default=Path(os.environ.get("INFLIGHT_HOME", "var")))
    parser.add_argument("--deployment", default="demo")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--warm-up", type=float, default=45.0)
    parser.add_argument("--seconds", type=float, default=90.0, help="measured time of a turn")
    parser.add_argument("--ttft", type=float, default=2000.0, help="promised time to the first token, ms")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    try:
        enter(options.home)
        return _run(options)
    except (HomeProblem, RunProblem) as problem:
        print(problem, file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    from apps.gateway import services as gateway
    from apps.loadtests import comparing
    from apps.serving import selectors

    deployment = selectors.deployment(options.deployment)
    before, began = load.read(), time.monotonic()
    full = _figures(_measured(_closed(options, deployment.batching.max_batch_size)))
    itl = PROMISED_SHARE * float(full["tpot_mean_ms"] or 0.0)
    rate = ARRIVING_SHARE * float(full["requests_per_second"] or 0.0)
    if itl <= 0 or rate <= 0:
        raise RunProblem("The closed loop told neither requests/s nor a time between tokens.")
    print(
        f"With all slots busy: {full['requests_per_second']:.2f} requests/s, TPOT {full['tpot_mean_ms']:.0f} ms. "
        f"Promised: TPOT {itl:.0f} ms, TTFT {options.ttft:.0f} ms; {rate:.2f} requests/s arrive.",
        flush=True,
    )
    runs: dict[str, list[LoadRun]] = {"without": [], "adaptive": []}
    moves: list[dict[str, Any]] = []
    try:
        for repeat in range(options.repeats):
            order = ("without", "adaptive") if repeat % 2 == 0 else ("adaptive", "without")
            for name in order:
                promised = {"ttft_ms": options.ttft, "itl_ms": itl, "least_queue": 1}
                gateway.save_adaptive(ACTOR, deployment, {"enabled": False})
                if name == "adaptive":
                    gateway.save_adaptive(ACTOR, deployment, {**promised, "enabled": True})
                since = time.time()
                row = _measured(_open(options, rate, itl))
                runs[name].append(row)
                print(f"{name} {repeat + 1}: {_line(_figures(row))}", flush=True)
                moves += _moves(deployment, since)
    finally:
        gateway.save_adaptive(ACTOR, deployment, {"enabled": False})
    verdict = comparing.compare_runs(
        [runs["without"], runs["adaptive"]], ["without", "adaptive"], "goodput_per_second", 1
    )
    print("\n".join(_told(runs, moves, verdict, options)))
    # It sets Django up, so not before the home is entered.
    from benchmarks.batching import machine

    others = load.others(before, load.read())
    print(
        f"Machine: {machine()}; programs that are not this one, the engine among them, used {others:.0%}. Took "
        f"{time.monotonic() - began:.0f} s."
    )
    if options.json:
        kept = {name: [_figures(row) for row in rows] for name, rows in runs.items()}
        options.json.write_text(
            json.dumps({"runs": kept, "moves": moves, "verdict": verdict}, indent=1, default=str)
        )
    without, adaptive = (_mean(runs[name], "goodput_per_second") for name in runs)
    return 0 if adaptive > without and moves else 1


def _scenario(options: argparse.Namespace, **more: Any) -> dict[str, Any]:
    timing = {
        "warm_up_seconds": options.warm_up,
        "seconds": options.seconds,
        "most_seconds": options.seconds,
        "until_steady": False,
        "requests": 1,
        "grace_seconds": 30.0,
    }
    return {"target": options.deployment, "via": "gateway", "timing": timing, **more}


def _closed(options: argparse.Namespace, slots: int) -> dict[str, Any]:
    found = _scenario(options, load={"mode": "closed", "concurrency": [slots]})
    return {
        **found,
        "timing": {**found["timing"], "warm_up_seconds": 5.0, "seconds": 20.0, "most_seconds": 20.0},
    }


def _open(options: argparse.Namespace, rate: float, itl: float) -> dict[str, Any]:
    return _scenario(
        options, load={"mode": "open", "rate": [rate]}, slo={"ttft_ms": options.ttft, "tpot_ms": itl}
    )


def _measured(scenario: dict[str, Any]) -> LoadRun:
    """Start a run and wait for its end. Raises RunProblem."""
    from apps.loadtests import services

    row = services.start_scenario(ACTOR, scenario, allow_production=True)
    timing = scenario["timing"]
    until = time.monotonic() + 4 * timing["warm_up_seconds"] + timing["seconds"] + 180.0
    while not row.is_terminal:
        if time.monotonic() > until:
            services.stop_run(ACTOR, row)
            raise RunProblem(f"Run #{row.number} did not end; see its page.")
        time.sleep(0.5)
        row.refresh_from_db()
    if row.state != "succeeded":
        raise RunProblem(f"Run #{row.number} is {row.state}: {row.sentence} {row.remedy}")
    return row


def _figures(row: LoadRun) -> dict[str, Any]:
    found: dict[str, Any] = (row.summary or {})["steps"][0]["figures"]
    return found


def _line(figures: dict[str, Any]) -> str:
    refused = (figures["rejected"] or 0) / max(1, figures["requests"] or 0)
    return (
        f"{figures['goodput_per_second'] or 0.0:.2f} good requests/s, {figures['good_share'] or 0.0:.0%} of all, "
        f"TTFT p99 {figures['ttft_p99_ms'] or 0.0:.0f} ms, TPOT p99 {figures['tpot_p99_ms'] or 0.0:.0f} ms, "
        f"{refused:.0%} refused"
    )


def _moves(deployment: Deployment, since: float) -> list[dict[str, Any]]:
    """What the audit trail has of the controller's moves since then, oldest first."""
    from apps.gateway import adaptive

    return [move for move in reversed(adaptive.moves(deployment, 500)) if move["at"].timestamp() >= since]


def _mean(rows: Sequence[LoadRun], name: str) -> float:
    return sum(float(_figures(row)[name] or 0.0) for row in rows) / max(1, len(rows))


def _told(
    runs: dict[str, list[LoadRun]],
    moves: Sequence[dict[str, Any]],
    verdict: dict[str, Any],
    options: argparse.Namespace,
) -> list[str]:
    lines = [
        "",
        "| | good requests/s | requests/s | TTFT p99 (ms) | TPOT p99 (ms) | good of all | refused |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rows in runs.items():
        shown = " | ".join(
            f"{_mean(rows, figure):.2f}" if figure.endswith("second") else f"{_mean(rows, figure):.0f}"
            for figure in SHOWN
        )
        refused = sum(_figures(row)["rejected"] or 0 for row in rows) / max(
            1, sum(_figures(row)["requests"] or 0 for row in rows)
        )
        lines.append(f"| {name} | {shown} | {_mean(rows, 'good_share'):.0%} | {refused:.0%} |")
    lines += ["", f"{verdict['verdict']}. {options.repeats} turns each of {options.seconds:.0f} s.", ""]
    return lines + [
        f"- {move['at']:%H:%M:%S} {move['lever']} {move['before']} to {move['after']}. {move['sentence']}"
        for move in moves
    ]


if __name__ == "__main__":
    sys.exit(main())
