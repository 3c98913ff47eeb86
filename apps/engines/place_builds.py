"""Which slot a build goes to and why, or what it waits for. The rules are in fleet.domain.placement."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from apps.engines import states
from apps.engines.models import Build
from apps.fleet import capacity
from apps.fleet.domain.placement import Choice, Host, Refusal, Request, Slot, choose
from apps.fleet.models import GpuLease, Toolchain
from apps.fleet.policy import CPU_SHARES


class Look:
    """The fleet as it was read for several builds: four queries for all of them, kept up to date by what is sent."""

    def __init__(self) -> None:
        self._hosts: list[Host] | None = None
        self._builds: Counter[int] = Counter()

    def hosts(self) -> list[Host]:
        """The hosts, read at the first call."""
        if self._hosts is None:
            self._hosts = capacity.hosts()
            active = Build.objects.filter(state__in=states.BUILD.active, gpu__isnull=False)
            self._builds = Counter(active.order_by().values_list("gpu_id", flat=True))
        return self._hosts

    def builds_on(self, gpu: int, but: Build) -> int:
        """Queued and running builds of a slot, without one."""
        return self._builds[gpu] - (1 if but.gpu_id == gpu else 0)

    def sent(self, build: Build, gpu: int) -> None:
        """A build was sent to a slot; `build` is as it was before."""
        if build.gpu_id is not None:
            self._builds[build.gpu_id] -= 1
        self._builds[gpu] += 1


@dataclass(frozen=True, slots=True)
class Place:
    """A slot for a build (its row's id) and why. `busy`: it is full now, so the build waits there."""

    gpu: int
    why: str
    busy: bool = False


def place_for(build: Build, look: Look) -> Place | Refusal:
    """Where a queued build goes now; where all that would do is taken, the place where it waits."""
    request, hosts = request_of(build), look.hosts()
    at = _where_it_was(build, request, hosts)
    if at is not None:
        return at
    builds = {slot.gpu: look.builds_on(slot.gpu, build) for host in hosts for slot in host.slots}
    # A worker takes one build at a time, whatever share of its slot is free.
    found = choose(
        request, [_with(host, lambda slot: slot.free if not builds[slot.gpu] else 0) for host in hosts]
    )
    if isinstance(found, Choice):
        return Place(found.slots[0].gpu, found.why)
    if not found.full:
        return found
    # The shortest queue among the slots that would do.
    for most in sorted(set(builds.values())):
        waiting = choose(request, [_with(host, _up_to(builds, most)) for host in hosts])
        if isinstance(waiting, Choice):
            return Place(waiting.slots[0].gpu, found.sentence, True)
    return found


def _where_it_was(build: Build, request: Request, hosts: Sequence[Host]) -> Place | None:
    """The slot that it had, which has its kept stages, if it may still go there."""
    if build.gpu_id is None:
        return None
    there = [
        replace(host, slots=tuple(slot for slot in host.slots if slot.gpu == build.gpu_id)) for host in hosts
    ]
    found = choose(
        replace(request, gpus=1), [_with(host, lambda slot: slot.total) for host in there if host.slots]
    )
    if not isinstance(found, Choice):
        return None
    kept = str((build.placement or {}).get("why") or found.why)
    return Place(build.gpu_id, kept)


def _up_to(builds: Mapping[int, int], most: int) -> Callable[[Slot], int]:
    """All of a slot with at most so many builds, nothing of the others."""
    return lambda slot: slot.total if builds[slot.gpu] <= most else 0


def _with(host: Host, free: Callable[[Slot], int]) -> Host:
    return replace(host, slots=tuple(replace(slot, free=free(slot)) for slot in host.slots))


def request_of(build: Build) -> Request:
    """What the build's frozen specification asks of a place.

    More GPUs than it must have at once are taken when it is claimed, where they are free then.
    """
    spec = build.spec
    request = Request(purpose="build", cpu_share=CPU_SHARES[GpuLease.Purpose.BUILD])
    if spec.get("builder") != "trtllm":
        return request
    parallel = (spec.get("request") or {}).get("parallel") or {}
    world = math.prod(int(parallel.get(name) or 1) for name in ("tp", "pp", "cp"))
    sm = spec.get("sm")
    return replace(
        request,
        device="gpu",
        gpus=world if spec.get("recipe") == "checkpoint" else 1,
        sms=frozenset({int(sm)}) if sm is not None else frozenset(),
        mig="never" if world > 1 else "any",
        only_on=toolchain_nodes(spec),
    )


def toolchain_nodes(spec: dict[str, Any]) -> frozenset[int]:
    """Nodes that have the toolchain that was chosen, of the same release."""
    wanted = (spec.get("versions") or {}).get("tensorrt_llm")
    rows = Toolchain.objects.filter(name=spec.get("toolchain", ""))
    return frozenset(
        row.node_id
        for row in rows
        if spec.get("recipe") in row.recipes and (wanted is None or row.release == wanted)
    )


def kept(place: Place) -> dict[str, Any]:
    """The choice as the build's row keeps it."""
    return {"why": place.why}


def kept_waits(refusal: Refusal) -> dict[str, Any]:
    """Why it waits, as the build's row keeps it."""
    return {"waits": [wait.as_dict() for wait in refusal.waits]}
