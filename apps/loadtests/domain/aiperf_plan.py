"""A scenario in AIPerf's words: its arguments and its file of prompts, and what of a scenario it cannot do.

Facts are those of its release 0.13. AIPerf asks exactly what our generator asks: the prompts of the same seed in a
file, each with its length of answer. Where the moments of requests are drawn, it draws its own of the same kind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.loadtests.domain.datasets import Row
from apps.loadtests.domain.scenario import Scenario
from apps.loadtests.domain.workload import Workload

PROMPTS, ARTIFACTS = "prompts.jsonl", "aiperf"
# Conversations written for a step; after the last one AIPerf begins with the first again, and the run says so.
MOST_CONVERSATIONS, MOST_PROMPT_BYTES = 20_000, 64 * 1024 * 1024
# Conversations a second that a client of a closed loop is given prompts for.
CONVERSATIONS_A_CLIENT = 4.0
# A file of configuration beside the arguments: only there can the key come from the environment.
CONFIGURATION = "aiperf.yaml"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A field of the scenario that AIPerf has nothing for."""

    field: str
    sentence: str
    remedy: str


def refusals(scenario: Scenario) -> list[Refusal]:
    """What of the scenario cannot be said in AIPerf's arguments; empty where all of it can."""
    load, prompts, timing = scenario.load, scenario.prompts, scenario.timing
    found = []
    if scenario.via != "gateway":
        found.append(
            Refusal(
                "via",
                f"AIPerf speaks the OpenAI API, not Triton's {scenario.via}.",
                "Send it through the gateway.",
            )
        )
    if timing.until_steady and load.mode != "trace":
        found.append(
            Refusal(
                "timing.until_steady",
                "AIPerf measures for a fixed time and does not look whether figures are steady.",
                "Switch it off; timing.seconds is then how long is measured.",
            )
        )
    if load.mode == "open" and load.arrivals == "bursty":
        found.append(
            Refusal(
                "load.arrivals",
                "AIPerf has no bursts of requests that are due at once.",
                "Use poisson or constant.",
            )
        )
    if load.mode != "closed" and prompts.turns > 1:
        found.append(
            Refusal(
                "prompts.turns",
                "AIPerf counts the later turns of a conversation into the rate, our arrivals begin conversations.",
                "Use clients (load.mode closed), or one turn.",
            )
        )
    if load.mode == "trace" and timing.warm_up_seconds > 0:
        found.append(
            Refusal(
                "timing.warm_up_seconds",
                "AIPerf measures a trace from its first request on.",
                "Set the warm-up to 0.",
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class Place:
    """Where one step of a run works: `url` of the API, `folder` for its files, `tokenizer` a folder with one."""

    url: str
    folder: Path
    tokenizer: Path
    workers: int


def arguments(scenario: Scenario, value: float, seed: int, place: Place) -> tuple[str, ...]:
    """AIPerf's arguments of one step (`value` clients or requests/s), without the program and the key."""
    timing = scenario.timing
    argv = [
        *(
            "profile",
            "--model",
            scenario.target,
            "--url",
            place.url,
            "--endpoint-type",
            "chat",
            "--streaming",
        ),
        *("--use-server-token-count", "--tokenizer", str(place.tokenizer), "--extra-inputs", "temperature:0"),
        *("--input-file", str(place.folder / PROMPTS), "--custom-dataset-type", _kind(scenario)),
        *("--dataset-sampling-strategy", "sequential", "--random-seed", str(seed)),
        *("--output-artifact-dir", str(place.folder / ARTIFACTS), "--export-level", "records"),
        *("--ui", "none", "--workers-max", str(place.workers), "--no-gpu-telemetry", "--no-server-metrics"),
        *("--config", str(place.folder / CONFIGURATION)),
    ]
    if scenario.load.mode == "trace":
        argv.append("--fixed-schedule")
    elif scenario.load.mode == "closed":
        argv += ["--concurrency", str(int(value))]
    else:
        argv += ["--request-rate", f"{value:g}", "--arrival-pattern", scenario.load.arrivals]
    if scenario.load.mode != "trace":
        if timing.warm_up_seconds > 0:
            argv += ["--warmup-duration", f"{timing.warm_up_seconds:g}"]
        argv += ["--benchmark-duration", f"{timing.seconds:g}"]
        argv += ["--benchmark-grace-period", f"{timing.grace_seconds:g}"]
    slo = scenario.slo
    bounds = {
        "time_to_first_token": slo.ttft_ms,
        "inter_token_latency": slo.tpot_ms,
        "request_latency": slo.latency_ms,
    }
    said = " ".join(f"{name}:{bound:g}" for name, bound in bounds.items() if bound is not None)
    return (*argv, *(("--goodput", said) if said else ()))


def configuration(scenario: Scenario, key_variable: str, place: Place) -> str:
    """The file beside the arguments, which go before it: the key's variable, and what it must have to be whole."""
    value = {
        "benchmark": {
            "model": scenario.target,
            "endpoint": {"url": place.url, "api_key": f"${{{key_variable}}}"},
            "dataset": {"type": "file", "path": str(place.folder / PROMPTS), "format": _kind(scenario)},
            "phases": {"type": "concurrency", "concurrency": 1, "duration": 1},
        }
    }
    if scenario.load.mode == "trace":
        value["benchmark"]["phases"] = {"type": "fixed_schedule"}
    # JSON is YAML.
    return json.dumps(value, indent=1)


def _kind(scenario: Scenario) -> str:
    return "multi_turn" if scenario.prompts.turns > 1 else "single_turn"


def conversations(scenario: Scenario, value: float, rows: Sequence[Row]) -> int:
    """How many conversations a step's file has."""
    timing = scenario.timing
    if scenario.load.mode == "trace":
        return sum(moment <= timing.most_seconds for moment in moments(scenario, rows))
    a_second = value * CONVERSATIONS_A_CLIENT if scenario.load.mode == "closed" else 1.2 * value
    wanted = int(a_second * (timing.warm_up_seconds + timing.seconds)) + 100
    return min(wanted, MOST_CONVERSATIONS)


def moments(scenario: Scenario, rows: Sequence[Row]) -> list[float]:
    """When the requests of a trace are due, seconds since its first; as our generator replays it."""
    times = sorted(row.at for row in rows if row.at is not None)
    return [(at - times[0]) / scenario.load.speed for at in times]


def prompt_lines(
    scenario: Scenario, step: int, value: float, seed: int, rows: Sequence[Row]
) -> Iterator[str]:
    """Lines of the step's file of prompts, at most MOST_PROMPT_BYTES of them."""
    workload, turns = Workload(scenario.prompts, seed, rows), scenario.prompts.turns
    count = conversations(scenario, value, rows)
    due = moments(scenario, rows) if scenario.load.mode == "trace" else []
    written = 0
    for number in range(step * count, (step + 1) * count):
        asks = [workload.ask(number * turns + turn) for turn in range(turns)]
        said: list[dict[str, Any]] = [{"text": ask.text, "output_length": ask.tokens} for ask in asks]
        if due:
            said[0]["timestamp"] = round(due[number - step * count] * 1000)
        whole = {"session_id": str(number), "turns": said} if turns > 1 else said[0]
        line = json.dumps(whole, ensure_ascii=False) + "\n"
        written += len(line)
        if written > MOST_PROMPT_BYTES:
            return
        yield line


# A vocabulary that AIPerf can load without a network. It counts nothing: tokens are the server's.
TOKENIZER: dict[str, dict[str, Any]] = {
    "tokenizer.json": {
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "time": 1, "year": 2}, "unk_token": "[UNK]"},
        "pre_tokenizer": {"type": "Whitespace"},
        "added_tokens": [],
    },
    "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"},
}

_PHASE = re.compile(r"Phase (warmup|profiling) \(\w+\) (started|sending complete|complete)\b")
_ERROR = re.compile(r"\b(?:ERROR|CRITICAL)\b\s+(.*?)(?:\s+\(\w+\.py:\d+\))?$")
# While it loads, before its first request, and after its last one while it sums up.
LOADING_SECONDS, SUMMING_SECONDS = 12.0, 5.0


@dataclass(slots=True)
class Told:
    """What its lines told so far: the phase and since when (the reader's clock), its first error."""

    phase: str = "loading"
    since: float = 0.0
    error: str = ""

    def read(self, line: str, now: float) -> None:
        """One line of its log, at `now` seconds of the reader's clock."""
        if found := _PHASE.search(line):
            kind, what = found.groups()
            ended = what != "started"
            self.phase, self.since = ("between" if kind == "warmup" else "summing") if ended else kind, now
        elif not self.error and (found := _ERROR.search(line.strip())):
            # The first is the cause; those after it tell who heard of it.
            self.error = found.group(1).strip()

    def seconds_done(self, scenario: Scenario, now: float) -> float:
        """How much of a step's expected time is done, seconds."""
        timing, passed = scenario.timing, max(0.0, now - self.since)
        before = LOADING_SECONDS
        if self.phase == "loading":
            return min(passed, before)
        if self.phase == "warmup":
            return before + min(passed, timing.warm_up_seconds)
        before += timing.warm_up_seconds
        if self.phase == "between":
            return before
        measured = _measured_seconds(scenario)
        if self.phase == "profiling":
            return before + min(passed, measured)
        return before + measured + min(passed, SUMMING_SECONDS)


def expected_seconds(scenario: Scenario) -> float:
    """About how long one step takes."""
    return LOADING_SECONDS + scenario.timing.warm_up_seconds + _measured_seconds(scenario) + SUMMING_SECONDS


def _measured_seconds(scenario: Scenario) -> float:
    return scenario.timing.most_seconds if scenario.load.mode == "trace" else scenario.timing.seconds
