"""The files of a TensorRT-LLM deployment as they will be: its rows as the specification that is rendered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.engines.models import BuildProfile
from apps.serving.domain import batching
from apps.serving.domain.acting import EngineKind
from apps.serving.domain.consequences import Limits
from apps.serving.domain.trtllm import settings, spec
from apps.serving.domain.trtllm.render import configuration
from apps.serving.models import BatchingProfile

# The release whose repositories are rendered where no node says which one it has.
RELEASE = "1.2"


def engine_kind(profile: BuildProfile | None) -> EngineKind:
    """What serves the engines of a build profile."""
    if profile is None or profile.builder != BuildProfile.Builder.TRTLLM:
        return "llamacpp"
    return "llmapi" if profile.recipe == BuildProfile.Recipe.CHECKPOINT else "trtllm"


def specification(
    snapshot: Mapping[str, Any],
    kind: EngineKind,
    model: str,
    build: BuildProfile | None = None,
    revision: int = 1,
    placement: Mapping[str, Any] | None = None,
    release: str = RELEASE,
) -> spec.RepositorySpec:
    """The specification of a batching snapshot for an engine's or a checkpoint's folder. Raises InvalidInput.

    `placement` is a deployment's or a revision's.
    """
    facts = batching.facts(snapshot)
    parallel = {"tp": build.tp, "pp": build.pp} if build is not None else {}
    chosen = settings.check(snapshot.get("trtllm") or {}, settings.PROFILE, "trtllm")
    return spec.parse(
        {
            "recipe": "checkpoint" if kind == "llmapi" else "engine",
            "version": (build.tensorrt_llm if build is not None else "") or release,
            "revision": revision,
            "model": model,
            "max_batch_size": facts.slots,
            "max_seq_len": facts.context_per_slot if kind == "llmapi" else None,
            "parallel": parallel,
            "settings": chosen,
            "placement": dict((placement or {}).get("trtllm") or {}),
        }
    )


def rendered(
    snapshot: Mapping[str, Any],
    kind: EngineKind,
    model: str,
    build: BuildProfile | None = None,
    revision: int = 1,
    placement: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Text of our own files by path; the python files are the node's."""
    return configuration(specification(snapshot, kind, model, build, revision, placement))


def limits(build: BuildProfile | None) -> Limits:
    """What the build fixed, as far as its profile says."""
    if build is None:
        return Limits()
    flags = build.options.get("build") or {}
    values = {key: flags.get(key) for key in Limits.__dataclass_fields__}
    return Limits(**{key: value if isinstance(value, int) else None for key, value in values.items()})


def kind_of_profile(profile: BatchingProfile) -> EngineKind:
    """The engine that a batching profile names."""
    kinds: dict[str, EngineKind] = {"trtllm": "trtllm", "llmapi": "llmapi"}
    return kinds.get(str(profile.engine), "llamacpp")
