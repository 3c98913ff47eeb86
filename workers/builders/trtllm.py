"""The trtllm builder: both recipes over the composed steps, run in a toolchain, judged by what they leave.

Convert, quantise, compile and warm up run in the toolchain (natively or in its container); validating and publishing
are programs of ours and run in this Python.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from apps.core.exceptions import Finding, InfrastructureError
from apps.engines.attempts import Artefact
from apps.engines.domain.trtllm.compose import Composed, ComposedStep
from apps.engines.domain.trtllm.results import check_checkpoint, check_engine, check_hugging_face
from apps.engines.domain.trtllm.spec import TrtllmSpec
from apps.engines.frozen import Spec, compose_spec
from apps.engines.stages import stage_key
from apps.fleet.containers import client_environment
from apps.fleet.domain.toolchain_argv import Command, Mount, container_name, mountable, wrap
from apps.fleet.domain.toolchain_report import ENGINE
from apps.fleet.models import Toolchain
from apps.fleet.toolchains import place_of
from workers.builders.base import BuildContext, Step
from workers.builders.keeping import keeping
from workers.builders.trtllm_checks import check_room, check_toolchain, error_of, weights_of
from workers.builders.trtllm_milestones import reader_of

TITLES = {
    "quantize": "Quantise",
    "convert": "Convert",
    "build": "Compile the engine",
    "validate": "Validate the checkpoint",
    "warm_up": "Load it and generate",
    "publish": "Publish",
}
HOUR = 3600.0
# What takes longer hangs. Calibration and kernel search of the largest models take hours; a task has 25 in all.
DEADLINES = {
    "quantize": 10 * HOUR,
    "convert": 4 * HOUR,
    "build": 10 * HOUR,
    "validate": 0.5 * HOUR,
    "warm_up": 2 * HOUR,
    "publish": 2 * HOUR,
}
# Bytes/s of 16-bit weights, rough: they weigh stages against each other until builds of the same shape have run.
RATES = {
    "quantize": 20e6,
    "convert": 150e6,
    "build": 60e6,
    "validate": 2e9,
    "warm_up": 200e6,
    "publish": 400e6,
}
OURS = frozenset({"validate", "publish"})
CHECKPOINT_FOLDER, ENGINE_FOLDER, ARTEFACT_FOLDER = "checkpoint", "engine", "artefact"
# Of a native toolchain's environment the worker passes these on; all else comes from the plan.
PASSED_ON = ("LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")


class TrtllmBuilder:
    """See the module docstring; the seam's contract is in base.py."""

    name = "trtllm"

    def check(self, spec: Spec, context: BuildContext) -> list[Finding]:
        """Toolchain, GPUs, checkpoint, memory and disk, and the composer's rules on what is really there."""
        own = _own(spec)
        row = context.toolchain
        if row is None:
            message = f"This node has no toolchain {own.toolchain}."
            return [error_of("toolchain_missing", message, "toolchain", "Probe the node's toolchains again.")]
        found = check_toolchain(own, row)
        if not Path(own.path).is_dir():
            message = f"The checkpoint's folder {own.path} is gone."
            found.append(
                error_of("checkpoint_missing", message, "checkpoint", "Put it back and inspect it again.")
            )
        if row.how != Toolchain.Kind.NATIVE and not mountable(own.path):
            message = f"{own.path} cannot be mounted into a container: it has a comma or a quote."
            found.append(error_of("path_not_mountable", message, "checkpoint", "Rename that folder."))
        composed = self._composed(own, context)
        return [*found, *composed.findings, *check_room(own, context)]

    def plan(self, spec: Spec, context: BuildContext) -> list[Step]:
        """(quantise or convert -> compile) or (quantise -> validate -> warm up), then publish."""
        own, row = _own(spec), _toolchain(context)
        composed = self._composed(own, context)
        steps = [self._step(own, context, made) for made in composed.steps]
        steps.append(self._publish(own, context, [step.name for step in steps]))
        for name, folder in ((("quantize", "convert"), CHECKPOINT_FOLDER), (("build",), ENGINE_FOLDER)):
            kept = next((step for step in steps if step.name in name), None)
            if kept is not None:
                key = _stage_key(own, context, kept)
                steps = keeping(steps, kept.name, context.work / folder, key, context.stages)
        return [step if step.name in OURS else _wrapped(step, own, row, context) for step in steps]

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
        """What the manifest says about how it was made."""
        own, row = _own(spec), _toolchain(context)
        gpu = next((gpu for gpu in row.gpus if gpu.get("uuid") in context.gpus), None) or (
            row.gpus[0] if row.gpus else {}
        )
        options = own.request.quantization.options
        parallel = own.request.parallel
        return {
            "recipe": own.recipe,
            "request": own.request.model_dump(mode="json", by_alias=True),
            "toolchain": {"name": row.name, "kind": row.how, "location": row.location},
            "image": None if row.how == Toolchain.Kind.NATIVE else row.location,
            "versions": dict(row.versions),
            "gpu": {key: gpu.get(key) for key in ("name", "sm", "memory_bytes")},
            "sm": own.sm,
            "world_size": parallel.world,
            "parallel": parallel.model_dump(mode="json", by_alias=True),
            # quantize.py's own default; converting and compiling draw nothing.
            "seed": int(options.get("seed", 1234)),
        }

    def _composed(self, spec: TrtllmSpec, context: BuildContext) -> Composed:
        row = context.toolchain
        gpus = len(context.gpus) or None
        target = spec.request.target.model_copy(update={"gpus": gpus})
        if row is not None:
            target = target.model_copy(update={"examples": row.examples, "python": "python3"})
        build = dict(spec.request.build)
        if gpus is not None and isinstance(build.get("workers"), int):
            # What was typed may be for a larger host than the GPUs that this attempt has leases on.
            build["workers"] = min(build["workers"], gpus)
        asked = spec.request.model_copy(update={"target": target, "model": spec.path, "build": build})
        return compose_spec(spec.model_copy(update={"request": asked}), str(context.work), context.facts)

    def _step(self, spec: TrtllmSpec, context: BuildContext, made: ComposedStep) -> Step:
        world = spec.request.parallel.world
        calibration = spec.request.quantization.calibration
        batches = math.ceil(max(1, calibration.size) / calibration.batch_size)
        argv = made.argv
        if made.name in OURS:
            argv = (sys.executable, *made.argv[1:])
        return Step(
            name=made.name,
            title=TITLES[made.name],
            argv=argv,
            cwd=Path(made.cwd),
            outputs=tuple(Path(path) for path in made.outputs),
            expected_seconds=_seconds(made.name, context),
            deadline_seconds=DEADLINES[made.name],
            env=_environment(made.name, context) | made.env,
            reads_log=reader_of(made.name, world, batches),
            accept=_acceptance(spec, made.name, context),
        )

    def _publish(self, spec: TrtllmSpec, context: BuildContext, names: list[str]) -> Step:
        """The engine's folder is published; without one, a folder of reports beside the checkpoint's own."""
        artefact = context.work / (
            ENGINE_FOLDER
            if "build" in names
            else CHECKPOINT_FOLDER
            if "quantize" in names
            else ARTEFACT_FOLDER
        )
        reports = (
            [context.work / f"{name}.json" for name in ("checkpoint", "warm_up")]
            if "build" not in names
            else []
        )
        argv = [
            *(sys.executable, "-P", "-u", "-m", "workers.builders.trtllm_steps.publish"),
            *(
                "--artefact",
                str(artefact),
                "--plan",
                str(context.plan_file),
                "--engines",
                str(context.engines),
            ),
            *("--fingerprint", context.fingerprint, "--model", spec.path),
        ]
        for report in reports:
            argv += ["--report", str(report)]
        return Step(
            name="publish",
            title=TITLES["publish"],
            argv=tuple(argv),
            cwd=context.folder,
            outputs=(context.engines / context.fingerprint / "manifest.json",),
            expected_seconds=_seconds("publish", context),
            deadline_seconds=DEADLINES["publish"],
            env=_environment("publish", context),
        )


def _own(spec: Spec) -> TrtllmSpec:
    assert isinstance(spec, TrtllmSpec), "read by the builder's name"  # noqa: S101
    return spec


def _toolchain(context: BuildContext) -> Toolchain:
    assert context.toolchain is not None, "checked before"  # noqa: S101
    return context.toolchain


def _seconds(name: str, context: BuildContext) -> float:
    known = context.expected.get(name)
    return known if known is not None else 1.0 + (weights_of(context) or 1_000_000_000) / RATES[name]


def _stage_key(spec: TrtllmSpec, context: BuildContext, step: Step) -> str:
    """By content: weights, words without this attempt's folders, versions.

    What publishing moves away is the build's own, by its fingerprint: nobody else may count on it.
    """
    if step.name == "build" or spec.recipe != ENGINE:
        return stage_key({"stage": step.name, "fingerprint": context.fingerprint})
    folders = ((str(context.work), "<work>"), (spec.path, "<model>"))
    words = [Path(step.argv[1]).name, *step.argv[2:]]
    for path, name in folders:
        words = [name + word[len(path) :] if word.startswith(path) else word for word in words]
    return stage_key(
        {
            "stage": step.name,
            "words": words,
            "source": spec.source,
            "versions": spec.versions,
            "builder": spec.builder_version,
        }
    )


def _acceptance(spec: TrtllmSpec, name: str, context: BuildContext) -> Callable[[], list[Finding]] | None:
    request = spec.request
    if name == "build":
        return lambda: check_engine(*_read(context.work / ENGINE_FOLDER), request)[1]
    if name in ("quantize", "convert"):
        folder = context.work / CHECKPOINT_FOLDER
        if spec.recipe == ENGINE:
            return lambda: check_checkpoint(*_read(folder), request)[1]
        return lambda: check_hugging_face(*_read(folder))
    return None


def _read(folder: Path) -> tuple[Any, dict[str, int]]:
    """config.json, None where it is no JSON, and the sizes of the files."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        config = None
    try:
        return config, {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
    except OSError:
        return config, {}


def _environment(name: str, context: BuildContext) -> dict[str, str]:
    if name in OURS:
        passed = {
            key: os.environ[key] for key in ("LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH") if key in os.environ
        }
        return {
            **passed,
            "PATH": os.defpath,
            "HOME": str(context.folder),
            "TMPDIR": str(context.work),
            "PYTHONPATH": str(context.checkout),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
    found = {
        "HOME": str(context.work),
        "TMPDIR": str(context.work),
        "HF_HOME": os.environ.get("HF_HOME") or str(context.work / "hub"),
        "TLLM_LOG_LEVEL": "INFO",
        "PYTHONUNBUFFERED": "1",
    }
    if name == "warm_up":
        found |= {"PYTHONPATH": str(context.checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    return found


def _wrapped(step: Step, spec: TrtllmSpec, row: Toolchain, context: BuildContext) -> Step:
    native = row.how == Toolchain.Kind.NATIVE
    passed = {key: os.environ[key] for key in PASSED_ON if native and key in os.environ}
    dataset = spec.request.quantization.calibration.dataset
    reaches = step.name in ("quantize", "convert") and not dataset.startswith("/")
    env = {**passed, **step.env}
    if not reaches:
        env["HF_HUB_OFFLINE"] = "1"
    command = Command(
        argv=step.argv,
        cwd=str(step.cwd),
        mark=context.mark,
        name=container_name(context.mark, step.name),
        env=env,
        mounts=_mounts(step, spec, context),
        gpus=context.gpus,
        # Calibration texts of a name are fetched from a hub; nothing else of a build needs a network.
        network="bridge" if reaches else "none",
    )
    found = wrap(place_of(row, f"{os.getuid()}:{os.getgid()}"), command)
    outer = found.env if native else client_environment()
    return replace(step, argv=found.argv, env=outer, end=found.end)


def _mounts(step: Step, spec: TrtllmSpec, context: BuildContext) -> tuple[Mount, ...]:
    """The work folder to write, everything else to read: only what the step's own words name."""
    read = {spec.path, spec.request.quantization.calibration.dataset, spec.request.quantization.weights}
    read |= {str(context.stages / part.name) for part in _kept(step, context.stages)}
    if step.name == "warm_up":
        read.add(str(context.checkout))
    found = [Mount(path) for path in sorted(read) if mountable(path)]
    hub = os.environ.get("HF_HOME", "")
    if mountable(hub):
        found.append(Mount(hub, writable=True))
    return (*found, Mount(str(context.work), writable=True))


def _kept(step: Step, stages: Path) -> set[Path]:
    return {stages / Path(word).relative_to(stages).parts[0] for word in step.argv if _below(word, stages)}


def _below(word: str, folder: Path) -> bool:
    return word.startswith(f"{folder}/")
