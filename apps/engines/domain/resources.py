"""What a build took of its host over time: samples that the worker appends to a file, read back for a chart.

One JSON object a line: {"at": seconds since 1970, "stage": name, "memory_bytes": of the step's whole tree,
"disk_bytes": of the work folder, "disk_left_bytes": free on its disk}. A broken line is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

FILE = "resources.jsonl"
# As many points as a chart can show.
MAX_POINTS = 240
# A longer file is not this program's.
MAX_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """One look; bytes, null where it was not measured."""

    at: float
    stage: str
    memory_bytes: int | None
    disk_bytes: int | None


def read_samples(lines: Iterable[str]) -> list[Sample]:
    """Samples in their order, thinned to MAX_POINTS: of neighbours the one with the highest memory stays."""
    found = [sample for line in lines if (sample := _sample(line)) is not None]
    step = -(-len(found) // MAX_POINTS) or 1
    return [
        max(found[at : at + step], key=lambda sample: sample.memory_bytes or 0)
        for at in range(0, len(found), step)
    ]


def _sample(line: str) -> Sample | None:
    try:
        value = json.loads(line)
        return Sample(
            at=float(value["at"]),
            stage=str(value.get("stage", "")),
            memory_bytes=_whole(value.get("memory_bytes")),
            disk_bytes=_whole(value.get("disk_bytes")),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
