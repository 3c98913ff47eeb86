"""Says what a toolchain has. Runs in the toolchain's own Python, handed over with -c: standard library only, 3.8+.

    python3 -c <this file> EXAMPLES

Prints one line of JSON behind a mark; apps/fleet/domain/toolchain_report.py reads it. Imports of tensorrt_llm run in
children with a limit, because they print much, and because a broken driver makes them hang or crash.
"""

from __future__ import annotations

import glob
import json
import os
import platform
import shutil
import subprocess
import sys
from typing import Any

MARK = "INFLIGHT-TOOLCHAIN "
IMPORT_SECONDS = 240
QUERY_SECONDS = 20
ASK = "import tensorrt_llm; print('INFLIGHT-VERSION', tensorrt_llm.__version__)"


def run(argv: list[str], seconds: float) -> tuple[int | None, list[str]]:
    """(exit code or None, output lines)."""
    try:
        done = subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return None, [f"no answer within {seconds} s"]
    except OSError as error:
        return None, [str(error.strerror)]
    text = done.stdout.decode("utf-8", "replace")
    return done.returncode, [line.strip() for line in text.splitlines() if line.strip()]


def last(lines: list[str]) -> str:
    """The last line, short enough for a row."""
    return lines[-1][:300] if lines else ""


def version_of(distribution: str) -> str | None:
    """Version of an installed distribution, without importing it."""
    try:
        from importlib.metadata import version

        return version(distribution)
    except Exception:
        return None


def library(report: dict[str, Any]) -> None:
    """tensorrt_llm, really imported."""
    code, lines = run([sys.executable, "-c", ASK], IMPORT_SECONDS)
    named = [line.split()[1] for line in lines if line.startswith("INFLIGHT-VERSION ")]
    if code == 0 and named:
        report["tensorrt_llm"] = named[-1]
    else:
        report["import_error"] = last(lines).rstrip(".") or f"exit code {code}"


def gpus(report: dict[str, Any]) -> None:
    """GPUs and driver by nvidia-smi."""
    program = shutil.which("nvidia-smi")
    if program is None:
        report["gpu_error"] = "there is no nvidia-smi"
        return
    fields = "index,name,uuid,compute_cap,memory.total,driver_version"
    code, lines = run([program, "--query-gpu=" + fields, "--format=csv,noheader,nounits"], QUERY_SECONDS)
    found = []
    for line in lines if code == 0 else []:
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 6 or not parts[0].isdigit():
            continue
        index, name, uuid, capability, memory, driver = parts
        gpu: dict[str, Any] = {"index": int(index), "name": name, "uuid": uuid}
        if capability.replace(".", "", 1).isdigit():
            gpu["sm"] = round(float(capability) * 10)
        if memory.isdigit():
            gpu["memory_bytes"] = int(memory) * 2**20
        found.append(gpu)
        report["driver"] = driver
    report["gpus"] = found
    if not found:
        report["gpu_error"] = last(lines).rstrip(".")


def cuda() -> str | None:
    """CUDA's version: the image's own word, else the toolkit's file, else torch's build."""
    if os.environ.get("CUDA_VERSION"):
        return os.environ["CUDA_VERSION"]
    try:
        with open("/usr/local/cuda/version.json", encoding="utf-8") as file:
            return str(json.load(file)["cuda"]["version"])
    except (OSError, ValueError, KeyError, TypeError):
        tag = (version_of("torch") or "").partition("+cu")[2]
        return f"{tag[:-1]}.{tag[-1]}" if tag.isdigit() and len(tag) > 1 else None


def scripts(report: dict[str, Any], examples: str) -> None:
    """Which of the example scripts are there; the layout moved with 0.18."""
    report["quantize"] = os.path.isfile(os.path.join(examples, "quantization", "quantize.py"))
    found = set()
    for pattern in ("*", "models/core/*", "models/contrib/*"):
        found.update(glob.glob(os.path.join(examples, pattern, "convert_checkpoint.py")))
    report["converters"] = len(found)


def builder(report: dict[str, Any]) -> None:
    """trtllm-build, really run."""
    beside = os.path.join(os.path.dirname(sys.executable), "trtllm-build")
    program = beside if os.access(beside, os.X_OK) else shutil.which("trtllm-build")
    if program is not None:
        code, lines = run([program, "--help"], IMPORT_SECONDS)
        report["trtllm_build"] = {
            "path": program,
            "exit_code": code,
            "said": "" if code == 0 else last(lines).rstrip("."),
        }


def main() -> None:
    """Ask everything, print one line."""
    report: dict[str, Any] = {
        "python": platform.python_version(),
        "tensorrt": version_of("tensorrt"),
        "torch": version_of("torch"),
        "cuda": cuda(),
        "mpirun": shutil.which("mpirun"),
    }
    gpus(report)
    library(report)
    builder(report)
    scripts(report, sys.argv[1] if len(sys.argv) > 1 else "/app/tensorrt_llm/examples")
    print(MARK + json.dumps(report), flush=True)  # noqa: T201 - the answer is this program's output


if __name__ == "__main__":
    main()
