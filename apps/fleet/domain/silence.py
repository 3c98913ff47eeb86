"""What a node's silence means, and when the silence of many means that we are deaf ourselves.

Beats come from a thread of a node's worker (it is alive), echoes through its queue (it takes tasks). Ages are those
of Redis; nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# DESIGN.md 5: beats every 3 s; three missed: suspect, five: lost.
SUSPECT_AFTER_SECONDS = 9.0
LOST_AFTER_SECONDS = 15.0
# The row is written less often than the beat, so it is given that much longer where it is all there is.
ROW_EVERY_SECONDS = 15.0
# So long many nodes may be silent before their silence is believed, if this host's own beat arrives all the while.
BRAKE_SECONDS = 120.0
NO_HEARTBEAT, TAKES_NO_TASKS = "no_heartbeat", "takes_no_tasks"


@dataclass(frozen=True, slots=True)
class Seen:
    """One node's signs of life: ages in seconds, null where Redis knows of none; `row` that of its row.

    `state` is ready or suspect.
    """

    node: int
    state: str
    beat: float | None
    echo: float | None
    row: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """A node that changes its state, and which of the two signs is missing. `silence` in seconds."""

    node: int
    target: str
    reason: str
    silence: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is to be done. `doubted`: so many fell silent that nothing is done; `silent` of `watched` nodes are."""

    verdicts: tuple[Verdict, ...]
    doubted: bool
    silent: int
    watched: int


def verdict(seen: Seen) -> Verdict | None:
    """What one node's ages say; null where nothing changes."""
    beat = seen.beat if seen.beat is not None else max(0.0, seen.row - ROW_EVERY_SECONDS)
    # A node that beats and has never echoed has only just begun.
    echo = beat if seen.echo is None else seen.echo
    silence = max(beat, echo)
    if silence <= SUSPECT_AFTER_SECONDS:
        return None
    reason = NO_HEARTBEAT if beat > SUSPECT_AFTER_SECONDS else TAKES_NO_TASKS
    if seen.state == "ready":
        return Verdict(seen.node, "suspect", reason, silence)
    if silence > LOST_AFTER_SECONDS:
        return Verdict(seen.node, "lost", reason, silence)
    return None


def judge(nodes: Sequence[Seen], own: int | None) -> Judgement:
    """Verdicts on all nodes together; `own` is the node that judges, null where it is none.

    More than half of several nodes silent at once: it is likelier that Redis or this host lost its beats than that
    they all died, so nobody is judged, until that has gone on for BRAKE_SECONDS while our own beat arrived: then the
    way here is whole and they are gone indeed.
    """
    found = [each for node in nodes if (each := verdict(node)) is not None]
    silent = [node for node in nodes if _is_silent(node)]
    many = len(nodes) > 1 and len(silent) * 2 > len(nodes)
    if not many:
        return Judgement(tuple(found), False, len(silent), len(nodes))
    ours = next((node for node in nodes if node.node == own), None)
    sure = ours is not None and not _is_silent(ours) and _shortest(silent) > BRAKE_SECONDS
    return Judgement(tuple(found) if sure else (), not sure, len(silent), len(nodes))


def _is_silent(node: Seen) -> bool:
    return _silence(node) > SUSPECT_AFTER_SECONDS


def _silence(node: Seen) -> float:
    beat = node.beat if node.beat is not None else max(0.0, node.row - ROW_EVERY_SECONDS)
    return max(beat, beat if node.echo is None else node.echo)


def _shortest(nodes: Sequence[Seen]) -> float:
    return min(_silence(node) for node in nodes)
