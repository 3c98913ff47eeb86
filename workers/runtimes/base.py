"""The seam between the control plane and a server process, and the data that crosses it.

Nothing here blocks for long: `ensure_started` spawns and returns, everything that talks to a server takes a
timeout, and what waits (loading, draining) is a state of a row that each tick looks at again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from apps.fleet.domain.toolchain_argv import Place
from apps.serving.domain.repository import RepositoryFile

ModelState = Literal["absent", "loading", "ready", "unloading", "unavailable", "unknown"]


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a server process is: its pid, when the kernel started it (epoch seconds), and its instance's id.

    The process leads a session and a group of its own, so `pid` is also the number of its group.
    """

    pid: int
    created: float
    uid: str


@dataclass(frozen=True, slots=True)
class Ports:
    """Three ports of the loopback address."""

    http: int
    grpc: int
    metrics: int


@dataclass(frozen=True, slots=True)
class Ranks:
    """How the processes of an engine over several GPUs are started.

    leader: a server for each rank under mpirun, all but the first load `model` at their start. orchestrator: one
    server that starts a worker for each rank. own: the model starts its ranks itself.
    """

    count: int = 1
    mode: Literal["leader", "orchestrator", "own"] = "leader"
    model: str = ""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One server to run: the instance's id and folder, the name of its model, the files of its repository.

    `gpu` is null for a CPU slot, else what CUDA_VISIBLE_DEVICES takes (UUIDs or indices, with commas).
    `repository` are the files of its repository. `auto_complete`: Triton may fill in what configurations leave out,
    as it does for people's own models. `engine` is the folder of the engine, null for people's own repositories.
    `loads` are its models in the order in which they load, the one that answers last; empty: all that there are.
    `backend`: one that the server must have. `place`: the toolchain that has the engine's library, null for the
    node's own server; `reads`: folders of the node that a container must see. `tells_requests`: its metrics say how
    many requests are in it. `stubs`: python processes that it has while it serves, null where nobody knows.
    """

    uid: str
    folder: Path
    model: str
    gpu: str | None
    repository: tuple[RepositoryFile, ...] = field(repr=False, default=())
    auto_complete: bool = False
    ranks: Ranks = Ranks()
    engine: Path | None = None
    loads: tuple[str, ...] = ()
    backend: str = ""
    place: Place | None = None
    reads: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    tells_requests: bool = True
    stubs: int | None = None

    @property
    def log(self) -> Path:
        """Where everything that the server prints goes."""
        return self.folder / "triton.log"

    @property
    def repository_folder(self) -> Path:
        """Where its repository is written, until the instance is cleared away."""
        return self.folder / "repository"

    @property
    def container(self) -> Path:
        """How its container is found and ended, where it has one: {"program", "mark"} as JSON."""
        return self.folder / "container.json"

    @property
    def command(self) -> Path:
        """The command line of its last start as people may see it: a JSON list."""
        return self.folder / "command.json"


@dataclass(frozen=True, slots=True)
class Launch:
    """A command ready to run. `argv` holds the secret of the restricted API: show `shown_argv` to people."""

    argv: tuple[str, ...] = field(repr=False)
    shown_argv: tuple[str, ...]
    env: dict[str, str] = field(repr=False)
    cwd: str
    log: Path
    ports: Ports


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something did not work. `reason` is stable; deterministic ones are listed in serving.domain.rollout."""

    reason: str
    sentence: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a server says of itself now; null is "it did not say".

    `in_flight` counts requests that run or wait in the model, `progress` what it has computed since it was loaded: a
    number that grows with every token or iteration. `model_process` is false where the model's own process died
    though the server still answers.
    """

    live: bool = False
    server_id: str | None = None
    version: str | None = None
    model: ModelState | None = None
    model_reason: str = ""
    in_flight: int | None = None
    progress: float | None = None
    model_process: bool | None = None


class ServerRuntime(ABC):
    """One kind of server. Instances are cheap and hold no state about servers: rows and /proc do."""

    @abstractmethod
    def check(self) -> Failure | None:
        """What is missing on this host before any server can start."""

    @abstractmethod
    def prepare(self, spec: ServerSpec) -> Launch:
        """Write the instance's files and compose the command. Raises ServerFailure."""

    @abstractmethod
    def ensure_started(self, spec: ServerSpec, launch: Launch, record: Callable[[Identity], bool]) -> bool:
        """Start the process; it runs only once `record` has put its identity on the row and returned True."""

    @abstractmethod
    def adopt(self, identity: Identity) -> bool:
        """Whether exactly this process still runs: pid, create time and instance id all agree."""

    @abstractmethod
    def observe(self, spec: ServerSpec, ports: Ports, seconds: float) -> Observation:
        """Ask the server how it is; every answer within `seconds`."""

    @abstractmethod
    def load(self, spec: ServerSpec, ports: Ports, seconds: float) -> Failure | None:
        """Load the model and wait for the answer. A timeout is no failure: the server goes on loading."""

    @abstractmethod
    def unload(self, spec: ServerSpec, ports: Ports, seconds: float) -> Failure | None:
        """Ask for the model to be unloaded; `observe` tells when it is."""

    @abstractmethod
    def probe(self, spec: ServerSpec, ports: Ports, seconds: float) -> Failure | None:
        """Generate one token: the only proof that a model answers."""

    @abstractmethod
    def drain(self, spec: ServerSpec, ports: Ports, seconds: float) -> int | None:
        """Requests still in flight, null where the server does not say. Routing was closed by the caller."""

    @abstractmethod
    def stop(self, identity: Identity, force: bool) -> None:
        """Ask the process to exit, or (`force`) kill it with all that it started."""

    @abstractmethod
    def gone(self, identity: Identity) -> bool:
        """Whether neither the process nor any that it started is left."""

    @abstractmethod
    def cleanup(self, spec: ServerSpec) -> None:
        """Remove what the server leaves behind: shared memory, repository, secret. The log stays."""


class ServerFailure(Exception):
    """A start that cannot work; carries the Failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.sentence)
        self.failure = failure
