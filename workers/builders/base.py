"""The EngineBuilder seam: check a specification, plan its steps as data, collect what they made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from apps.core.exceptions import Finding
from apps.engines.attempts import Artefact
from apps.engines.domain.build_spec import BuildSpec


@dataclass(frozen=True, slots=True)
class BuildContext:
    """Where one attempt works. `node` holds what the manifest says about the host.

    `engine_bytes` is the engine's estimated size, None where the checkpoint does not tell.
    """

    number: int
    attempt: int
    fingerprint: str
    folder: Path
    engines: Path
    checkout: Path
    serving_python: Path
    node: Mapping[str, Any]
    engine_bytes: int | None = None

    @property
    def work(self) -> Path:
        """Files of this attempt that nobody sees until they are published."""
        return self.folder / "work"

    @property
    def plan_file(self) -> Path:
        """What the attempt set out to do, as JSON, for the manifest."""
        return self.folder / "plan.json"


@dataclass(frozen=True, slots=True)
class Step:
    """One process of a build as data. `expected_seconds` is a rough guess, for progress and ETA over all steps.

    `outputs` must be there when the step has ended with exit code 0.
    """

    name: str
    title: str
    argv: tuple[str, ...]
    cwd: Path
    outputs: tuple[Path, ...] = ()
    expected_seconds: float = 1.0
    deadline_seconds: float = 24 * 3600.0
    env: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """JSON form: name, title, argv, cwd, env, outputs."""
        return {
            "name": self.name,
            "title": self.title,
            "argv": list(self.argv),
            "cwd": str(self.cwd),
            "env": dict(self.env),
            "outputs": [str(path) for path in self.outputs],
        }


class EngineBuilder(Protocol):
    """One way to make engines."""

    name: str

    def check(self, spec: BuildSpec, context: BuildContext) -> list[Finding]:
        """What stands against this build on this host; errors end it before anything is started."""
        ...

    def plan(self, spec: BuildSpec, context: BuildContext) -> list[Step]:
        """The steps in order. Pure: the same input gives the same steps, and nothing is touched."""
        ...

    def collect(self, context: BuildContext) -> Artefact:
        """What the steps published. Raises InfrastructureError where it is not there or not whole."""
        ...
