"""How far a TensorRT-LLM program is, by its log lines: typed from the reference's sections 2.5 and 3.3.

Lines stand as releases 0.10 to 1.2 print them; older and newer ones that say the same in other words are told beside
them. A line that nobody knows moves nothing, so a release that prints less only shows coarser progress.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from workers.builders.base import Milestones, Seen


@dataclass(frozen=True, slots=True)
class Mark:
    """A line that says how far one rank is: share of it done (0 to 1), and what comes next."""

    pattern: re.Pattern[str]
    share: float
    doing: str


def _mark(pattern: str, share: float, doing: str) -> Mark:
    return Mark(re.compile(pattern), share, doing)


# Of one rank. The tactics search between the second and the third is nearly all of the time.
BUILD = (
    _mark(r"Set \w+(?:\.\w+)? to ", 0.01, "Set up the network"),
    _mark(r"Total time of constructing network from module object", 0.04, "Network constructed"),
    _mark(r"Total optimization profiles added", 0.05, "Profiles added"),
    _mark(r"Total time to initialize the weights in network", 0.08, "Weights initialised"),
    _mark(r"Build TensorRT engine ", 0.10, "TensorRT searches for kernels"),
    _mark(r"Detected \d+ inputs and \d+ output network tensors", 0.15, "TensorRT searches for kernels"),
    _mark(
        r"Total Host Persistent Memory|Total Weights Memory|Total Activation Memory", 0.85, "Kernels chosen"
    ),
    _mark(r"Engine generation completed in", 0.90, "Engine generated"),
    _mark(r"Total time of building (?!all engines)", 0.92, "Engine generated"),
    _mark(r"Serializing engine to ", 0.95, "Engine being written"),
)
SERIALIZED = re.compile(r"Engine serialized\. Total time")
ALL_BUILT = re.compile(r"Total time of building all engines")

CALIBRATING = re.compile(r"Calibrating batch (\d+)")
QUANTIZE = (
    _mark(r"Loading calibration dataset", 0.02, "Load the calibration texts"),
    _mark(r"Starting quantization", 0.05, "Calibrate"),
    _mark(r"Quantization done\. Total time used", 0.85, "Export the checkpoint"),
    _mark(r"Quantized model exported to", 0.99, "Exported"),
)
# Calibration lies between these shares; loading comes before, exporting after it.
CALIBRATION = (0.05, 0.85)

CONVERT = (
    _mark(r"TensorRT-LLM version", 0.05, "Read the weights"),
    _mark(r"Loading (?:checkpoint shards|weights)|Loading file", 0.10, "Read the weights"),
    _mark(r"Weights loaded\. Total time", 0.80, "Write the ranks"),
    _mark(r"Total time of converting checkpoints", 1.0, "Converted"),
)
WARM_UP = (
    _mark(r"TensorRT-LLM version|\[TensorRT-LLM\]\[INFO\]", 0.05, "Load the model"),
    _mark(r"Model init total|Loading weights", 0.40, "Load the weights"),
    _mark(
        r"(?:Allocated|Max) .*KV ?[Cc]ache|max_num_blocks|Memory usage when calculating max tokens",
        0.80,
        "Warm up",
    ),
)


class OneRun:
    """Marks in order; the share never falls."""

    def __init__(self, marks: tuple[Mark, ...]) -> None:
        self._marks, self._share = marks, 0.0

    def read(self, line: str) -> Seen | None:
        """See Milestones."""
        for mark in self._marks:
            if mark.pattern.search(line):
                return self._seen(mark.share, mark.doing)
        return None

    def _seen(self, share: float, doing: str) -> Seen | None:
        if share < self._share:
            return None
        self._share = share
        return Seen(min(1.0, share), doing)


class Quantizing(OneRun):
    """Counts calibration batches of a known number."""

    def __init__(self, batches: int) -> None:
        super().__init__(QUANTIZE)
        self._batches = max(1, batches)

    def read(self, line: str) -> Seen | None:
        """See Milestones."""
        found = CALIBRATING.search(line)
        if found is None:
            return super().read(line)
        done = min(self._batches, int(found[1]) + 1)
        low, high = CALIBRATION
        share = low + (high - low) * done / self._batches
        return self._seen(share, f"Calibrate, {done} of {self._batches} batches")


class Building(OneRun):
    """Counts ranks. Lines name no rank: with several at once the furthest stands for all of them."""

    def __init__(self, ranks: int) -> None:
        super().__init__(BUILD)
        self._ranks, self._done = max(1, ranks), 0

    def read(self, line: str) -> Seen | None:
        """See Milestones."""
        if ALL_BUILT.search(line):
            return self._seen(1.0, "All ranks built")
        if SERIALIZED.search(line):
            self._done = min(self._ranks, self._done + 1)
            return self._seen(self._done / self._ranks, f"{self._done} of {self._ranks} ranks written")
        if self._done == self._ranks:
            return None
        for mark in BUILD:
            if mark.pattern.search(line):
                doing = mark.doing
                if self._ranks > 1:
                    doing = f"{doing}, rank {min(self._ranks, self._done + 1)} of {self._ranks}"
                return self._seen((self._done + mark.share) / self._ranks, doing)
        return None


def reader_of(step: str, ranks: int, batches: int) -> Callable[[], Milestones] | None:
    """What reads the log of the step with this name; None where its lines tell nothing."""
    match step:
        case "quantize":
            return lambda: Quantizing(batches)
        case "convert":
            return lambda: OneRun(CONVERT)
        case "build":
            return lambda: Building(ranks)
        case "warm_up":
            return lambda: OneRun(WARM_UP)
    return None
