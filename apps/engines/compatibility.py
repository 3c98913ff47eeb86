"""Engines against the nodes and toolchains that there are; the rules are in domain/compatibility.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from apps.engines.domain.compatibility import (
    GGUF,
    Compatibility,
    EngineNeeds,
    GpuOffer,
    HostOffer,
    best,
    needs_of,
)
from apps.engines.models import Engine
from apps.fleet.models import Gpu, Node, Toolchain


def engine_needs(engine: Engine) -> EngineNeeds:
    """What an engine was made with, by its manifest; a llama.cpp engine needs nothing of a host."""
    manifest = {**engine.manifest, "builder": {"name": engine.builder}}
    return needs_of(manifest, imported=engine.provenance == Engine.Provenance.IMPORTED)


def engine_on_node(engine: Engine, node: Node) -> Compatibility:
    """Whether an engine runs on a node: with the toolchain there that fits it best. Two queries."""
    needs = engine_needs(engine)
    if needs.recipe == GGUF:
        return Compatibility("ok")
    rows = [row for row in node.toolchains.all() if row.recipes]
    slots = [slot for slot in node.gpus.all() if slot.device == Gpu.Device.GPU]
    offers = [_of_toolchain(node, row, slots) for row in rows] or [_of_node(node, slots)]
    return best(needs, offers)[0]


def toolchain_for(engine: Engine, node: Node) -> Toolchain | None:
    """The node's toolchain that fits an engine best; None where the node has none, or the engine needs none."""
    needs = engine_needs(engine)
    if needs.recipe == GGUF:
        return None
    slots = [slot for slot in node.gpus.all() if slot.device == Gpu.Device.GPU]
    rows = {row.name: row for row in node.toolchains.all() if row.recipes}
    offer = best(needs, [_of_toolchain(node, row, slots) for row in rows.values()])[1]
    return rows.get(offer.toolchain) if offer is not None else None


def engine_hosts(engine: Engine, nodes: Iterable[Node]) -> list[tuple[Node, Compatibility]]:
    """Every node with the answer, for an engine's page."""
    return [(node, engine_on_node(engine, node)) for node in nodes]


def _of_toolchain(node: Node, row: Toolchain, slots: list[Gpu]) -> HostOffer:
    gpus = tuple(
        GpuOffer(str(gpu.get("name") or ""), gpu.get("sm"), gpu.get("memory_bytes")) for gpu in row.gpus
    )
    return HostOffer(
        node=str(node),
        gpus=gpus or _of_slots(slots),
        tensorrt=_version(row.versions, "tensorrt"),
        tensorrt_llm=_version(row.versions, "tensorrt_llm"),
        image=None if row.how == Toolchain.Kind.NATIVE else row.location,
        toolchain=row.name,
    )


def _of_node(node: Node, slots: list[Gpu]) -> HostOffer:
    """A node without toolchains: what its own devices and programs say."""
    return HostOffer(
        node=str(node),
        gpus=_of_slots(slots),
        tensorrt=_version(node.versions, "tensorrt"),
        tensorrt_llm=_version(node.versions, "tensorrt_llm"),
    )


def _of_slots(slots: list[Gpu]) -> tuple[GpuOffer, ...]:
    return tuple(GpuOffer(slot.product, _sm(slot.compute_capability), slot.memory_bytes) for slot in slots)


def _sm(capability: str) -> int | None:
    """90 of "9.0"."""
    major, dot, minor = capability.partition(".")
    return int(major) * 10 + int(minor) if dot and major.isdecimal() and minor.isdecimal() else None


def _version(versions: Mapping[str, Any], name: str) -> str | None:
    value = versions.get(name)
    return str(value) if value else None
