"""Where work goes, and why there, or why nowhere yet: a pure function of what is asked for and what hosts have.

Filters in this order, the first that refuses a host is the reason told: state, policy, pin, labels, versions, files,
devices. Then scores. The leases decide in the end: a choice that another has taken meanwhile is made anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

from apps.fleet.domain.placement_words import (
    Wait,
    grouped,
    why_chosen,
    words_of_guess,
    words_of_memory,
    words_of_unknown_memory,
)

WHOLE = 100
# In Request.memory: what a server on a CPU slot needs of its host.
HOST_MEMORY = "cpu"
READY = "ready"
_STATES = {
    "joining": "It is only just joining.",
    "suspect": "It is suspect: new work waits until it answers again.",
    "lost": "It is lost.",
    "maintenance": "It is in maintenance.",
}


@dataclass(frozen=True, slots=True)
class Slot:
    """A GPU, a MIG slice or a CPU slot. `free` and `total` are hundredths; `sm` the compute capability times ten.

    `gpu` is its row's id. `held_for` are the purposes that hold a part of it.
    """

    gpu: int
    index: int
    device: Literal["gpu", "cpu"]
    product: str = ""
    memory_bytes: int | None = None
    sm: int | None = None
    total: int = WHOLE
    free: int = WHOLE
    usable: bool = True
    is_slice: bool = False
    nvlink_group: int | None = None
    numa_node: int | None = None
    uuid: str = ""
    held_for: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Host:
    """A node. `speaks` null where its workers speak the control plane's protocol, else what they speak.

    `files`: fingerprints of engines that lie there. `same`: servers of the deployment in question that run there.
    """

    node: int
    name: str
    state: str = READY
    cordoned: str | None = None
    speaks: int | None = None
    purposes: frozenset[str] = frozenset({"build", "serve", "test"})
    share_gpus: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    slots: tuple[Slot, ...] = ()
    here: bool = False
    node_id: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for. `gpus` slots of one host, each with `share` hundredths (null: the default of its device).

    `memory` is what one slot must have, bytes by product ("" for any GPU, HOST_MEMORY for the host of a CPU slot). Of
    a GPU that is leased by a share that share of its memory counts; a CPU slot is shared by cores, its memory by all.
    `guessed`: keys of it that no memory plan stands behind, `memory_note` why. `lease_memory`: lease just so much of
    a GPU's memory instead of a share.
    `sms`: compute capabilities that will do; empty for any. `nodes` and `slots` pin; empty for any. `only_on`: ids of
    the nodes that have the files, null for all. `near`: those that have them already. `same`: by node, servers of
    the same deployment.
    """

    purpose: Literal["build", "serve", "test"] = "serve"
    device: Literal["any", "cpu", "gpu"] = "any"
    gpus: int = 1
    share: int | None = None
    cpu_share: int = 25
    memory: Mapping[str, int] = field(default_factory=dict)
    guessed: frozenset[str] = frozenset()
    memory_note: str = ""
    lease_memory: int | None = None
    sms: frozenset[int] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    nodes: frozenset[str] = frozenset()
    slots: frozenset[int] = frozenset()
    mig: Literal["any", "only", "never"] = "any"
    nvlink: bool = False
    strategy: Literal["spread", "pack"] = "spread"
    only_on: frozenset[int] | None = None
    near: frozenset[int] = frozenset()
    same: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """A place: slots of one host, the share of each, and why."""

    host: Host
    slots: tuple[Slot, ...]
    shares: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing was chosen, by reason, the commonest first. `full`: some host would do if it had room."""

    waits: tuple[Wait, ...]
    sentence: str
    full: bool


@dataclass(frozen=True, slots=True)
class _Fit:
    host: Host
    slots: tuple[Slot, ...]
    shares: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _No:
    why: str
    full: bool = False


def choose(request: Request, hosts: Sequence[Host]) -> Choice | Refusal:
    """The best place for a request, or why there is none now."""
    fits: list[_Fit] = []
    refused: list[tuple[str, str]] = []
    full = False
    for host in hosts:
        found = _fit(request, host)
        if isinstance(found, _No):
            refused.append((found.why, host.name))
            full = full or found.full
        else:
            fits.append(found)
    if not fits:
        waits, sentence = grouped(refused)
        return Refusal(waits, sentence, full)
    best = max(fits, key=lambda fit: _score(request, fit))
    return Choice(best.host, best.slots, best.shares, _why(request, best, fits, len(hosts)))


def _fit(request: Request, host: Host) -> _Fit | _No:
    problem = _host_problem(request, host)
    return _No(problem) if problem is not None else _slots(request, host)


def _host_problem(request: Request, host: Host) -> str | None:
    if host.state != READY:
        return _STATES.get(host.state, f"It is {host.state}.")
    if host.cordoned is not None:
        return f"It is cordoned: {host.cordoned}" if host.cordoned else "It is cordoned."
    if host.speaks is not None:
        return f"Its workers speak protocol {host.speaks}, the control plane another; update that host."
    if request.purpose not in host.purposes:
        return f"Its policy takes no work of the kind {request.purpose}."
    if request.nodes and host.node_id not in request.nodes:
        return "It is not a node that was asked for."
    for key, value in request.labels.items():
        if key not in host.labels:
            return f"It has no label {key}={value}."
        if host.labels[key] != value:
            return f"Its label {key} is {host.labels[key]}, {value} is asked for."
    for name, wanted in request.versions.items():
        found = host.versions.get(name)
        if found is None or not _is_release(found, wanted):
            return f"It has {name} {found or 'of no known version'}, {wanted} is asked for."
    if request.only_on is not None and host.node not in request.only_on:
        return "The engine's files are not there."
    return None


def _is_release(found: str, wanted: str) -> bool:
    """Whether 1.2.1 is of release 1.2: equal, or longer by whole parts."""
    return found == wanted or found.startswith((f"{wanted}.", f"{wanted}+", f"{wanted}-"))


def _slots(request: Request, host: Host) -> _Fit | _No:
    wanted = [slot for slot in host.slots if request.device in ("any", slot.device)]
    if request.gpus > 1:
        # Several ranks are several GPUs; a CPU slot is one.
        wanted = [slot for slot in wanted if slot.device == "gpu"]
    if not wanted:
        device = "GPU" if request.device == "gpu" or request.gpus > 1 else request.device.upper()
        return _No(f"It has no {device} slot.")
    refusals: list[_No] = []
    good: list[tuple[Slot, int]] = []
    for slot in wanted:
        found = _slot(request, host, slot)
        if isinstance(found, _No):
            refusals.append(found)
        else:
            good.append((slot, found))
    if request.gpus == 1 and good:
        slot, share = max(good, key=lambda pair: _slot_score(request, *pair))
        return _Fit(host, (slot,), (share,))
    if request.gpus > 1 and len(good) >= request.gpus:
        return _together(request, host, good)
    return _lacking(request, len(wanted), len(good), refusals)


def _slot(request: Request, host: Host, slot: Slot) -> int | _No:
    """The share that the request takes of this slot, or why it does not take it."""
    if not slot.usable:
        return _No("The driver cannot reach its GPU.")
    if request.slots and slot.index not in request.slots:
        return _No("It has none of the slots that were asked for.")
    if slot.is_slice and (request.mig == "never" or request.gpus > 1):
        return _No("Its GPU is cut into MIG slices; one process sees one slice.")
    if not slot.is_slice and request.mig == "only" and slot.device == "gpu":
        return _No("Its GPU is not cut into MIG slices.")
    if request.sms and slot.device == "gpu" and slot.sm is not None and slot.sm not in request.sms:
        sms = " or ".join(f"SM {sm}" for sm in sorted(request.sms))
        return _No(f"Its GPU is SM {slot.sm}, {sms} is needed.")
    share = _share(request, slot)
    if share > slot.total:
        return _No(words_of_memory(request.lease_memory or 0, slot.memory_bytes, slot.device))
    if slot.device == "gpu" and share < slot.total and not host.share_gpus:
        return _No("Its policy lets nobody share a GPU.")
    short = _too_little_memory(request, slot, share)
    if short:
        return _No(short)
    if slot.free < share:
        held = " and ".join(sorted(slot.held_for))
        by = f", the rest is held to {held}" if held else ""
        return _No(
            f"It has {slot.free} % of its {slot.device.upper()} free, {share} % is needed{by}.", full=True
        )
    return share


def _needed(request: Request, slot: Slot) -> tuple[str, int | None]:
    """The key of Request.memory that holds for a slot, and its bytes; null: nothing is known."""
    keys = (HOST_MEMORY,) if slot.device == "cpu" else (slot.product, "")
    return next(((key, request.memory[key]) for key in keys if key in request.memory), (keys[-1], None))


def _too_little_memory(request: Request, slot: Slot, share: int) -> str:
    key, needed = _needed(request, slot)
    if needed is None or slot.memory_bytes is None:
        return ""
    has = slot.memory_bytes if slot.device == "cpu" else int(slot.memory_bytes * share / slot.total)
    if needed <= has:
        return ""
    return words_of_memory(needed, has, slot.device, request.memory_note if key in request.guessed else "")


def memory_note(request: Request, slot: Slot) -> str:
    """What is to be said of the chosen slot's memory where no plan stands behind its being enough; else nothing."""
    key, needed = _needed(request, slot)
    if needed is None:
        return words_of_unknown_memory(request.memory_note)
    if slot.memory_bytes is None:
        return words_of_guess(needed, "how much memory it has is not known, so it was not compared")
    return words_of_guess(needed, request.memory_note) if key in request.guessed else ""


def _share(request: Request, slot: Slot) -> int:
    if request.lease_memory is not None and slot.device == "gpu" and slot.memory_bytes:
        return max(1, math.ceil(request.lease_memory * slot.total / slot.memory_bytes))
    if request.share is not None:
        return request.share
    return request.cpu_share if slot.device == "cpu" else slot.total


def _lacking(request: Request, had: int, good: int, refusals: Sequence[_No]) -> _No:
    # What is nearest to a fit says most: a slot that only lacks room, else the commonest reason.
    full = [each for each in refusals if each.full]
    told = full or list(refusals)
    common = max(
        (each.why for each in told), key=lambda why: sum(each.why == why for each in told), default=""
    )
    if request.gpus > 1:
        return _No(
            f"{request.gpus} GPUs of one host are needed; {good} of its {had} can be had. {common}".strip(),
            good + len(full) >= request.gpus,
        )
    if had > 1 and full and request.device != "cpu":
        return _No(f"None of its {had} slots has room. {common}", True)
    return _No(common, bool(full))


def _together(request: Request, host: Host, good: Sequence[tuple[Slot, int]]) -> _Fit | _No:
    """So many GPUs of one kind, joined as closely as can be: one NVLink group, else one NUMA node, else any."""
    best: list[tuple[Slot, int]] | None = None
    best_rank = (-1, 0)
    by_product = sorted(good, key=lambda pair: pair[0].product)
    for _product, pairs in groupby(by_product, key=lambda pair: pair[0].product):
        for rank, group in _groups(list(pairs)):
            if len(group) < request.gpus:
                continue
            # Of several such groups the smallest, so that the large ones stay whole.
            if (rank, -len(group)) > best_rank or best is None:
                best, best_rank = group, (rank, -len(group))
    if best is None:
        return _No(f"It has no {request.gpus} free GPUs of one kind.", full=True)
    if request.nvlink and best_rank[0] < 2:
        return _No(f"No {request.gpus} of its free GPUs are joined by NVLink.", full=True)
    chosen = sorted(best, key=lambda pair: pair[0].index)[: request.gpus]
    return _Fit(host, tuple(slot for slot, _ in chosen), tuple(share for _, share in chosen))


def _groups(pairs: list[tuple[Slot, int]]) -> Iterable[tuple[int, list[tuple[Slot, int]]]]:
    """(closeness, slots): 2 for an NVLink group, 1 for a NUMA node, 0 for all of the host."""
    for rank, key in ((2, "nvlink_group"), (1, "numa_node")):
        values = {getattr(slot, key) for slot, _ in pairs} - {None}
        for value in sorted(values):
            yield rank, [pair for pair in pairs if getattr(pair[0], key) == value]
    yield 0, pairs


def closeness(slots: Sequence[Slot]) -> str:
    """How the chosen GPUs are joined: nvlink, numa, or unknown."""
    if (
        len(slots) > 1
        and len({slot.nvlink_group for slot in slots}) == 1
        and slots[0].nvlink_group is not None
    ):
        return "nvlink"
    if len(slots) > 1 and len({slot.numa_node for slot in slots}) == 1 and slots[0].numa_node is not None:
        return "numa"
    return "unknown"


def _slot_score(request: Request, slot: Slot, share: int) -> tuple[float, ...]:
    left = slot.free - share
    # A GPU before a CPU slot; a slice before a whole GPU where either will do; then by strategy.
    kind = 0 if slot.device == "cpu" else 2 if slot.is_slice else 1
    size = -(slot.memory_bytes or 0) if request.memory or request.lease_memory else 0
    return (min(kind, 1), left if request.strategy == "spread" else -left, kind, size, -slot.index)


def _score(request: Request, fit: _Fit) -> tuple[float, ...]:
    free, total = sum(slot.free for slot in fit.host.slots), sum(slot.total for slot in fit.host.slots)
    load = 1 - free / total if total else 1.0
    same = request.same.get(fit.host.node, 0)
    spread = request.strategy == "spread"
    gpu = 1 if fit.slots[0].device == "gpu" else 0
    return (
        gpu if request.device == "any" else 0,
        -same if spread else 0,
        1 if fit.host.node in request.near else 0,
        {"nvlink": 2, "numa": 1, "unknown": 0}[closeness(fit.slots)],
        round(-load if spread else load, 6),
        1 if fit.host.here else 0,
        -fit.host.node,
    )


def _why(request: Request, best: _Fit, fits: Sequence[_Fit], hosts: int) -> str:
    return why_chosen(
        name=best.host.name,
        slots=[(slot.device, slot.index) for slot in best.slots],
        shares=best.shares,
        total=best.slots[0].total,
        fitting=len(fits),
        hosts=hosts,
        pinned=bool(request.nodes or request.slots),
        near=best.host.node in request.near,
        joined=closeness(best.slots) if len(best.slots) > 1 else "",
        strategy=request.strategy,
        same=request.same.get(best.host.node, 0) if request.same else None,
        memory=memory_note(request, best.slots[0]),
    )


def taken(hosts: Sequence[Host], choice: Choice, purpose: str) -> list[Host]:
    """The hosts after a choice was granted, so that the next one of the same look at the fleet counts it."""
    shares = dict(zip((slot.gpu for slot in choice.slots), choice.shares, strict=True))
    return [_with(host, shares, purpose) if host.node == choice.host.node else host for host in hosts]


def _with(host: Host, shares: Mapping[int, int], purpose: str) -> Host:
    slots = tuple(
        replace(slot, free=max(0, slot.free - shares[slot.gpu]), held_for=slot.held_for | {purpose})
        if slot.gpu in shares
        else slot
        for slot in host.slots
    )
    return replace(host, slots=slots)
