"""A TensorRT-LLM installation of doubles in a folder of the test's: programs on a PATH, scripts, a library."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOUBLES = Path(__file__).with_name("double")
PROGRAMS = {"trtllm-build": "trtllm_build.py", "mpirun": "mpirun.py", "nvidia-smi": "nvidia_smi.py"}
SCRIPTS = {
    "quantization/quantize.py": "quantize.py",
    "models/core/llama/convert_checkpoint.py": "convert_checkpoint.py",
    "models/core/qwen/convert_checkpoint.py": "convert_checkpoint.py",
}
IMAGE = "registry.example/tensorrt-llm/release@sha256:" + "ab" * 32
LIBRARY = '''
"""A double of tensorrt_llm: the LLM class starts its ranks under mpirun, as the real one does."""
import json, os, subprocess, sys, time
from pathlib import Path

_plan = json.loads(Path(os.environ["TRTLLM_DOUBLE"]).read_text())
__version__ = _plan.get("version", "1.2.1")
if _plan.get("import_error"):
    raise ImportError(_plan["import_error"])


class SamplingParams:
    def __init__(self, max_tokens):
        self.max_tokens = max_tokens


class _Text:
    text = "!"


class _Answer:
    outputs = [_Text()]


class LLM:
    def __init__(self, model, tensor_parallel_size=1, pipeline_parallel_size=1):
        how = _plan.get("fail", {}).get("warm_up", "")
        print("[TensorRT-LLM][INFO] loading", flush=True)
        ranks = tensor_parallel_size * pipeline_parallel_size
        program = [sys.executable, "-c", "import time; time.sleep(600)"]
        if ranks > 1:
            mpirun = ["mpirun", "-n", str(ranks), "--allow-run-as-root", *program]
            self._ranks = subprocess.Popen(mpirun, start_new_session=True)
            calls = Path(os.environ["TRTLLM_DOUBLE"]).with_suffix(".calls")
            until = time.monotonic() + 20
            while time.monotonic() < until and not (calls.exists() and "mpirun" in calls.read_text()):
                time.sleep(0.01)
        time.sleep(float(_plan.get("seconds", 0.05)))
        if how == "hang":
            time.sleep(600)
        if how == "oom":
            raise RuntimeError("Executor creation failed due to insufficient GPU memory.")
        if how == "killed":
            os.kill(os.getpid(), 9)

    def generate(self, prompts, params):
        return [_Answer() for _ in prompts]

    def shutdown(self):
        for process in [vars(self).get("_ranks")]:
            if process is not None:
                process.terminate()
                process.wait()
'''


@dataclass(frozen=True, slots=True)
class Installed:
    """Where it is. `set` changes how its programs behave from their next start on."""

    root: Path

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def python(self) -> Path:
        return self.bin / "python3"

    @property
    def examples(self) -> Path:
        return self.root / "examples"

    @property
    def containers(self) -> Path:
        """State of the container double: one file for each that runs."""
        return self.root / "containers"

    def set(self, **plan: Any) -> None:
        """seconds, fail={program: how}, gpus, capability, version, import_error, no_gpu."""
        path = self.root / "double.json"
        part = path.with_suffix(".part")
        part.write_text(json.dumps({**json.loads(path.read_text()), **plan}))
        part.replace(path)

    def calls(self) -> list[str]:
        """Programs in the order of their starts."""
        path = self.root / "double.calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line)["program"] for line in lines]

    def offer(self, kind: str = "native") -> str:
        """The node's toolchains file that offers it."""
        where = f'python = "{self.python}"' if kind == "native" else f'image = "{IMAGE}"'
        program = "" if kind == "native" else f'program = "{self.bin / kind}"\n'
        head = f'[[toolchain]]\nname = "doubles"\nkind = "{kind}"\n'
        return f'{head}{where}\n{program}examples = "{self.examples}"\n'


def install(root: Path) -> Installed:
    """Make the installation under `root`."""
    made = Installed(root)
    site = root / "site"
    for folder in (made.bin, made.examples, site / "tensorrt_llm", site / "tensorrt-10.14.1.dist-info"):
        folder.mkdir(parents=True)
    (root / "double.json").write_text("{}")
    (site / "tensorrt_llm" / "__init__.py").write_text(LIBRARY)
    meta = "Metadata-Version: 2.1\nName: tensorrt\nVersion: 10.14.1.48\n"
    (site / "tensorrt-10.14.1.dist-info" / "METADATA").write_text(meta)
    exports = {
        "TRTLLM_DOUBLE": root / "double.json",
        "TRTLLM_CONTAINERS": made.containers,
        "TRTLLM_IMAGE": IMAGE,
        "TRTLLM_BIN": made.bin,
        "CUDA_VERSION": "13.1.0",
    }
    lines = ["#!/bin/sh", *(f"export {key}={shlex.quote(str(value))}" for key, value in exports.items())]
    lines.append(f'export PYTHONPATH={shlex.quote(str(site))}"${{PYTHONPATH:+:$PYTHONPATH}}"')
    for name, script in {
        **PROGRAMS,
        "docker": "container.py",
        "podman": "container.py",
        "python3": "",
    }.items():
        words = [sys.executable, "-S", str(DOUBLES / script)] if script else [sys.executable]
        run = f'exec {shlex.join(words)} "$@"'
        (made.bin / name).write_text("\n".join([*lines, run, ""]))
        (made.bin / name).chmod(0o755)
    for place, script in SCRIPTS.items():
        path = made.examples / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"import runpy\nrunpy.run_path({str(DOUBLES / script)!r}, run_name='__main__')\n")
    return made
