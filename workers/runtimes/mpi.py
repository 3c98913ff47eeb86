"""Servers of a world size above 1 as data: one tritonserver for each rank, all of them children of one mpirun.

Composed by us and not by the backend's launch script: that one returns while the servers live on, so that nobody
knows when they end (tensorrtllm_backend#580). Here mpirun itself is the instance's process: it leads the session and
the group, ends its ranks at SIGTERM, and the whole group is killed where it does not.
Source: scripts/launch_triton_server.py 0.16 to 1.x; OpenMPI's mpirun(1).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from django.utils.translation import gettext as _

from workers.runtimes.base import Failure, Ranks, ServerFailure

# The rank that takes requests keeps its ports; the others serve nobody and get none.
SERVING_RANK = 0
_PORT_FLAGS = ("--http-port", "--grpc-port", "--metrics-port")
_ONLY_SERVING = (
    "--http-address",
    "--grpc-address",
    "--metrics-address",
    "--reuse-http-port",
    "--reuse-grpc-port",
    "--http-restricted-api",
    "--grpc-restricted-protocol",
    "--metrics-config",
    "--allow-sagemaker",
    "--allow-vertex-ai",
    "--allow-client-shm",
    "--grpc-max-response-pool-size",
    "--http-max-input-size",
)


ORCHESTRATOR = {"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "1"}


def environment(ranks: Ranks) -> dict[str, str]:
    """What the backend reads of how its ranks are started."""
    return dict(ORCHESTRATOR) if ranks.mode == "orchestrator" else {}


def is_under_mpirun(ranks: Ranks) -> bool:
    """Whether mpirun starts the server: an orchestrator too, which starts its workers through it."""
    return ranks.mode == "orchestrator" or (ranks.mode == "leader" and ranks.count > 1)


def started(argv: Sequence[str], ranks: Ranks, mpirun: str, as_root: bool) -> tuple[str, ...]:
    """The command line of a server with all its ranks; `argv` is that of a server alone."""
    if ranks.mode == "orchestrator":
        return (mpirun, *(("--allow-run-as-root",) if as_root else ()), "-n", "1", *argv)
    return compose(argv, ranks.count if ranks.mode == "leader" else 1, mpirun, ranks.model, as_root)


def world_size(tensor_parallel: int, pipeline_parallel: int) -> int:
    """Ranks of an engine."""
    return tensor_parallel * pipeline_parallel


def require_one_host(ranks: int, gpus_here: int) -> None:
    """Refuse, in words, what does not fit into the GPUs that an instance has here. Raises ServerFailure."""
    if ranks > max(gpus_here, 1):
        raise ServerFailure(
            Failure(
                "several_hosts",
                _("The engine needs %(ranks)d GPUs of one host, and its placement has %(here)d here. One engine over "
                  "several hosts is not offered yet.") % {"ranks": ranks, "here": gpus_here},
                _("Build it with a smaller tensor and pipeline parallelism, or place it where it has its GPUs."),
            )
        )  # fmt: skip


def launcher() -> str:
    """Path of mpirun. Raises ServerFailure where there is none."""
    found = shutil.which("mpirun")
    if found is None:
        raise ServerFailure(
            Failure(
                "launcher_missing",
                _("An engine of several GPUs is started by mpirun, which is not on this host."),
                _("Install OpenMPI, or use the container of the toolchain, which has it."),
            )
        )
    return found


def compose(argv: Sequence[str], ranks: int, mpirun: str, model: str, as_root: bool) -> tuple[str, ...]:
    """The command line of all ranks; `argv` is that of a server alone and comes back unchanged for one rank.

    Ranks but the first load the engine's model at their start and have no front ends; each has a prefix of its own
    in /dev/shm, which begins with the instance's.
    """
    if ranks == 1:
        return tuple(argv)
    found = [mpirun, *(("--allow-run-as-root",) if as_root else ())]
    for rank in range(ranks):
        found += [":"] if rank else []
        found += ["-n", "1", *_of_rank(argv, rank, model)]
    return tuple(found)


def _of_rank(argv: Sequence[str], rank: int, model: str) -> list[str]:
    if rank == SERVING_RANK:
        return [_own_shared_memory(part, rank) for part in argv]
    kept = [
        _own_shared_memory(part, rank)
        for part in argv
        if part.partition("=")[0] not in (*_PORT_FLAGS, *_ONLY_SERVING)
    ]
    return [
        *kept,
        f"--load-model={model}",
        "--allow-http=false",
        "--allow-grpc=false",
        "--allow-metrics=false",
    ]


def _own_shared_memory(part: str, rank: int) -> str:
    return f"{part}{rank}_" if part.startswith("--backend-config=python,shm-region-prefix-name=") else part
