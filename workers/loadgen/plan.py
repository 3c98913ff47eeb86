"""What a run's processes are told, as one JSON file; secrets come through the environment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from apps.loadtests.domain.scenario import Scenario, parse
from apps.loadtests.domain.workload import Frame

# Name of the environment variable with the gateway's key.
KEY = "INFLIGHT_LOADGEN_KEY"
RECORDS, TICKS, SUMMARY = "records-{}.jsonl.gz", "ticks.jsonl", "summary.json"
# A file whose being there asks the run to stop safely.
STOP = "stop"


@dataclass(frozen=True, slots=True)
class Address:
    """Where requests go: of a server of Triton, or of the gateway (`grpc` is empty then)."""

    host: str
    port: int
    model: str
    grpc: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. `seed` is the run's own; `dataset` a path or empty; `processes` how many send."""

    folder: Path
    scenario: Scenario
    seed: int
    addresses: tuple[Address, ...]
    frame: Frame = field(default_factory=Frame)
    dataset: str = ""
    processes: int = 1

    def write(self) -> Path:
        """Write it into its folder; returns the file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "plan.json"
        value = {
            "scenario": self.scenario.model_dump(mode="json"),
            "seed": self.seed,
            "addresses": [asdict(address) for address in self.addresses],
            "frame": asdict(self.frame),
            "dataset": self.dataset,
            "processes": self.processes,
        }
        path.write_text(json.dumps(value, indent=2), encoding="utf-8")
        return path


def read(path: Path) -> Plan:
    """The plan of a file that `write` made. Raises ValueError, KeyError or TypeError for another."""
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Plan(
        folder=path.parent,
        scenario=parse(value["scenario"]),
        seed=int(value["seed"]),
        addresses=tuple(Address(**address) for address in value["addresses"]),
        frame=Frame(**value["frame"]),
        dataset=str(value["dataset"]),
        processes=int(value["processes"]),
    )


def records_of(folder: Path, processes: int) -> list[Path]:
    """The files of records of a run that are there."""
    return [path for part in range(processes) if (path := folder / RECORDS.format(part)).is_file()]


# What one process can do without being late (benchmarks/loadgen.py): requests and tokens a second, clients at once.
REQUESTS_A_PROCESS, TOKENS_A_PROCESS, GRPC_TOKENS_A_PROCESS, CLIENTS_A_PROCESS = (
    500.0,
    8_000.0,
    4_000.0,
    256.0,
)


def processes_for(scenario: Scenario, cores: int) -> int:
    """How many processes the load needs; never more than the machine has cores. A closed loop's rate is not known."""
    if scenario.processes is not None:
        return scenario.processes
    load = scenario.load
    if load.mode == "closed":
        needed = max(load.concurrency) / CLIENTS_A_PROCESS
    elif load.mode == "open":
        most = max(load.rate)
        tokens = GRPC_TOKENS_A_PROCESS if scenario.via == "grpc" else TOKENS_A_PROCESS
        needed = max(most / REQUESTS_A_PROCESS, most * scenario.prompts.output.expected / tokens)
    else:
        needed = 1.0
    whole = int(needed) + (needed > int(needed))
    return max(1, min(whole, cores))


def addresses_of(urls: Sequence[tuple[str, str, str]]) -> tuple[Address, ...]:
    """Addresses out of (http url, grpc address, model)."""
    found = []
    for http, grpc, model in urls:
        host, _, port = http.removeprefix("http://").rstrip("/").rpartition(":")
        found.append(Address(host, int(port), model, grpc))
    return tuple(found)
