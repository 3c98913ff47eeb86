"""Facts that follow from others: which side is newer, how much is allowed."""

from __future__ import annotations

from collections.abc import Callable

from apps.diagnosis.domain.rule import Fact

Facts = dict[str, Fact]


def _versions(facts: Facts) -> Facts:
    for runtime, engine in (("runtime_tag", "engine_tag"), ("runtime_version", "engine_version")):
        here, there = facts.get(runtime), facts.get(engine)
        if here is not None and there is not None and here != there:
            return {"engine_is": "newer" if _numbers(there) > _numbers(here) else "older"}
    return {}


def _numbers(version: Fact) -> tuple[int, ...]:
    return tuple(int(part) for part in str(version).split(".") if part.isdigit())


def _request(facts: Facts) -> Facts:
    length, limit = facts.get("input"), facts.get("limit")
    if not isinstance(length, int) or not isinstance(limit, int):
        return {}
    return {"max_new_allowed": max(0, limit - length - 1)}


def _world(facts: Facts) -> Facts:
    tp, pp = facts.get("tp"), facts.get("pp")
    return {"right_world_size": tp * pp} if isinstance(tp, int) and isinstance(pp, int) else {}


DERIVED: dict[str, Callable[[Facts], Facts]] = {
    "tensorrt_version_mismatch": _versions,
    "request_exceeds_max_seq_len": _request,
    "mpi_world_size": _world,
}
