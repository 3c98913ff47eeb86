"""A program's argument list as a toolchain runs it: natively, or in a container of an image by digest. Data only.

Flags are those of docker-run(1) and podman-run(1). Nothing is pulled while it runs: what the digest names must be on
the node. The container's processes carry the attempt's mark in their environment, as every child does, and the
container carries it as a label, so that both ways of ending an attempt find it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from apps.fleet.domain.toolchain_file import GIB, Kind

LABEL = "inflight.attempt"
MARK = "INFLIGHT_ATTEMPT"
# For Python's threads and CUDA; NVIDIA's own advice for its containers.
STACK_BYTES = 64 * 2**20
ALL_GPUS = "all"

Network = Literal["none", "host", "bridge"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a toolchain's programs are: a Python's path, or an image with the container program's path."""

    kind: Kind
    python: str = ""
    image: str = ""
    program: str = ""
    shared_memory_bytes: int = 8 * GIB
    # uid:gid of the worker, so that what a container writes is the worker's.
    user: str = ""


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of the node that the program sees, at the same path."""

    path: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """One program. argv[0] is a bare name (found in the toolchain) or an absolute path in it.

    `gpus` are UUIDs or indices of what it may use, or ("all",); none: no GPU. `name` is unique on the node.
    """

    argv: tuple[str, ...]
    cwd: str
    mark: str
    name: str
    env: dict[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    gpus: tuple[str, ...] = ()
    network: Network = "none"


@dataclass(frozen=True, slots=True)
class Wrapped:
    """What is started on the node, and what ends its container (nothing for a native one)."""

    argv: tuple[str, ...]
    env: dict[str, str]
    end: tuple[str, ...] = ()


def wrap(place: Place, command: Command) -> Wrapped:
    """The argument list that runs `command` in the toolchain at `place`."""
    if place.kind == "native":
        return _native(place, command)
    argv = [
        *(place.program, "run", "--rm", "--init", "--pull", "never"),
        *("--name", command.name, "--label", f"{LABEL}={command.mark}"),
        *("--network", command.network),
        *_gpus(place.kind, command.gpus),
        *("--ipc", "private", "--shm-size", str(place.shared_memory_bytes)),
        *("--ulimit", "memlock=-1", "--ulimit", f"stack={STACK_BYTES}"),
        *("--security-opt", "no-new-privileges"),
        *_user(place),
        *("--workdir", command.cwd),
    ]
    for mount in command.mounts:
        bind = f"type=bind,source={mount.path},target={mount.path}"
        argv += ["--mount", bind if mount.writable else f"{bind},readonly"]
    for key, value in sorted({**command.env, MARK: command.mark}.items()):
        argv += ["--env", f"{key}={value}"]
    argv += ["--entrypoint", command.argv[0], place.image, *command.argv[1:]]
    return Wrapped(tuple(argv), {}, (place.program, "rm", "--force", command.name))


def container_name(mark: str, step: str) -> str:
    """Name of the container of one step of an attempt; marks have characters that names may not have."""
    return "inflight-" + re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{mark}-{step}")


def mountable(path: str) -> bool:
    """Whether a path can be bound: --mount reads a list, so a comma or a quote would end its field."""
    return path.startswith("/") and not any(sign in path for sign in ',"\0\n')


def _native(place: Place, command: Command) -> Wrapped:
    program = command.argv[0]
    folder = PurePosixPath(place.python).parent
    if program in ("python3", "python"):
        program = place.python
    elif "/" not in program:
        program = str(folder / program)
    env = {"PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin", **command.env}
    if command.gpus != (ALL_GPUS,):
        env["CUDA_VISIBLE_DEVICES"] = ",".join(command.gpus)
    return Wrapped((program, *command.argv[1:]), env)


def _gpus(kind: Kind, gpus: tuple[str, ...]) -> list[str]:
    if not gpus:
        return []
    if kind == "podman":
        # The names of the Container Device Interface, as nvidia-ctk writes them.
        return [word for gpu in gpus for word in ("--device", f"nvidia.com/gpu={gpu}")]
    if gpus == (ALL_GPUS,):
        return ["--gpus", ALL_GPUS]
    # docker reads the value as CSV, so a list of devices stands in quotes of its own.
    return ["--gpus", f'"device={",".join(gpus)}"']


def _user(place: Place) -> list[str]:
    if place.kind == "podman":
        # keep-id maps the worker's user into the container; SELinux would keep it from the mounts.
        return ["--userns", "keep-id", "--security-opt", "label=disable"]
    return ["--user", place.user] if place.user else []
