"""Sentences about places: why one was chosen, and what the hosts that were not lack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# A sentence names so many reasons, and each so many hosts; the rest are counted.
REASONS_TOLD = 3
EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Wait:
    """One reason and whom it concerns: how many nodes, and the names of a few."""

    why: str
    nodes: int
    examples: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """JSON-ready."""
        return {"why": self.why, "nodes": self.nodes, "examples": list(self.examples)}


def grouped(refused: Sequence[tuple[str, str]]) -> tuple[tuple[Wait, ...], str]:
    """(reason, host) pairs by reason, the commonest first, and all of it as one sentence."""
    by_why: dict[str, list[str]] = {}
    for why, name in refused:
        by_why.setdefault(why, []).append(name)
    waits = tuple(
        Wait(why, len(names), tuple(names[:EXAMPLES]))
        for why, names in sorted(by_why.items(), key=lambda item: -len(item[1]))
    )
    if not waits:
        return (), "No node has joined yet."
    told = [f"{_whom(wait)}: {wait.why}" for wait in waits[:REASONS_TOLD]]
    left = len(waits) - len(told)
    return waits, " ".join(told) + (f" And {left} more reasons." if left > 0 else "")


def _whom(wait: Wait) -> str:
    if wait.nodes <= EXAMPLES:
        return ", ".join(wait.examples)
    return f"{wait.nodes} nodes ({', '.join(wait.examples)}, …)"


def words_of_memory(needed: int, has: int | None, device: str = "gpu", guess: str = "") -> str:
    """Why a slot's memory is too little; `guess` says where the figure is from if no memory plan made it."""
    there = "of unknown size" if has is None else f"{gib(has)}"
    where = "on each GPU, it has" if device == "gpu" else "on a host, it has"
    return f"{gib(needed)} of memory are needed {where} {there}{f' ({guess})' if guess else ''}."


def words_of_guess(needed: int, why: str) -> str:
    """What was taken for the memory that a server needs, where no plan says it."""
    return f"{gib(needed)} of memory were taken for it ({why})" if why else ""


def words_of_unknown_memory(why: str) -> str:
    """Nothing was compared, and why."""
    return f"whether its memory is enough was not checked ({why})" if why else ""


def gib(size: int) -> str:
    """Bytes for people."""
    return f"{size / 2**30:.1f} GiB"


def why_chosen(
    *,
    name: str,
    slots: Sequence[tuple[str, int]],
    shares: Sequence[int],
    total: int,
    fitting: int,
    hosts: int,
    pinned: bool,
    near: bool,
    joined: str,
    strategy: str,
    same: int | None,
    memory: str = "",
) -> str:
    """Why this place: where, how much of it, how many others would have done, and what was best about it.

    `memory` is what is to be said where no memory plan stands behind the choice.
    """
    where = " + ".join(f"{device}{index}" for device, index in slots)
    share = "all" if min(shares) >= total else " and ".join(f"{each} %" for each in dict.fromkeys(shares))
    reasons = []
    if pinned:
        reasons.append("it was asked for by name")
    if near:
        reasons.append("the engine's files lie there")
    if joined:
        reasons.append(_JOINED[joined])
    if fitting > 1:
        reasons.append(_by_strategy(strategy, same))
    chosen = "it is the only one that fits" if fitting == 1 and hosts > 1 else ""
    if hosts == 1:
        chosen = "it is the only node"
    told = "; ".join(each for each in (*reasons, chosen, memory) if each)
    among = f" ({fitting} of {hosts} nodes fit)" if hosts > 1 else ""
    return f"{name} {where}, {share} of it{among}: {told}."


_JOINED = {
    "nvlink": "these GPUs are joined by NVLink",
    "numa": "these GPUs share a NUMA node, and no NVLink group had as many free",
    "unknown": "how these GPUs are joined is not known, or they are not; tensor parallelism may be slow",
}


def _by_strategy(strategy: str, same: int | None) -> str:
    if strategy == "pack":
        return "it is the fullest that still has room (pack)"
    if same:
        return f"it is the least loaded (spread), though it has {same} of this deployment's servers"
    return "it is the least loaded (spread)"
