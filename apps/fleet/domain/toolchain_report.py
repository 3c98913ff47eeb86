"""What a toolchain said about itself when it was probed, and which recipes follow. Typed from reference 1.3 and 1.4.

The probe (workers/toolchain_probe.py) prints one line of JSON behind MARK among whatever its imports print.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apps.core.exceptions import InvalidInput

MARK = "INFLIGHT-TOOLCHAIN "
ENGINE, CHECKPOINT = "engine", "checkpoint"
# Release 1.3 has no trtllm-build; 1.0 made the PyTorch backend the one that is served.
ENGINES_END, PYTORCH_BEGINS = (1, 3), (1, 0)
Text = Annotated[str, Field(max_length=500)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class SeenGpu(_Part):
    """A GPU as nvidia-smi tells it inside the toolchain. `sm` is the compute capability times ten."""

    index: Annotated[int, Field(ge=0, le=1024)]
    name: Text
    uuid: Text = ""
    sm: Annotated[int, Field(ge=10, le=999)] | None = None
    memory_bytes: Annotated[int, Field(ge=0)] | None = None


class Program(_Part):
    """A program that was run with --help. `said` is its last line where it failed."""

    path: Text
    exit_code: int | None = None
    said: Text = ""


class Report(_Part):
    """One probe. What is not there is null or empty, never 0."""

    python: Text
    tensorrt_llm: Text | None = None
    import_error: Text = ""
    tensorrt: Text | None = None
    torch: Text | None = None
    cuda: Text | None = None
    driver: Text | None = None
    gpus: Annotated[tuple[SeenGpu, ...], Field(max_length=256)] = ()
    gpu_error: Text = ""
    trtllm_build: Program | None = None
    mpirun: Text | None = None
    quantize: bool = False
    converters: Annotated[int, Field(ge=0)] = 0

    @property
    def versions(self) -> dict[str, str]:
        """Those that are known."""
        known = {
            name: getattr(self, name) for name in ("tensorrt_llm", "tensorrt", "cuda", "driver", "torch")
        }
        return {"python": self.python} | {name: value for name, value in known.items() if value}

    @property
    def sms(self) -> list[int]:
        """Compute capabilities of its GPUs, each once."""
        return sorted({gpu.sm for gpu in self.gpus if gpu.sm is not None})


class Judgement(_Part):
    """What can be built with it. `problem` says why there is less than one might expect; empty: nothing to say."""

    recipes: tuple[str, ...]
    problem: str = ""
    remedy: str = ""


def read_report(output: str) -> Report:
    """The probe's line out of all that it printed. Raises InvalidInput `toolchain_report_unreadable`."""
    lines = [line for line in output.splitlines() if line.startswith(MARK)]
    if not lines:
        last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")
        said = f" Its last line: {last[:300]}" if last else " It printed nothing."
        raise _unreadable(f"The probe said nothing about the toolchain.{said}")
    try:
        data: Any = json.loads(lines[-1][len(MARK) :])
    except ValueError as error:
        raise _unreadable("What the probe printed is cut off or no JSON.") from error
    try:
        return Report.model_validate(data)
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(str(part) for part in fault["loc"]) or "report"
        raise _unreadable(f"What the probe said about {field} cannot be used: {fault['msg']}.") from error


def judge(report: Report) -> Judgement:
    """Which recipes a toolchain with this report can do."""
    if report.tensorrt_llm is None:
        why = report.import_error or "it is not installed"
        return Judgement(
            recipes=(),
            problem=f"TensorRT-LLM cannot be imported: {why}.",
            remedy="Correct the path or image in the node's toolchains file; see the probe's log.",
        )
    release = release_of(report.tensorrt_llm)
    if release is None:
        problem = f"The release {report.tensorrt_llm!r} of TensorRT-LLM cannot be read."
        return Judgement(recipes=(), problem=problem, remedy="Use a released version.")
    if not report.gpus:
        why = report.gpu_error or "nvidia-smi lists none"
        return Judgement(
            recipes=(),
            problem=f"It sees no GPU: {why}.",
            remedy="Check the driver, and for a container the NVIDIA Container Toolkit.",
        )
    recipes = [CHECKPOINT] if release >= PYTORCH_BEGINS else []
    missing = _no_engines(report, release)
    if missing is None:
        return Judgement(recipes=(ENGINE, *recipes))
    return Judgement(recipes=tuple(recipes), problem=missing[0], remedy=missing[1])


def release_of(text: str) -> tuple[int, int] | None:
    """(major, minor) of a version, or None."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def _no_engines(report: Report, release: tuple[int, int]) -> tuple[str, str] | None:
    if release >= ENGINES_END:
        return (
            f"TensorRT-LLM {report.tensorrt_llm} compiles no engines: trtllm-build ended with 1.2.",
            "Use the checkpoint recipe, or add a toolchain of 1.2.1.",
        )
    program = report.trtllm_build
    if program is None:
        return "It has no trtllm-build.", "Add the folder of trtllm-build, or use NVIDIA's release image."
    if program.exit_code != 0:
        said = f": {program.said}" if program.said else ""
        return f"trtllm-build --help failed{said}.", "See the probe's log."
    if not report.quantize and not report.converters:
        return (
            "TensorRT-LLM's example scripts (quantize.py, convert_checkpoint.py) are not there.",
            "Set examples to their folder; pip's wheels have none, the release image has them in "
            "/app/tensorrt_llm/examples.",
        )
    return None


def _unreadable(sentence: str) -> InvalidInput:
    return InvalidInput(
        "toolchain_report_unreadable",
        sentence,
        field="toolchain",
        remedy="See the probe's log, correct the node's toolchains file, and probe again.",
    )
