"""What a configuration will become, before it is deployed: rendered files, findings, notices."""

from __future__ import annotations

import os
from typing import Any, cast

from django.utils.translation import gettext as _

from apps.core.exceptions import Finding
from apps.engines import selectors as engine_selectors
from apps.engines.models import BuildProfile, Engine
from apps.fleet import selectors as fleet_selectors
from apps.registry.models import Checkpoint
from apps.serving import adoption, revisions, selectors, trtllm_files
from apps.serving.domain import batching, pbtxt, repository
from apps.serving.domain.acting import EngineKind
from apps.serving.models import BatchingProfile, Deployment, Revision

ENGINE_FILE = "model.gguf"
# Releases with published holes: 26.06 is 2.70, 26.07 is 2.71 (reference of NVIDIA's security bulletins).
FIRST_ALLOWED_VERSION = (2, 70)
FIRST_WITHOUT_KNOWN_HOLES = (2, 71)


def batching_findings(profile: BatchingProfile, checkpoint: Checkpoint | None = None) -> list[Finding]:
    """What in a profile does nothing or bites, for a checkpoint where one is named, on this machine."""
    facts: dict[str, Any] = checkpoint.facts if checkpoint is not None else {}
    node = fleet_selectors.local_node()
    memory = int(node.versions.get("memory_bytes", 0) or 0) if node is not None else 0
    return batching.findings(
        revisions.batching_snapshot(profile),
        kv_bytes_per_token=facts.get("kv_bytes_per_token"),
        max_position_embeddings=facts.get("max_position_embeddings"),
        memory_bytes=memory or None,
        cores=os.cpu_count(),
    )


def kv_cache_bytes(profile: BatchingProfile, checkpoint: Checkpoint) -> int | None:
    """Bytes that the KV cache will take; null where the checkpoint's facts do not say."""
    per_token = checkpoint.facts.get("kv_bytes_per_token")
    if not per_token:
        return None
    return batching.kv_cache_bytes(batching.facts(revisions.batching_snapshot(profile)), int(per_token))


def model_of(
    name: str, engine_folder: str, snapshot: dict[str, Any], device: str
) -> repository.LlamaCppModel:
    """The model directory of a deployment's instance on a `cpu` or `gpu` slot."""
    return repository.LlamaCppModel(
        name=name,
        gguf_path=f"{engine_folder}/{ENGINE_FILE}",
        device=cast(repository.Device, device),
        batching=batching.facts(snapshot),
    )


def rendered_files(source: Deployment | Revision | BatchingProfile) -> dict[str, str]:
    """Text of the files that Triton will read, by path: what a deployment, revision or profile becomes.

    What is not known yet (an engine that is not built, the name of no deployment) stands in angle brackets.
    """
    if isinstance(source, Revision) and source.deployment.repository is not None:
        return adoption.rendered_files(source.deployment, source.batching)
    if isinstance(source, Deployment) and source.repository is not None:
        return adoption.rendered_files(source, revisions.batching_snapshot(source.batching))
    if isinstance(source, BatchingProfile):
        kind = trtllm_files.kind_of_profile(source)
        return _files("", revisions.batching_snapshot(source), None, kind, None)
    if isinstance(source, Revision):
        deployment, snapshot, engine, number = (
            source.deployment,
            source.batching,
            source.engine,
            source.number,
        )
    else:
        target = selectors.target_revision(source) if source.pk else None
        deployment, snapshot = source, revisions.batching_snapshot(source.batching)
        build = source.build_profile
        engine = engine_selectors.newest_engine(build) if build is not None else None
        number = target.number if target is not None else 1
    kind = (
        trtllm_files.kind_of_engine(engine) if engine else trtllm_files.engine_kind(deployment.build_profile)
    )
    return _files(deployment.name, snapshot, engine, kind, deployment.build_profile, number, source.placement)


def _files(
    name: str,
    snapshot: dict[str, Any],
    engine: Engine | None,
    kind: EngineKind,
    build: BuildProfile | None,
    number: int = 1,
    placement: dict[str, Any] | None = None,
) -> dict[str, str]:
    path = engine.path if engine is not None else "<engine>"
    if kind != "llamacpp":
        what = (
            trtllm_files.served(engine) if engine is not None else trtllm_files.of_profile(build, kind, path)
        )
        return trtllm_files.rendered(snapshot, what, name or None, number, placement)
    name = name or "example"
    model = model_of(name, path, snapshot, _device(placement or {}))
    return {f"{name}/{pbtxt.FILE_NAME}": pbtxt.render(repository.model_config(model))}


def _device(placement: dict[str, Any]) -> str:
    return "gpu" if placement.get("device") == "gpu" else "cpu"


def version_tuple(version: str) -> tuple[int, int] | None:
    """(2, 51) of "2.51.0"; null for what is no version."""
    parts = version.split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1][:2].rstrip("d").isdigit()):
        return None
    return int(parts[0]), int("".join(character for character in parts[1] if character.isdigit()))


def version_notices(version: str) -> list[dict[str, str]]:
    """Permanent notices about a server of this version; none for a release without published holes."""
    found = version_tuple(version)
    if found is None or found >= FIRST_WITHOUT_KNOWN_HOLES:
        return []
    message = _("Triton %(version)s has published security holes; it listens on this machine only.")
    notice = Finding(
        "triton_has_known_holes",
        "warning",
        message % {"version": version},
        "server_version",
        _("Install Triton 26.07 (2.71) or newer and set INFLIGHT_TRITON_BIN to it."),
    )
    return [notice.as_dict()]
