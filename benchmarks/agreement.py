"""Our load generator against a straight client on the same scenario: TTFT, gaps of tokens, throughput.

    .venv/bin/python -m benchmarks.agreement                        # a double whose times are known
    .venv/bin/python -m benchmarks.agreement --engine PATH.gguf     # the real server
    .venv/bin/python -m benchmarks.agreement --aiperf VENV/bin/aiperf --clients 4   # AIPerf, over the OpenAI API

The straight client (benchmarks.closed_loop) is aiohttp and reads times as they come; it shares nothing with
workers.loadgen. They take turns; printed are the medians of the turns' means and how far ours lie from the
client's. Exit 1 unless all lie within 3%.

AIPerf speaks the OpenAI API alone, so it and ours (as through the gateway) ask a double of that API whose answers
take known times. AIPerf would fetch a tokenizer from the network; it gets a small one from a folder instead, because
tokens are the server's (--use-server-token-count). Its inter-token latency is our TPOT.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from apps.loadtests.domain.aiperf import RESULTS, read_results
from apps.loadtests.domain.scenario import Scenario, parse
from apps.loadtests.domain.workload import Frame, Workload
from apps.serving.domain.batching import BatchingFacts
from benchmarks import closed_loop
from benchmarks.closed_loop import SYSTEM, Ask
from benchmarks.loadgen_double import MODEL as DOUBLE
from benchmarks.serving import MODEL, find_installation, serve
from workers.loadgen.asker import prompt_of
from workers.loadgen.plan import KEY, SUMMARY, Address, Plan

CHECKOUT = Path(__file__).resolve().parents[1]
WITHIN, WARM_UP = 0.03, 3.0
OTHER_SEEDS = 1000
# Slow enough that what reading costs a client is a small part of it.
GAP_SECONDS = 0.05
FRAME = Frame(f"{SYSTEM}<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n", "")
AIPERF_NAMES = (
    ("TTFT mean (ms)", "ttft_mean_ms"),
    ("TPOT mean (ms)", "tpot_mean_ms"),
    ("tokens/s", "output_tokens_per_second"),
)
NAMES = (
    ("TTFT mean (ms)", "ttft_mean_ms"),
    ("gap of tokens mean (ms)", "itl_mean_ms"),
    ("tokens/s", "output_tokens_per_second"),
)


@contextlib.contextmanager
def _double() -> Iterator[tuple[Address, str]]:
    argv = [sys.executable, "-m", "benchmarks.loadgen_double", "--gap", str(GAP_SECONDS)]
    with subprocess.Popen(argv, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield Address("127.0.0.1", port, DOUBLE), f"http://127.0.0.1:{port}/v2/models/{DOUBLE}"
        finally:
            process.kill()


@contextlib.contextmanager
def _engine(path: Path, clients: int) -> Iterator[tuple[Address, str]]:
    with serve(find_installation(), path, BatchingFacts("inflight", clients, 1024, 0, 256, 0)) as server:
        port = int(server.http_url.rpartition(":")[2])
        yield Address("127.0.0.1", port, MODEL, server.grpc_url), f"{server.http_url}/v2/models/{MODEL}"


def scenario_of(model: str, options: argparse.Namespace, via: str = "http") -> Scenario:
    """What both ask for.

    The engine's answers are of several lengths: with one length all clients ask and end together, and a window's
    figures then depend on how many of these waves fall into it.
    """
    mean = float(options.tokens)
    output: dict[str, Any] = {"mean": mean}
    if options.engine is not None:
        output = {"distribution": "uniform", "least": round(mean / 2), "most": round(mean * 1.5)}
    return parse(
        {
            "target": model,
            "via": via,
            "load": {"concurrency": [options.clients]},
            "prompts": {"input": {"mean": 8.0}, "output": output},
            "timing": {
                "warm_up_seconds": WARM_UP,
                "seconds": options.seconds,
                "most_seconds": options.seconds,
                "until_steady": False,
            },
        }
    )


def ours(
    address: Address,
    options: argparse.Namespace,
    seed: int,
    names: Sequence[tuple[str, str]] = NAMES,
    via: str = "http",
) -> dict[str, float]:
    """Figures of workers.loadgen."""
    scenario = scenario_of(address.model, options, via)
    with tempfile.TemporaryDirectory(prefix="inflight-agreement-") as folder:
        plan = Plan(Path(folder), scenario, seed, (address,), FRAME)
        argv = [sys.executable, "-m", "workers.loadgen", str(plan.write())]
        environ = {**os.environ, KEY: "none is asked for"}
        done = subprocess.run(argv, cwd=CHECKOUT, env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"the generator failed:\n{done.stdout[-2000:]}")
        figures: dict[str, Any] = json.loads((Path(folder) / SUMMARY).read_text())["steps"][0]["figures"]
    return {name: float(figures[name]) for _, name in names}


def straight(url: str, options: argparse.Namespace, seed: int) -> dict[str, float]:
    """Figures of the straight client: prompts of the same kind, none of which ours left in the cache."""
    drawn = Workload(scenario_of(MODEL, options).prompts, OTHER_SEEDS + seed)
    asked = (drawn.ask(number) for number in itertools.count())
    asks = (Ask(prompt_of(FRAME, ask.text, ()), ask.tokens) for ask in asked)
    window = asyncio.run(closed_loop.run(url, asks, options.clients, 4 * WARM_UP, options.seconds))
    return {
        "ttft_mean_ms": float(np.mean(window.first_tokens)) * 1000,
        "itl_mean_ms": float(np.mean(window.gaps)) * 1000,
        "output_tokens_per_second": window.tokens / options.seconds,
    }


@contextlib.contextmanager
def _openai(tokens: int) -> Iterator[Address]:
    gap = str(round(GAP_SECONDS * 1000))
    argv = [
        sys.executable,
        "-m",
        "tests.support.openai_double",
        "--port",
        "0",
        "--chunks",
        str(tokens),
        "--gap-ms",
        gap,
    ]
    with subprocess.Popen(argv, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Address("127.0.0.1", int(process.stdout.readline().split()[-1]), "demo")
        finally:
            process.kill()


def aiperf(
    program: Path, address: Address, options: argparse.Namespace, seed: int
) -> dict[str, float | None]:
    """Figures of an AIPerf run, by our names."""
    with tempfile.TemporaryDirectory(prefix="inflight-aiperf-") as place:
        folder = Path(place)
        vocabulary = {"[UNK]": 0, "hello": 1, "there": 2}
        model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
        tokenizer = {
            "version": "1.0",
            "model": model,
            "pre_tokenizer": {"type": "Whitespace"},
            "added_tokens": [],
        }
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        kind = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}
        (folder / "tokenizer_config.json").write_text(json.dumps(kind))
        (folder / "prompts.jsonl").write_text('{"text": "hello there"}\n' * 200)
        argv = [
            *(str(program), "profile", "--model", address.model),
            *("--url", f"http://{address.host}:{address.port}", "--endpoint-type", "chat", "--streaming"),
            *("--tokenizer", place, "--use-server-token-count", "--ui", "none", "--workers-max", "1"),
            *("--input-file", str(folder / "prompts.jsonl"), "--custom-dataset-type", "single_turn"),
            *("--output-artifact-dir", str(folder / "out"), "--random-seed", str(seed)),
            *("--concurrency", str(options.clients), "--warmup-duration", f"{WARM_UP:g}"),
            *("--benchmark-duration", f"{options.seconds:g}", "--benchmark-grace-period", "10"),
        ]
        done = subprocess.run(argv, cwd=place, capture_output=True, text=True, check=False)
        path = folder / "out" / RESULTS
        if not path.is_file():
            raise SystemExit(f"AIPerf measured nothing:\n{(done.stdout + done.stderr)[-2000:]}")
        return read_results(path.read_text(encoding="utf-8")).figures


def with_aiperf(options: argparse.Namespace) -> int:
    """Ours and AIPerf in turns against a double of the OpenAI API."""
    rows: dict[str, list[dict[str, Any]]] = {"ours": [], "aiperf": []}
    with _openai(options.tokens) as address:
        for repeat in range(options.repeats):
            rows["ours"].append(ours(address, options, repeat, AIPERF_NAMES, "gateway"))
            rows["aiperf"].append(aiperf(options.aiperf, address, options, repeat))
    return _print("AIPerf", rows["aiperf"], rows["ours"], AIPERF_NAMES)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.agreement", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--engine", type=Path)
    parser.add_argument("--aiperf", type=Path, help="the program of an installed AIPerf")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if options.aiperf is not None:
        return with_aiperf(options)
    rows: dict[str, list[dict[str, float]]] = {"ours": [], "straight": []}
    with _engine(options.engine, options.clients) if options.engine else _double() as (address, url):
        for repeat in range(options.repeats):
            rows["ours"].append(ours(address, options, repeat))
            rows["straight"].append(straight(url, options, repeat))
    return _print("straight client", rows["straight"], rows["ours"], NAMES)


def _print(
    other: str,
    theirs: Sequence[Mapping[str, Any]],
    mine: Sequence[Mapping[str, Any]],
    names: Sequence[tuple[str, str]],
) -> int:
    print(f"| | {other} | ours | apart |\n|---|---|---|---|")
    worst = 0.0
    for title, name in names:
        client, us = (statistics.median(row[name] for row in side) for side in (theirs, mine))
        worst = max(worst, abs(us / client - 1))
        print(f"| {title} | {client:.2f} | {us:.2f} | {us / client - 1:+.1%} |")
    return 0 if worst <= WITHIN else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
