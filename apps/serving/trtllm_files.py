"""The files of a TensorRT-LLM deployment as they will be: its rows as the specification that is rendered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.engines.models import BuildProfile, Engine
from apps.serving.domain import batching
from apps.serving.domain.acting import EngineKind
from apps.serving.domain.consequences import Limits
from apps.serving.domain.trtllm import settings, spec
from apps.serving.domain.trtllm.render import configuration
from apps.serving.models import BatchingProfile

# The release whose repositories are rendered where no node says which one it has.
RELEASE = "1.2"
# Where the builder puts the checkpoint's tokenizer beside the artefact.
TOKENIZER_FOLDER = "tokenizer"
CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class Served:
    """What is served: its folder, its tokenizer's (null: the same), ranks, and the release of TensorRT-LLM."""

    kind: EngineKind
    model: str
    tokenizer: str | None = None
    tp: int = 1
    pp: int = 1
    release: str = RELEASE

    @property
    def ranks(self) -> int:
        """GPUs of one server."""
        return self.tp * self.pp


def engine_kind(profile: BuildProfile | None) -> EngineKind:
    """What serves the engines of a build profile."""
    if profile is None or profile.builder != BuildProfile.Builder.TRTLLM:
        return "llamacpp"
    return "llmapi" if profile.recipe == BuildProfile.Recipe.CHECKPOINT else "trtllm"


def kind_of_engine(engine: Engine) -> EngineKind:
    """What serves a built engine: its manifest says by which recipe it was made, where a profile said auto."""
    if engine.builder != BuildProfile.Builder.TRTLLM:
        return "llamacpp"
    return "llmapi" if engine.manifest.get("recipe") == "checkpoint" else "trtllm"


def served(engine: Engine) -> Served:
    """What a TensorRT-LLM engine's manifest says about serving it."""
    manifest: Mapping[str, Any] = engine.manifest
    kind = kind_of_engine(engine)
    names = {str(file.get("name", "")) for file in manifest.get("files") or ()}
    own = kind == "trtllm" or CONFIG in names
    beside = any(name.startswith(f"{TOKENIZER_FOLDER}/") for name in names)
    folder = engine.path if own else engine.checkpoint.path
    pp = _whole(manifest, "pp")
    ranks = manifest.get("world_size")
    tp = ranks // pp if isinstance(ranks, int) and ranks >= pp else _whole(manifest, "tp")
    return Served(
        kind,
        folder,
        f"{engine.path}/{TOKENIZER_FOLDER}" if beside else _tokenizer_of(engine),
        tp,
        pp,
        str((manifest.get("versions") or {}).get("tensorrt_llm") or RELEASE),
    )


def _tokenizer_of(engine: Engine) -> str | None:
    """The checkpoint's own folder; a checkpoint of one file has no tokenizer beside it."""
    path = engine.checkpoint.path
    return path if path and not Path(path).suffix else None


def _whole(manifest: Mapping[str, Any], key: str) -> int:
    for part in (manifest.get("parallel"), manifest.get("engine")):
        value = part.get(key) if isinstance(part, Mapping) else None
        if isinstance(value, int) and value > 0:
            return value
    return 1


def of_profile(build: BuildProfile | None, kind: EngineKind, model: str) -> Served:
    """The same for an engine that is not built yet."""
    if build is None:
        return Served(kind, model)
    return Served(kind, model, None, build.tp, build.pp, build.tensorrt_llm or RELEASE)


def specification(
    snapshot: Mapping[str, Any],
    what: Served,
    name: str | None = None,
    revision: int = 1,
    placement: Mapping[str, Any] | None = None,
) -> spec.RepositorySpec:
    """The specification of a batching snapshot for an engine's or a checkpoint's folder. Raises InvalidInput.

    `placement` is a deployment's or a revision's; `name` is the deployment's, which the model that answers has.
    """
    facts = batching.facts(snapshot)
    chosen = settings.check(snapshot.get("trtllm") or {}, settings.PROFILE, "trtllm")
    placed = dict((placement or {}).get("trtllm") or {})
    around = {key: placed.pop(key) for key in [item.key for item in settings.AROUND] if key in placed}
    tokenizer = placed.get("tokenizer_dir") or what.tokenizer
    return spec.parse(
        {
            "recipe": "checkpoint" if what.kind == "llmapi" else "engine",
            "version": what.release,
            "revision": revision,
            "model": what.model,
            "tokenizer": tokenizer,
            "public_name": name,
            "answers": around.get("answering_model", settings.ENSEMBLE),
            "max_batch_size": facts.slots,
            "max_seq_len": facts.context_per_slot if what.kind == "llmapi" else None,
            "parallel": {"tp": what.tp, "pp": what.pp, "mode": around.get("rank_mode", "leader")},
            "instances": _instances(around),
            "settings": chosen,
            "placement": placed,
        }
    )


def _instances(around: Mapping[str, Any]) -> dict[str, Any]:
    names = {
        "engine": "engine_instances",
        "preprocessing": "preprocessing_instances",
        "postprocessing": "postprocessing_instances",
        "bls": "bls_instances",
    }
    return {name: around[key] for name, key in names.items() if key in around}


def rendered(
    snapshot: Mapping[str, Any],
    what: Served,
    name: str | None = None,
    revision: int = 1,
    placement: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Text of our own files by path; the python files are the node's."""
    return configuration(specification(snapshot, what, name, revision, placement))


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
