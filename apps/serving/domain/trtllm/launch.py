"""How a repository's ranks are started: the command line as data, one tritonserver a rank or one orchestrator.

Source: `scripts/launch_triton_server.py` of 0.19 to 1.x, without its habit of leaving the server alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from apps.serving.domain.trtllm.engine_models import name_of
from apps.serving.domain.trtllm.spec import RepositorySpec


@dataclass(frozen=True, slots=True)
class Ports:
    """Loopback ports of the serving rank."""

    http: int = 8000
    grpc: int = 8001
    metrics: int = 8002


@dataclass(frozen=True, slots=True)
class Launch:
    """One command with what it adds to the environment; `processes` are the tritonservers that it starts."""

    argv: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    processes: int = 1

    def as_dict(self) -> dict[str, object]:
        """JSON form."""
        return {"argv": list(self.argv), "environment": self.environment, "processes": self.processes}


def launch(
    spec: RepositorySpec,
    repository: str,
    triton: str = "/opt/tritonserver/bin/tritonserver",
    ports: Ports = Ports(),
    shm_prefix: str = "inflight",
) -> Launch:
    """The command that serves the repository. Each rank has a shared-memory prefix of its own."""
    if spec.recipe == "checkpoint":
        # The model spawns its own ranks; under mpirun it would spawn them once more.
        return Launch(_server(spec, repository, triton, ports, shm_prefix, 0))
    if spec.parallel.mode == "orchestrator":
        environment = {"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "1"}
        mpirun = ("mpirun", "--allow-run-as-root", "-n", "1")
        return Launch((*mpirun, *_server(spec, repository, triton, ports, shm_prefix, 0)), environment)
    argv = ["mpirun", "--allow-run-as-root"]
    for rank in range(spec.parallel.ranks):
        argv += [":"] if rank else []
        argv += ["-n", "1", *_server(spec, repository, triton, ports, shm_prefix, rank)]
    return Launch(tuple(argv), processes=spec.parallel.ranks)


def _server(
    spec: RepositorySpec, repository: str, triton: str, ports: Ports, shm_prefix: str, rank: int
) -> tuple[str, ...]:
    only_engine = (
        ("--model-control-mode=explicit", f"--load-model={name_of(spec, 'tensorrt_llm')}") if rank else ()
    )
    return (
        triton,
        f"--model-repository={repository}",
        *only_engine,
        f"--http-port={ports.http}",
        f"--grpc-port={ports.grpc}",
        f"--metrics-port={ports.metrics}",
        "--disable-auto-complete-config",
        f"--backend-config=python,shm-region-prefix-name={shm_prefix}{rank}_",
    )
