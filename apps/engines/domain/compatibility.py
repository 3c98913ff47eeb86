"""Whether an engine runs on a host: what it was made with against what the host has (reference 3.7).

TensorRT decides when it reads the plan: its own version and the compute capability must be the same, for plans are
built neither version-compatible nor hardware-compatible; TensorRT-LLM's library must be the one that built it. The
engine's own config.json has neither architecture nor TensorRT's version, so what counts is our manifest; what it does
not say is not known, and is a warning, never a guess. A recipe without a compiled engine carries no plan: only ranks
and memory bind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from apps.core.exceptions import Finding

Verdict = Literal["ok", "warn", "refuse"]
ENGINE, CHECKPOINT, GGUF = "engine", "checkpoint", "gguf"
# Of a GPU's memory; beside the weights a server needs its context, buffers and a KV cache (reference 4.5).
MEMORY_REFUSE, MEMORY_WARN = 0.97, 0.85
REBUILD = "Rebuild it for this node."


@dataclass(frozen=True, slots=True)
class EngineNeeds:
    """What an engine was made with. None: its manifest does not say. `rank_bytes` are those of the largest rank.

    `imported`: it was built elsewhere, and nobody vouches for its origin.
    """

    recipe: str
    sm: int | None = None
    gpu_name: str | None = None
    tensorrt: str | None = None
    tensorrt_llm: str | None = None
    image: str | None = None
    world_size: int | None = None
    rank_bytes: int | None = None
    imported: bool = False


@dataclass(frozen=True, slots=True)
class GpuOffer:
    """One GPU of the host; memory in bytes, `sm` the compute capability times ten."""

    name: str = ""
    sm: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class HostOffer:
    """A host, or one of its toolchains, as it was probed. None: not known. `node` is what people call it."""

    node: str
    gpus: tuple[GpuOffer, ...] = ()
    tensorrt: str | None = None
    tensorrt_llm: str | None = None
    image: str | None = None
    toolchain: str = ""


@dataclass(frozen=True, slots=True)
class Compatibility:
    """The answer, with every reason. `refuse` holds a start back; `warn` lets it through and says what is open."""

    verdict: Verdict
    findings: tuple[Finding, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON form: verdict, findings."""
        return {"verdict": self.verdict, "findings": [found.as_dict() for found in self.findings]}

    @property
    def first(self) -> Finding | None:
        """What decides: the first refusal, else the first warning."""
        order = {"error": 0, "warning": 1, "info": 2}
        return min(self.findings, key=lambda found: order[found.severity], default=None)


def judge(needs: EngineNeeds, offer: HostOffer) -> Compatibility:
    """Compare every property; a refusal names what differs, both values, and what to do."""
    found = [*_compiled(needs, offer), *_ranks(needs, offer), *_memory(needs, offer)]
    severities = {each.severity for each in found}
    verdict: Verdict = "refuse" if "error" in severities else "warn" if "warning" in severities else "ok"
    return Compatibility(verdict, tuple(found))


def best(needs: EngineNeeds, offers: list[HostOffer]) -> tuple[Compatibility, HostOffer | None]:
    """The offer that fits best, the earlier one of two that fit alike; a refusal where there is none at all."""
    order = {"ok": 0, "warn": 1, "refuse": 2}
    judged = [(judge(needs, offer), offer) for offer in offers]
    if not judged:
        return Compatibility(
            "refuse", (_error("no_host", "No node offers what it needs.", "Add a node."),)
        ), None
    return min(judged, key=lambda pair: order[pair[0].verdict])


def needs_of(manifest: Mapping[str, Any], *, imported: bool = False) -> EngineNeeds:
    """What a manifest of ours says; keys that are not there are not known."""
    gpu, versions, engine = (_mapping(manifest.get(key)) for key in ("gpu", "versions", "engine"))
    builder = str(_mapping(manifest.get("builder")).get("name", ""))
    recipe = GGUF if builder == "llamacpp" else str(manifest.get("recipe") or (ENGINE if builder else GGUF))
    sizes = [
        _whole(file.get("size_bytes")) or 0
        for file in map(_mapping, manifest.get("files") or ())
        if str(file.get("name", "")).startswith("rank")
    ]
    return EngineNeeds(
        recipe=recipe,
        sm=_whole(manifest.get("sm")) or _whole(gpu.get("sm")),
        gpu_name=_text(gpu.get("name")),
        tensorrt=_text(versions.get("tensorrt")),
        tensorrt_llm=_text(versions.get("tensorrt_llm")),
        image=_text(manifest.get("image")),
        world_size=_whole(manifest.get("world_size")) or _whole(engine.get("world_size")),
        rank_bytes=max(sizes, default=None),
        imported=imported,
    )


def _compiled(needs: EngineNeeds, offer: HostOffer) -> Iterator[Finding]:
    if needs.recipe != ENGINE:
        return
    yield from _architecture(needs, offer)
    for name, key in (("TensorRT-LLM", "tensorrt_llm"), ("TensorRT", "tensorrt")):
        yield from _version(name, key, getattr(needs, key), getattr(offer, key), offer.node)
    same_versions = needs.tensorrt_llm == offer.tensorrt_llm and needs.tensorrt == offer.tensorrt
    if needs.image and offer.image and needs.image != offer.image and same_versions:
        yield _warning(
            "image_differs",
            "It was built in another image of the same versions.",
            "Serve it in the image that built it to be certain.",
        )


def _architecture(needs: EngineNeeds, offer: HostOffer) -> Iterator[Finding]:
    known = {gpu.sm for gpu in offer.gpus if gpu.sm is not None}
    if not offer.gpus:
        yield _error("no_gpus", f"{offer.node} has no GPU, and a compiled engine runs on nothing else.", "")
    elif needs.sm is None or not known:
        whose = "the engine" if needs.sm is None else offer.node
        yield _warning(
            "gpu_architecture_unknown",
            f"The GPU architecture of {whose} is not known; TensorRT refuses any other when it loads.",
            REBUILD,
        )
    elif needs.sm not in known:
        here = ", ".join(f"SM {sm}" for sm in sorted(known))
        yield _error(
            "engine_built_for_other_gpu",
            f"It was built for SM {needs.sm}, and {offer.node} has {here}.",
            REBUILD,
        )
    else:
        names = {gpu.name for gpu in offer.gpus if gpu.sm == needs.sm and gpu.name}
        if needs.gpu_name and names and needs.gpu_name not in names:
            yield _warning(
                "other_gpu_model",
                f"It was built on {needs.gpu_name} and would run on {', '.join(sorted(names))}: the same "
                "architecture, so it loads, but its kernels were chosen for the other.",
                "Rebuild it there for its best speed.",
            )


def _version(name: str, key: str, built: str | None, here: str | None, node: str) -> Iterator[Finding]:
    if built is None or here is None:
        whose = "built the engine" if built is None else f"{node} has"
        yield _warning(
            f"{key}_unknown", f"It is not known which {name} {whose}; the two must be the same.", REBUILD
        )
    elif built != here:
        yield _error(
            f"{key}_version_mismatch", f"It was built with {name} {built}, and {node} has {here}.", REBUILD
        )


def _ranks(needs: EngineNeeds, offer: HostOffer) -> Iterator[Finding]:
    if needs.recipe == GGUF:
        return
    if needs.world_size is None:
        yield _warning("world_size_unknown", "How many GPUs it needs is not known.", REBUILD)
        return
    fitting = [
        gpu for gpu in offer.gpus if needs.recipe != ENGINE or gpu.sm in (None, needs.sm) or not needs.sm
    ]
    have = len(fitting)
    if offer.gpus and have < needs.world_size and have:
        yield _error(
            "too_few_gpus",
            f"It needs {needs.world_size} GPUs at once, and {offer.node} has {have} that fit.",
            "Choose a host with more GPUs, or convert it again with a smaller tp.",
        )


def _memory(needs: EngineNeeds, offer: HostOffer) -> Iterator[Finding]:
    sizes = sorted((gpu.memory_bytes for gpu in offer.gpus if gpu.memory_bytes), reverse=True)
    if needs.rank_bytes is None or not sizes or needs.recipe == GGUF:
        return
    # The ranks take as many GPUs; the smallest of those decides.
    smallest = sizes[: needs.world_size or 1][-1]
    share = needs.rank_bytes / smallest
    told = f"Its largest rank has {_gib(needs.rank_bytes)} of weights for a GPU of {_gib(smallest)}"
    if share >= MEMORY_REFUSE:
        yield _error(
            "memory_too_small", f"{told}.", "Use a larger tp, a narrower weight type, or a larger GPU."
        )
    elif share >= MEMORY_WARN:
        yield _warning(
            "memory_tight",
            f"{told}: little is left for buffers and the KV cache.",
            "Lower max_batch_size and max_num_tokens of the build, or use a larger tp.",
        )


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _error(code: str, message: str, remedy: str) -> Finding:
    return Finding(code, "error", message, "engine", remedy)


def _warning(code: str, message: str, remedy: str) -> Finding:
    return Finding(code, "warning", message, "engine", remedy)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
