"""A server in the toolchain that has its engine's library: the node's own installation, or a container of an image.

A native toolchain is served by the node's tritonserver: the configured one, or where that has not the backend the one
of NVIDIA's containers, with the toolchain's Python first on PATH. In a container the same command line runs on the
host's network, so that loopback stays loopback; what the container may see is mounted, nothing else.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from django.utils.translation import gettext as _

from apps.fleet.containers import ask, client_environment, end_containers
from apps.fleet.domain.toolchain_argv import LABEL, Command, Mount, Place, container_name, mountable, wrap
from workers.runtimes.arguments import Installation, flags_in_help
from workers.runtimes.base import Failure, Ports, ServerFailure, ServerSpec

# Where NVIDIA's images have it.
SYSTEM = Path("/opt/tritonserver/bin/tritonserver")
HELP_SECONDS = 40.0
# Of a native server's environment a container has its own.
NOT_PASSED = frozenset({"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "CUDA_VISIBLE_DEVICES"})


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """What is started on the node."""

    argv: tuple[str, ...]
    env: dict[str, str]


def native(found: Installation, spec: ServerSpec) -> Installation:
    """The node's server for a spec. Raises ServerFailure where none has the backend that it needs."""
    if spec.backend and not has_backend(found, spec.backend):
        system = Installation(binary=str(SYSTEM))
        if not os.access(SYSTEM, os.X_OK) or not has_backend(system, spec.backend):
            raise ServerFailure(_backend_missing(found, spec.backend))
        found = system
    if spec.place is None:
        return found
    # Its models import from the toolchain, and from nothing of the embedded server.
    return dataclasses.replace(found, python=spec.place.python, site_packages="", python_home="")


def has_backend(found: Installation, name: str) -> bool:
    """Whether a server has a backend; true where its folder cannot be seen."""
    folder = Path(found.backends) if found.backends else Path(found.binary).parents[1] / "backends"
    return (folder / name).is_dir() or not folder.is_dir()


def _backend_missing(found: Installation, name: str) -> Failure:
    return Failure(
        "backend_missing",
        _("The tritonserver at %(path)s has no backend %(name)s.") % {"path": found.binary, "name": name},
        _("Set INFLIGHT_TRITON_BIN and INFLIGHT_TRITON_BACKENDS to a server that has it, or name a container of "
          "NVIDIA's in the toolchains file."),
    )  # fmt: skip


def of_image(place: Place) -> Installation:
    """The server in an image, with the flags that it knows. Raises ServerFailure where it does not answer."""
    flags = _flags_of(place.program, place.image)
    return Installation(binary=str(SYSTEM), known_flags=flags)


@lru_cache(maxsize=8)
def _flags_of(program: str, image: str) -> frozenset[str]:
    argv = [program, "run", "--rm", "--pull", "never", "--network", "none", "--entrypoint", str(SYSTEM)]
    flags = flags_in_help(ask([*argv, image, "--help"], HELP_SECONDS))
    if "--model-repository" not in flags:
        raise ServerFailure(
            Failure(
                "binary_missing",
                _("%(image)s has no tritonserver at %(path)s.") % {"image": image, "path": SYSTEM},
                _("Name an image of NVIDIA's tritonserver with TensorRT-LLM in the toolchains file."),
            )
        )
    return flags


def contained(
    place: Place, spec: ServerSpec, argv: tuple[str, ...], env: Mapping[str, str], ports: Ports
) -> Placed:
    """The command in a container; what ends it is kept in the instance's folder before it starts."""
    mark = mark_of(spec.uid)
    read = [Mount(path) for path in sorted(set(spec.reads)) if mountable(path)]
    command = Command(
        argv=argv,
        cwd=str(spec.folder),
        mark=mark,
        name=container_name(mark, str(ports.http)),
        env={key: value for key, value in env.items() if key not in NOT_PASSED},
        mounts=(*read, Mount(str(spec.folder), writable=True)),
        gpus=tuple(spec.gpu.split(",")) if spec.gpu else (),
        network="host",
    )
    spec.container.write_text(json.dumps({"program": place.program, "mark": mark}), encoding="utf-8")
    marks = {key: env[key] for key in env if key.startswith("INFLIGHT_")}
    return Placed(wrap(place, command).argv, {**client_environment(), **marks})


def mark_of(uid: str) -> str:
    """The label of an instance's container."""
    return f"instance:{uid}"


def _container(folder: Path) -> tuple[str, str] | None:
    try:
        told = json.loads((folder / "container.json").read_text(encoding="utf-8"))
        return str(told["program"]), str(told["mark"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def end(folder: Path) -> None:
    """End the container of an instance, where it has one."""
    if (known := _container(folder)) is not None:
        program, mark = known
        end_containers(mark, [program])


def runs(folder: Path) -> bool:
    """Whether the container of an instance is still there."""
    known = _container(folder)
    if known is None:
        return False
    program, mark = known
    return bool(ask([program, "ps", "--all", "--quiet", "--filter", f"label={LABEL}={mark}"]).split())
