"""The EngineBuilder seam: check a specification, plan its steps as data, collect what they made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from apps.core.exceptions import Finding
from apps.engines.attempts import Artefact
from apps.engines.frozen import Spec
from apps.fleet.models import Toolchain
from apps.registry.domain.model_facts import ModelFacts


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
    mark: str = ""
    # For TensorRT-LLM: the toolchain's row, UUIDs of the leased GPUs, facts of the checkpoint.
    toolchain: Toolchain | None = None
    gpus: tuple[str, ...] = ()
    facts: ModelFacts | None = None
    # Where finished stages are kept, and how long stages of builds like this one took (seconds).
    stages: Path = Path()
    expected: Mapping[str, float] = field(default_factory=dict)

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

    `outputs` must be there when the step has ended with exit code 0. `end` is a command that ends the step's
    container, `shown` the argument list as people see it (default: argv). `keep` is the folder of the outputs where
    they may serve a later attempt, and `key` what identifies them by content; `judges` are keys of kept stages that
    its failure condemns. `reads_log` makes the step's progress out of its lines, `accept` looks at what it left.
    """

    name: str
    title: str
    argv: tuple[str, ...]
    cwd: Path
    outputs: tuple[Path, ...] = ()
    expected_seconds: float = 1.0
    deadline_seconds: float = 24 * 3600.0
    # None: a build's, which gives way to what serves.
    niceness: int | None = None
    env: dict[str, str] = field(default_factory=dict)
    end: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    keep: Path | None = None
    key: str = ""
    judges: tuple[str, ...] = ()
    reads_log: Callable[[], Milestones] | None = None
    accept: Callable[[], list[Finding]] | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The argument list for people."""
        return self.shown or self.argv

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


class Milestones(Protocol):
    """Reads a step's log lines, one object for each run of it."""

    def read(self, line: str) -> Seen | None:
        """How far the step is, where this line tells."""
        ...


@dataclass(frozen=True, slots=True)
class Seen:
    """A milestone: share of the step done (0 to 1), and what it does now, for people."""

    share: float
    doing: str


class EngineBuilder(Protocol):
    """One way to make engines."""

    name: str

    def check(self, spec: Spec, context: BuildContext) -> list[Finding]:
        """What stands against this build on this host; errors end it before anything is started."""
        ...

    def plan(self, spec: Spec, context: BuildContext) -> list[Step]:
        """The steps in order. Pure: the same input gives the same steps, and nothing is touched."""
        ...

    def facts(self, spec: Spec, context: BuildContext) -> dict[str, Any]:
        """What the manifest says beside what every manifest says."""
        ...

    def collect(self, context: BuildContext) -> Artefact:
        """What the steps published. Raises InfrastructureError where it is not there or not whole."""
        ...
