"""The batching study: none, static, dynamic and in-flight on one engine, in turns, with intervals and a verdict.

    make study                                              # bounded to 10 minutes
    FULL=1 make study                                       # also delays of dynamic and batch sizes of in-flight
    .venv/bin/python -m benchmarks.study --engine PATH.gguf --repeats 3 --seconds 24 --keep FOLDER

Every configuration's server is started once (those of a sweep one group after the other) and they take turns;
each second repeat goes the other way round. The load is the product's own generator (workers.loadgen), figures
and verdict are apps.loadtests.domain's. `--keep` leaves every request's record, which benchmarks.verdict resamples.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from apps.loadtests.domain import records
from apps.loadtests.domain.batching_study import ArmSettings, arms_of, explain, scenario_of, table
from apps.loadtests.domain.compare import Arm, Comparison, Sample, compare, sample
from apps.loadtests.domain.metrics import Window
from apps.loadtests.domain.scenario import parse
from apps.loadtests.domain.workload import Frame
from apps.serving.domain.batching import BatchingFacts
from benchmarks import load
from benchmarks.batching import find_engine, machine
from benchmarks.closed_loop import SYSTEM
from benchmarks.serving import MODEL, RunningServer, ServerProblem, find_installation, serve
from workers.loadgen.plan import SUMMARY, Plan, addresses_of, records_of

CHECKOUT = Path(__file__).resolve().parents[1]
# The demo model's own template around a question.
FRAME = Frame(
    f"{SYSTEM}<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>\n<|im_start|>user\n"
)
MOST_SECONDS = 600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Exit 0 with the table, 1 where nothing could be measured."""
    options = _parser().parse_args(arguments)
    began = time.monotonic()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="inflight-study-"))
    try:
        engine = options.engine or find_engine()
        before = load.read()
        arms = arms_of(options.slots, options.full)
        found, samples = _measure(arms, engine, folder, options)
        print(_report(found, engine, options, time.monotonic() - began, load.others(before, load.read())))
        if options.json:
            options.json.write_text(json.dumps({"verdict": found.as_dict(), "runs": samples}, indent=1))
    except ServerProblem as problem:
        print(problem, file=sys.stderr)
        return 1
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.study", description=__doc__.splitlines()[0])
    parser.add_argument("--engine", type=Path, help="a GGUF file; default: the newest F16 engine of the home")
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--threads", type=int, default=0, help="0: every core")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--warm-up", type=float, default=6.0)
    parser.add_argument("--seconds", type=float, default=24.0, help="measured time of a turn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--full", action="store_true", default=bool(os.environ.get("FULL")))
    parser.add_argument("--keep", type=Path, help="leave plans, logs and records here")
    parser.add_argument("--json", type=Path, help="write every figure here")
    return parser


def _measure(
    arms: Sequence[ArmSettings], engine: Path, folder: Path, options: argparse.Namespace
) -> tuple[Comparison, dict[str, list[dict[str, Any]]]]:
    """Every turn; groups of four servers at a time, because each holds its weights and cache."""
    installation = find_installation()
    samples: dict[str, list[Sample]] = {arm.label: [] for arm in arms}
    told: dict[str, list[dict[str, Any]]] = {arm.label: [] for arm in arms}
    for begin in range(0, len(arms), 4):
        group = arms[begin : begin + 4]
        with contextlib.ExitStack() as stack:
            servers = {
                arm.label: stack.enter_context(serve(installation, engine, _facts(arm, options.threads)))
                for arm in group
            }
            for repeat in range(options.repeats):
                for arm in group if repeat % 2 == 0 else reversed(group):
                    place = folder / f"{arm.label.replace(' ', '-')}-{repeat}"
                    run, summary = turn(servers[arm.label], place, options, options.seed + repeat)
                    samples[arm.label].append(run)
                    figures = summary["steps"][0]["figures"]
                    told[arm.label].append({"figures": figures, "generator": summary["generator"]})
                    bound = ", generator-bound" if summary["generator"]["bound"] else ""
                    print(
                        f"{arm.label} {repeat + 1}: {figures['output_tokens_per_second']:.1f} tokens/s{bound}",
                        file=sys.stderr,
                        flush=True,
                    )
    ordered = [Arm(arm.label, samples[arm.label]) for arm in arms]
    return compare(ordered, seed=options.seed), told


def _facts(arm: ArmSettings, threads: int) -> BatchingFacts:
    return BatchingFacts(arm.strategy, arm.max_batch_size, 1024, threads, 256, arm.delay_microseconds)  # type: ignore[arg-type]


def turn(
    server: RunningServer, folder: Path, options: argparse.Namespace, seed: int
) -> tuple[Sample, dict[str, Any]]:
    """One run of the generator against a server: its sample and its summary."""
    scenario = parse(scenario_of(MODEL, options.slots, options.warm_up, options.seconds))
    addresses = addresses_of([(server.http_url, server.grpc_url, MODEL)])
    plan = Plan(folder, scenario, seed, addresses, FRAME, processes=1)
    argv = [sys.executable, "-m", "workers.loadgen", str(plan.write())]
    with (folder / "log.txt").open("wb") as log:
        done = subprocess.run(argv, cwd=CHECKOUT, stdout=log, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise ServerProblem(f"The generator failed:\n{(folder / 'log.txt').read_text()[-2000:]}")
    summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text())
    window = Window(summary["steps"][0]["begin"], summary["steps"][0]["end"])
    data = records.columns(records.read(records_of(folder, 1)))
    return sample(data, window, "closed"), summary


def _report(
    found: Comparison, engine: Path, options: argparse.Namespace, seconds: float, others: float
) -> str:
    verdict = found.as_dict()
    said = [
        *table(verdict),
        "",
        *(f"- {line}" for line in explain(verdict)),
        *(f"- {line}" for line in _sweeps(verdict)),
        "",
        f"{options.repeats} interleaved repeats of {options.seconds:.0f} s, {options.slots} clients and slots, "
        "answers of 8 to 128 tokens; figures are means over the repeats, intervals hold 95%, all but tokens/s are "
        "corrected for being many.",
        f"Engine: {engine.name}, {engine.stat().st_size / 1e6:.0f} MB. Machine: {machine()}; other programs used "
        f"{others:.0%} of it. Took {seconds:.0f} s.",
    ]
    return "\n".join(said)


def _sweeps(verdict: dict[str, Any]) -> list[str]:
    """One sentence for each sweep: where tokens/s are highest and where the tail is shortest."""
    found = []
    for what, prefix in (("delay", "dynamic "), ("batch size", "inflight batch ")):
        arms = [arm for arm in verdict["arms"] if arm["label"].startswith(prefix)]
        name = {"delay": "dynamic", "batch size": "inflight"}[what]
        arms += [arm for arm in verdict["arms"] if arm["label"] == name]
        if len(arms) > 1:
            most = max(arms, key=lambda arm: arm["differences"]["output_tokens_per_second"]["value"])
            least = min(arms, key=lambda arm: arm["differences"]["latency_p99_ms"]["value"])
            found.append(
                f"Over the {what}: most tokens/s with {most['label']}, shortest p99 latency with {least['label']}."
            )
    return found


if __name__ == "__main__":
    # So that being asked to end runs the blocks that end the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
