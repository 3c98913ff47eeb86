"""A stand-in for the `aiperf` program of NVIDIA's AIPerf 0.13: real arguments in, real requests, the real files out.

`install(folder)` makes a virtual environment's worth of it: bin/aiperf and the distribution's name beside it. It
takes the arguments that AIPerf has (another one is refused as AIPerf does, with exit code 1), reads the file of
prompts and the file of configuration with ${VARIABLES}, asks an OpenAI-style API, and leaves
profile_export_aiperf.json, profile_export.jsonl and inputs.json. An interrupt is AIPerf's: nothing more is sent,
results are written, exit code 0.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

VERSION = "0.13.0"
ROOT = Path(__file__).resolve().parents[2]


def install(prefix: Path) -> Path:
    """Put it where a virtual environment would; returns the program."""
    (prefix / f"lib/python3.11/site-packages/aiperf-{VERSION}.dist-info").mkdir(parents=True)
    program = prefix / "bin" / "aiperf"
    program.parent.mkdir()
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom tests.support.aiperf_double import main\nmain()\n"
    program.write_text(f"#!{sys.executable}\n{code}", encoding="utf-8")
    program.chmod(0o755)
    return program


def _say(level: str, text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}.000 {level:<8} {text} (double.py:1)", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="aiperf", allow_abbrev=False)
    parser.add_argument("command", choices=["profile"])
    for name in ("model", "url", "endpoint-type", "tokenizer", "input-file", "custom-dataset-type"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("dataset-sampling-strategy", "export-level", "ui", "extra-inputs", "goodput"):
        parser.add_argument(f"--{name}")
    for name in ("streaming", "use-server-token-count", "no-gpu-telemetry", "no-server-metrics"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--fixed-schedule", action="store_true")
    parser.add_argument("--output-artifact-dir", type=Path, required=True)
    parser.add_argument("--config", type=Path)
    for name in ("random-seed", "workers-max", "concurrency"):
        parser.add_argument(f"--{name}", type=int)
    for name in ("request-rate", "warmup-duration", "benchmark-duration", "benchmark-grace-period"):
        parser.add_argument(f"--{name}", type=float)
    parser.add_argument("--arrival-pattern", choices=["poisson", "constant", "gamma", "concurrency_burst"])
    return parser.parse_args()


class Run:
    """One profile run."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.url = given, urlsplit(given.url)
        self.rows = [json.loads(line) for line in Path(given.input_file).read_text().splitlines()]
        self.stop = asyncio.Event()
        self.lines: list[dict[str, Any]] = []
        self.asked = 0
        self.key = ""
        if given.config is not None:
            said = json.loads(os.path.expandvars(given.config.read_text(encoding="utf-8")))
            self.key = said["benchmark"]["endpoint"]["api_key"]

    async def run(self) -> None:
        """Warm up, measure."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self.stop.set)
        if self.given.warmup_duration:
            await self._phase("warmup", self.given.warmup_duration)
        if not self.stop.is_set():
            await self._phase("profiling", self.given.benchmark_duration or 3600.0)

    async def _phase(self, phase: str, seconds: float) -> None:
        _say("NOTICE", f"Phase {phase} ({phase}) started | phase_index=0 | target: {seconds}s duration")
        end = time.monotonic() + seconds
        if self.given.fixed_schedule:
            await asyncio.gather(*(self._at(row) for row in self.rows))
        else:
            await asyncio.gather(*(self._client(phase, end) for _ in range(self.given.concurrency or 2)))
        _say("NOTICE", f"Phase {phase} ({phase}) sending complete | sent={self.asked}")
        _say("NOTICE", f"Phase {phase} ({phase}) complete | completed={self.asked}")

    async def _at(self, row: dict[str, Any]) -> None:
        await asyncio.sleep(row["timestamp"] / 1000)
        await self._converse("profiling", row)

    async def _client(self, phase: str, end: float) -> None:
        while time.monotonic() < end and not self.stop.is_set():
            row = self.rows[self.asked % len(self.rows)]
            self.asked += 1
            await self._converse(phase, row)

    async def _converse(self, phase: str, row: dict[str, Any]) -> None:
        messages: list[dict[str, str]] = []
        for turn, said in enumerate(row.get("turns") or [row]):
            messages.append({"role": "user", "content": said["text"]})
            messages.append({"role": "assistant", "content": await self._ask(phase, turn, messages, said)})

    async def _ask(self, phase: str, turn: int, messages: list[dict[str, str]], said: dict[str, Any]) -> str:
        body = json.dumps(
            {
                "model": self.given.model,
                "messages": messages,
                "max_completion_tokens": said["output_length"],
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        ).encode()
        issued, started = time.time_ns(), time.perf_counter()
        try:
            reader, writer = await asyncio.open_connection(self.url.hostname, self.url.port)
        except OSError:
            self._keep(phase, turn, issued, 0, [], {})
            await asyncio.sleep(0.05)
            return ""
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            + f"Authorization: Bearer {self.key}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        status = int((await reader.readline()).split()[1])
        times, text, usage = [], "", {}
        while line := await reader.readline():
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                usage = event.get("usage") or usage
                for choice in event.get("choices") or ():
                    if piece := (choice.get("delta") or {}).get("content"):
                        text += piece
                        times.append((time.perf_counter() - started) * 1000)
            if line.startswith(b"data: [DONE]"):
                break
        writer.close()
        self._keep(phase, turn, issued, status, times, usage)
        return text

    def _keep(
        self, phase: str, turn: int, issued: int, status: int, times: list[float], usage: dict[str, int]
    ) -> None:
        meta = {
            "session_num": len(self.lines),
            "turn_index": turn,
            "credit_issued_ns": issued,
            "request_start_ns": issued,
            "request_end_ns": time.time_ns(),
            "benchmark_phase": phase,
            "was_cancelled": False,
        }
        metrics: dict[str, Any] = {}
        error = None
        if times:
            gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
            tokens = usage.get("completion_tokens", len(times))
            metrics = {
                "time_to_first_token": {"value": times[0], "unit": "ms"},
                "request_latency": {"value": times[-1], "unit": "ms"},
                "inter_chunk_latency": {"value": gaps, "unit": "ms"},
                "output_sequence_length": {"value": tokens, "unit": "tokens"},
                "input_sequence_length": {"value": usage.get("prompt_tokens", 0), "unit": "tokens"},
            }
        else:
            error = {"code": status, "type": "HTTPError", "message": f"status {status}"}
        self.lines.append({"metadata": meta, "metrics": metrics, "error": error})

    def write(self) -> int:
        """The files that AIPerf leaves; returns its exit code."""
        out = self.given.output_artifact_dir
        out.mkdir(parents=True, exist_ok=True)
        (out / "inputs.json").write_text("{}", encoding="utf-8")
        (out / "profile_export.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in self.lines), encoding="utf-8"
        )
        mine = [line for line in self.lines if line["metadata"]["benchmark_phase"] == "profiling"]
        good = [line["metrics"] for line in mine if line["metrics"]]
        if mine and not good:
            _say(
                "ERROR",
                f"All {len(mine)} inference request(s) failed; no successful responses were collected.",
            )
            return 1
        summary: dict[str, Any] = {
            "schema_version": "1.4",
            "aiperf_version": VERSION,
            "was_cancelled": self.stop.is_set(),
            "error_summary": [],
        }
        if good:
            summary |= self._figures(mine, good)
        (out / "profile_export_aiperf.json").write_text(json.dumps(summary), encoding="utf-8")
        return 0

    def _figures(self, mine: list[dict[str, Any]], good: list[dict[str, Any]]) -> dict[str, Any]:
        first = min(line["metadata"]["request_start_ns"] for line in mine)
        last = max(line["metadata"]["request_end_ns"] for line in mine)
        seconds = (last - first) / 1e9

        def block(values: list[float], unit: str) -> dict[str, Any]:
            ordered = sorted(values)
            return {
                "unit": unit,
                "avg": statistics.fmean(ordered),
                "p50": ordered[len(ordered) // 2],
                "p99": ordered[-1],
            }

        tokens = [each["output_sequence_length"]["value"] for each in good]
        spread = [
            (each["request_latency"]["value"] - each["time_to_first_token"]["value"])
            / max(1, each["output_sequence_length"]["value"] - 1)
            for each in good
        ]
        found = {
            name: block([each[name]["value"] for each in good], "ms")
            for name in ("time_to_first_token", "request_latency")
        }
        return {
            **found,
            "inter_token_latency": block(spread, "ms"),
            "output_sequence_length": block(tokens, "tokens"),
            "request_throughput": {"unit": "requests/sec", "avg": len(good) / seconds},
            "output_token_throughput": {"unit": "tokens/sec", "avg": sum(tokens) / seconds},
            "request_count": {"unit": "requests", "avg": float(len(good))},
            **(
                {"goodput": {"unit": "requests/sec", "avg": len(good) / seconds}}
                if self.given.goodput
                else {}
            ),
        }


def main() -> None:
    """Command line."""
    try:
        run = Run(_arguments())
    except SystemExit as error:
        raise SystemExit(1) from error
    asyncio.run(run.run())
    raise SystemExit(run.write())


if __name__ == "__main__":
    main()
