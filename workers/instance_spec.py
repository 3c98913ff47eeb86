"""An instance's row as the server runtime wants it."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from apps.fleet.models import Gpu
from apps.serving import adoption, preview
from apps.serving.domain import repository
from apps.serving.imports import require_unchanged
from apps.serving.models import Instance
from workers import failures
from workers.runtimes.base import Identity, Ports, ServerFailure, ServerSpec

MODEL_CODE = Path(__file__).with_name("triton_models") / "llamacpp" / "1"


def server_spec(row: Instance, whole: bool = False) -> ServerSpec:
    """The server that the row asks for; `whole` with the content of its repository.

    Raises ServerFailure where the engine's file is missing, InvalidInput where its settings cannot be rendered.
    """
    engine = row.revision.engine
    return ServerSpec(
        uid=row.uid,
        folder=Path(settings.INFLIGHT_HOME) / "instances" / row.uid,
        model=row.deployment.name,
        gpu=visible_gpu(row.gpu),
        repository=_repository(row) if whole else (),
        auto_complete=row.revision.engine_id is None,
        ranks=_ranks(row),
        engine=Path(engine.path) if engine is not None and engine.path else None,
    )


def _ranks(row: Instance) -> int:
    """Processes that the engine needs, by its manifest."""
    engine = row.revision.engine
    told = (engine.manifest or {}).get("world_size") if engine is not None else None
    return told if isinstance(told, int) and told > 1 else 1


def server_ports(row: Instance) -> Ports:
    """The row's ports; zeros before its first start."""
    return Ports(row.http_port or 0, row.grpc_port or 0, row.metrics_port or 0)


def server_identity(row: Instance) -> Identity | None:
    """The row's process, null where it has none."""
    if row.pid is None or row.process_created is None:
        return None
    return Identity(row.pid, row.process_created, row.uid)


def visible_gpu(gpu: Gpu | None) -> str | None:
    """What CUDA_VISIBLE_DEVICES names, null for a CPU slot."""
    if gpu is None or gpu.device != Gpu.Device.GPU:
        return None
    return gpu.uuid or str(gpu.index)


def _repository(row: Instance) -> tuple[repository.RepositoryFile, ...]:
    engine = row.revision.engine
    if engine is None:
        return _imported(row)
    if not (Path(engine.path) / preview.ENGINE_FILE).is_file():
        raise ServerFailure(failures.engine_missing(engine.path))
    device = "cpu" if visible_gpu(row.gpu) is None else "gpu"
    model = preview.model_of(row.deployment.name, engine.path, row.revision.batching, device)
    code = {path.name: path.read_bytes() for path in sorted(MODEL_CODE.glob("*.py"))}
    return repository.files(model, code)


def _imported(row: Instance) -> tuple[repository.RepositoryFile, ...]:
    """Links to the files of somebody's repository, unless they are not those of the revision any more."""
    imported = row.deployment.repository
    if imported is None or imported.fingerprint != row.revision.repository_fingerprint:
        raise ServerFailure(failures.repository_changed())
    require_unchanged(imported)
    return adoption.instance_files(row.revision)[0]
