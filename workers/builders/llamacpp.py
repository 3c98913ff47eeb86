"""The llamacpp builder: a GGUF checkpoint re-quantised, verified by loading it, published by content."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from django.conf import settings

from apps.core.exceptions import Finding, InfrastructureError
from apps.engines.attempts import Artefact
from apps.engines.domain.build_spec import BuildSpec, check_spec
from apps.engines.domain.llamacpp_commands import ARTEFACT, MODEL, Places, StepCommand, step_commands
from apps.engines.frozen import Spec
from apps.engines.stages import stage_key
from workers.builders.base import BuildContext, Step
from workers.builders.keeping import keeping

# Measured on two cores of a 2020s server, in bytes/s; they only weigh the stages against each other.
HASH_RATE = 500e6
CONVERT_RATE = 120e6
LOAD_RATE = 400e6
# A stage that takes this much longer than expected hangs.
SLOWEST = 100
MIN_DEADLINE_SECONDS = 600.0
# Handed on to steps from the worker's own environment; nothing else of it is theirs to see.
PASSED_ON = ("LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "PYTHONPYCACHEPREFIX")


class LlamaCppBuilder:
    """See the module docstring; the seam's contract is in base.py."""

    name = "llamacpp"

    def check(self, spec: Spec, context: BuildContext) -> list[Finding]:
        """Settings, the serving environment, and the checkpoint's file."""
        spec = _own(spec)
        found = check_spec(spec.builder, spec.quantization, spec.options)
        if not os.access(context.serving_python, os.X_OK):
            found.append(
                Finding(
                    "serving_environment_missing",
                    "error",
                    f"The serving environment's Python is not at {context.serving_python}.",
                    "INFLIGHT_SERVING_PYTHON",
                    "Run make up, which sets it up again.",
                )
            )
        if not Path(spec.path).is_file():
            found.append(
                Finding(
                    "checkpoint_missing",
                    "error",
                    f"The checkpoint's file {spec.path} is gone.",
                    "checkpoint",
                    "Put it back and inspect the checkpoint again.",
                )
            )
        return found

    def plan(self, spec: Spec, context: BuildContext) -> list[Step]:
        """inspect -> convert -> verify -> publish. The converted file is kept, so later stages find it there."""
        spec = _own(spec)
        read = _size_of(Path(spec.path))
        written = context.engine_bytes or read
        seconds = {
            "inspect": read / HASH_RATE,
            "convert": written / CONVERT_RATE,
            "verify": 1 + written / LOAD_RATE,
            "publish": written / HASH_RATE,
        }
        outputs = {
            "convert": (context.work / ARTEFACT / MODEL,),
            "publish": (context.engines / context.fingerprint / "manifest.json",),
        }
        places = Places(
            python=str(context.serving_python),
            work=str(context.work),
            plan_file=str(context.plan_file),
            engines=str(context.engines),
            fingerprint=context.fingerprint,
            cores=int(context.node.get("cores") or 1),
        )
        steps = [
            self._step(context, command, seconds[command.name], outputs.get(command.name, ()))
            for command in step_commands(spec, places)
        ]
        key = stage_key({"stage": "convert", "fingerprint": context.fingerprint})
        return keeping(steps, "convert", context.work / ARTEFACT, key, context.stages, judges=("verify",))

    def collect(self, context: BuildContext) -> Artefact:
        """The published folder with its manifest."""
        place = context.engines / context.fingerprint
        try:
            manifest = json.loads((place / "manifest.json").read_text(encoding="utf-8"))
            size = sum(int(file["size_bytes"]) for file in manifest["files"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InfrastructureError(
                "engine_missing",
                f"The engine that was just published is not whole: {error}.",
                remedy="Try again; look for something else that removes files under engines/.",
            ) from error
        return Artefact(str(place), size, manifest)

    def facts(self, spec: Spec, context: BuildContext) -> dict[str, Any]:
        """Nothing of its own: versions are the serving environment's, which the last stage asks."""
        return {}

    def _step(
        self, context: BuildContext, command: StepCommand, seconds: float, outputs: tuple[Path, ...]
    ) -> Step:
        return Step(
            name=command.name,
            title=command.title,
            argv=command.argv,
            cwd=context.folder,
            outputs=outputs,
            expected_seconds=context.expected.get(command.name, 0.3 + seconds),
            deadline_seconds=max(MIN_DEADLINE_SECONDS, SLOWEST * seconds),
            env=_environment(context),
        )


def _own(spec: Spec) -> BuildSpec:
    assert isinstance(spec, BuildSpec), "read by the builder's name"  # noqa: S101
    return spec


def _environment(context: BuildContext) -> dict[str, str]:
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {
        **passed,
        "PATH": os.defpath,
        "HOME": str(context.folder),
        "TMPDIR": str(context.work),
        "PYTHONPATH": str(context.checkout),
        "PYTHONDONTWRITEBYTECODE": "1",
        # Quantising is memory-bound; more threads only take the processor from what serves.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def serving_python() -> Path:
    """Python of the serving environment, as the settings name it."""
    return Path(settings.INFLIGHT_SERVING_PYTHON)
