"""An instance's row as the server runtime wants it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from django.conf import settings

from apps.core.exceptions import InflightError
from apps.engines.compatibility import toolchain_for
from apps.engines.models import Engine
from apps.fleet.models import Gpu, Toolchain
from apps.fleet.toolchains import place_of
from apps.serving import adoption, preview, trtllm_files
from apps.serving.domain import repository
from apps.serving.domain.trtllm import spec as repository_spec
from apps.serving.domain.trtllm import templates
from apps.serving.domain.trtllm.render import render
from apps.serving.imports import require_unchanged
from apps.serving.models import Instance
from workers import failures
from workers.runtimes.base import Identity, Ports, Ranks, ServerFailure, ServerSpec

MODEL_CODE = Path(__file__).with_name("triton_models") / "llamacpp" / "1"
BACKEND = "tensorrtllm"


def server_spec(row: Instance, whole: bool = False) -> ServerSpec:
    """The server that the row asks for; `whole` with the content of its repository and the place where it runs.

    Raises ServerFailure where the engine's file is missing, InvalidInput where its settings cannot be rendered.
    """
    engine = row.revision.engine
    found = ServerSpec(
        uid=row.uid,
        folder=Path(settings.INFLIGHT_HOME) / "instances" / row.uid,
        model=row.deployment.name,
        gpu=visible_gpus(row),
        auto_complete=engine is None,
        engine=Path(engine.path) if engine is not None and engine.path else None,
        environment=_environment(row),
    )
    if engine is None:
        # Nobody knows how many processes people's own models have, nor whether their metrics count requests.
        found = dataclasses.replace(found, tells_requests=False, stubs=None)
        return _of_repository(row, found) if whole else found
    if trtllm_files.kind_of_engine(engine) == "llamacpp":
        return dataclasses.replace(found, repository=_embedded(row, engine)) if whole else found
    return _of_tensorrt_llm(row, engine, found, whole)


def server_ports(row: Instance) -> Ports:
    """The row's ports; zeros before its first start."""
    return Ports(row.http_port or 0, row.grpc_port or 0, row.metrics_port or 0)


def server_identity(row: Instance) -> Identity | None:
    """The row's process, null where it has none."""
    if row.pid is None or row.process_created is None:
        return None
    return Identity(row.pid, row.process_created, row.uid)


def visible_gpus(row: Instance) -> str | None:
    """What CUDA_VISIBLE_DEVICES names: the GPUs of the instance's place, with commas; null for a CPU slot."""
    if row.gpu is None or row.gpu.device != Gpu.Device.GPU:
        return None
    chosen = [str(gpu.get("uuid") or gpu.get("index")) for gpu in (row.placement or {}).get("gpus") or ()]
    return ",".join(chosen) or row.gpu.uuid or str(row.gpu.index)


def _environment(row: Instance) -> dict[str, str]:
    told = (row.placement or {}).get("environment") or {}
    return {str(key): str(value) for key, value in told.items()}


def _embedded(row: Instance, engine: Engine) -> tuple[repository.RepositoryFile, ...]:
    if not (Path(engine.path) / preview.ENGINE_FILE).is_file():
        raise ServerFailure(failures.engine_missing(engine.path))
    device = "cpu" if visible_gpus(row) is None else "gpu"
    model = preview.model_of(row.deployment.name, engine.path, row.revision.batching, device)
    code = {path.name: path.read_bytes() for path in sorted(MODEL_CODE.glob("*.py"))}
    return repository.files(model, code)


def _of_repository(row: Instance, found: ServerSpec) -> ServerSpec:
    """Links to the files of somebody's repository, unless they are not those of the revision any more."""
    imported = row.deployment.repository
    if imported is None or imported.fingerprint != row.revision.repository_fingerprint:
        raise ServerFailure(failures.repository_changed())
    require_unchanged(imported)
    made = adoption.instance_of(row.revision)
    ranks = Ranks(made.ranks, "leader", made.engine_model)
    return dataclasses.replace(found, repository=made.files, loads=made.loads, ranks=ranks)


# ---------------------------------------------------------------------- TensorRT-LLM


def _of_tensorrt_llm(row: Instance, engine: Engine, found: ServerSpec, whole: bool) -> ServerSpec:
    """Engine recipe or checkpoint recipe: who answers, what loads, how ranks start; `whole` also the files."""
    revision = row.revision
    try:
        wanted = trtllm_files.specification(
            revision.batching,
            trtllm_files.served(engine),
            row.deployment.name,
            revision.number,
            revision.placement,
        )
    except InflightError:
        # It never starts; that it cannot must still be said on its row.
        if whole:
            raise
        return found
    made = dataclasses.replace(
        found,
        ranks=_ranks(wanted),
        loads=tuple(wanted.name_of(model) for model in wanted.loads),
        backend=BACKEND if wanted.recipe == "engine" else "",
        tells_requests=False,
        stubs=_stubs(wanted),
    )
    if not whole:
        return made
    toolchain = toolchain_for(engine, row.node) if row.node is not None else None
    return dataclasses.replace(
        made,
        repository=_rendered(wanted, engine, toolchain),
        place=place_of(toolchain, f"{os.getuid()}:{os.getgid()}") if toolchain is not None else None,
        reads=tuple(path for path in (engine.path, wanted.model, wanted.tokenizer) if path),
    )


def _ranks(wanted: repository_spec.RepositorySpec) -> Ranks:
    count = wanted.parallel.ranks * wanted.instances.engine
    if wanted.recipe == "checkpoint":
        return Ranks(count, "own")
    return Ranks(count, wanted.parallel.mode, wanted.name_of("tensorrt_llm"))


def _stubs(wanted: repository_spec.RepositorySpec) -> int:
    """Processes of the python backend that serve: one for each instance of a python model."""
    counts = wanted.instances
    if wanted.recipe == "checkpoint":
        return counts.engine
    calling = (counts.bls or wanted.max_batch_size) if wanted.entry == "tensorrt_llm_bls" else 0
    return counts.preprocessing + counts.postprocessing + calling


def _rendered(
    wanted: repository_spec.RepositorySpec, engine: Engine, toolchain: Toolchain | None
) -> tuple[repository.RepositoryFile, ...]:
    """The repository with the python files of the node's own templates. Raises ServerFailure, InvalidInput."""
    folder = Path(wanted.model)
    if not folder.is_dir() or (wanted.recipe == "engine" and not (folder / "config.json").is_file()):
        raise ServerFailure(failures.engine_missing(wanted.model))
    examples = toolchain.examples if toolchain is not None else ""
    found = templates.find_for(templates.places_of(os.environ), examples, wanted.release)
    if found is None:
        raise ServerFailure(failures.templates_missing(wanted.version))
    return render(wanted, found).files
