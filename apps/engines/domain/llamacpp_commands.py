"""Command lines of the llamacpp builder as data: the worker runs them, previews show them before anything runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import PurePath

from apps.engines.domain.build_spec import BuildSpec

STEPS = "workers.builders.llamacpp_steps"
MODEL = "model.gguf"
# Folder of the artefact inside the work folder of an attempt.
ARTEFACT = "engine"


@dataclass(frozen=True, slots=True)
class Places:
    """Where the steps work. In a preview, what is not known yet is a word in angle brackets."""

    python: str
    work: str
    plan_file: str
    engines: str
    fingerprint: str
    cores: int


@dataclass(frozen=True, slots=True)
class StepCommand:
    """One step: `name` is stable, `title` for people, `argv` what is run."""

    name: str
    title: str
    argv: tuple[str, ...]


def step_commands(spec: BuildSpec, places: Places) -> list[StepCommand]:
    """inspect -> convert -> verify -> publish. Pure: the same input gives the same commands."""
    artefact = str(PurePath(places.work) / ARTEFACT)
    model = str(PurePath(artefact) / MODEL)
    source, kind = ("--source", spec.path), ("--type", spec.quantization)
    place = ("--engines", places.engines, "--fingerprint", places.fingerprint)
    identity = json.dumps(spec.source, sort_keys=True)
    # Half the cores: llama.cpp's threads wait for each other by spinning, which starves where a server is busy too.
    threads = str(min(8, max(1, places.cores // 2)))
    steps = (
        (
            "inspect",
            "Inspect the checkpoint",
            ("inspect_source", *source, "--identity", identity, *kind, "--work", places.work),
        ),
        ("convert", f"Convert to {spec.quantization}", ("convert", *source, "--target", model, *kind)),
        ("verify", "Load it and generate", ("verify", "--model", model, "--threads", threads)),
        ("publish", "Publish", ("publish", "--artefact", artefact, "--plan", places.plan_file, *place)),
    )
    # -P: nothing of the working folder is imported by chance. -u: the log is live.
    begin = (places.python, "-P", "-u", "-m")
    return [
        StepCommand(name, title, (*begin, f"{STEPS}.{program}", *arguments))
        for name, title, (program, *arguments) in steps
    ]
