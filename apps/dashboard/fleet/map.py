"""The map of the fleet: every node with its slots, as much of each as there is room for.

Up to ROOMY nodes each slot is a card with its figures and holders; up to COMPACT a square with one figure; beyond
that a bar, so that 500 nodes of 8 GPUs are one look. What a bar or square says is chosen by `?by=`: height tells
the share, the colour only repeats it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from django.db.models import Case, IntegerField, QuerySet, Value, When
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.core.exceptions import InvalidInput
from apps.dashboard import formats
from apps.dashboard.fleet import holders
from apps.dashboard.fleet.holders import Lease
from apps.fleet import states
from apps.fleet.models import Gpu, Node
from apps.fleet.policy import PROTOCOL_VERSION, SKEW_TOLD_SECONDS
from apps.telemetry import store
from apps.telemetry.domain.derive import Sample

ROOMY, COMPACT, MOST = 8, 60, 500
# A reading that is older says nothing about now; the scraper's longest period is 10 s.
NOW_SECONDS = 15.0
# A bar is full at this temperature: GPUs slow themselves down between 83 and 95 degrees.
FULL_CELSIUS = 95.0
# From here on a bar is drawn as warm, and as hot.
WARM, HOT = 0.75, 0.9

Density = Literal["roomy", "compact", "dense"]
By = Literal["held", "use", "memory", "temperature", "power"]
BY: dict[By, str | Promise] = {
    "held": gettext_lazy("Held"),
    "use": gettext_lazy("GPU use"),
    "memory": gettext_lazy("Memory"),
    "temperature": gettext_lazy("Temperature"),
    "power": gettext_lazy("Power"),
}
# Nodes in trouble come first: a map is for finding them.
_ORDER = (states.LOST, states.SUSPECT, states.JOINING, states.MAINTENANCE, states.READY)


@dataclass(slots=True)
class Slot:
    """A slot now: `held` in hundredths; `sample` is what telemetry said, None where it said nothing."""

    gpu: Gpu
    held: int = 0
    purpose: str = ""
    leases: list[Lease] = field(default_factory=list)
    sample: Sample | None = None
    by: By = "held"

    @property
    def name(self) -> str:
        """gpu0, cpu0."""
        return f"{self.gpu.device}{self.gpu.index}"

    @property
    def free(self) -> int:
        """Hundredths that nobody holds."""
        return max(0, self.gpu.total_share - self.held)

    def told(self, key: str) -> float | None:
        """A figure of the sample."""
        return None if self.sample is None else self.sample.get(key)

    @property
    def used_bytes(self) -> float | None:
        """GPU memory in use."""
        return self.told("gpu_memory_used_bytes")

    @property
    def total_bytes(self) -> float | None:
        """GPU memory in all."""
        return self.told("gpu_memory_total_bytes") or self.gpu.memory_bytes

    def share(self, by: By) -> float | None:
        """0..1 of what is asked about; None where nobody told it."""
        if by == "held":
            return min(1.0, self.held / self.gpu.total_share) if self.gpu.total_share else None
        if by == "use":
            return self.told("gpu_use")
        if by == "temperature":
            value = self.told("gpu_temperature_celsius")
            return None if value is None else min(1.0, value / FULL_CELSIUS)
        if by == "memory":
            return _quotient(self.used_bytes, self.total_bytes)
        return _quotient(self.told("gpu_power_watts"), self.told("gpu_power_limit_watts"))

    @property
    def percent(self) -> int:
        """Length of the bar; what is not 0 is seen."""
        share = self.share(self.by)
        return 0 if not share else max(6, round(share * 100))

    @property
    def words(self) -> str:
        """What the bar says, with its unit."""
        key = {"temperature": "gpu_temperature_celsius", "power": "gpu_power_watts"}.get(self.by)
        if key is None:
            return formats.percent(self.share(self.by))
        value = self.told(key)
        unit = "°C" if self.by == "temperature" else "W"
        return formats.ABSENT if value is None else f"{value:.0f}{formats.THIN}{unit}"

    @property
    def level(self) -> str:
        """Which colour the bar has: by purpose where it is about leases, else by how near it is to its end."""
        share = self.share(self.by)
        if share is None:
            return "unknown"
        if self.by == "held":
            return self.purpose or "free"
        return "hot" if share >= HOT else "warm" if share >= WARM else "cool"

    @property
    def figures(self) -> str:
        """What the slot tells, in one line."""
        told = [
            (self.told("gpu_use"), 100.0, "%"),
            (self.told("gpu_temperature_celsius"), 1.0, "°C"),
            (self.told("gpu_power_watts"), 1.0, "W"),
        ]
        return "  ".join(
            f"{value * scale:.0f}{formats.THIN}{unit}" for value, scale, unit in told if value is not None
        )

    @property
    def title(self) -> str:
        """The slot in words."""
        if self.gpu.condition != Gpu.Condition.OK:
            state = self.gpu.get_condition_display()
        else:
            state = _("free") if not self.held else _("%(held)s %% held") % {"held": self.held}
        return ", ".join(filter(None, [self.name, self.gpu.product, str(state), self.figures]))


@dataclass(slots=True)
class Host:
    """A node of the map."""

    node: Node
    slots: list[Slot] = field(default_factory=list)

    @property
    def free(self) -> int:
        """Slots that nobody holds any of."""
        return sum(1 for slot in self.slots if not slot.held)

    @property
    def of_another_release(self) -> bool:
        """Its workers speak another protocol, so it drains."""
        return self.node.protocol_version != PROTOCOL_VERSION

    @property
    def clock_is_off(self) -> bool:
        """Far enough from the database's clock to tell a person."""
        skew = self.node.clock_skew_seconds
        return skew is not None and abs(skew) > SKEW_TOLD_SECONDS

    @property
    def warnings(self) -> list[str]:
        """What its state does not say and a person should know."""
        said = []
        if self.of_another_release:
            said.append(
                _(
                    "Its workers speak protocol %(theirs)d, the control plane %(ours)d. It takes no new work and its "
                    "servers move away; update that host, or the control plane."
                )
                % {"theirs": self.node.protocol_version, "ours": PROTOCOL_VERSION}
            )
        if self.clock_is_off:
            said.append(
                _(
                    "Its clock is %(seconds).1f s off the database's. Nothing is decided by it, but the times in its "
                    "logs are wrong; set up time synchronisation there."
                )
                % {"seconds": self.node.clock_skew_seconds}
            )
        return said

    @property
    def summary(self) -> str:
        """The node in words, for its title and for those who cannot see the bars."""
        said = [
            _("%(free)s of %(all)s slots free") % {"free": self.free, "all": len(self.slots)},
            *([_("cordoned")] if self.node.cordoned else []),
            *([_("another release")] if self.of_another_release else []),
            *([_("clock is off")] if self.clock_is_off else []),
        ]
        hottest = max(
            (value for slot in self.slots if (value := slot.told("gpu_temperature_celsius"))), default=0
        )
        if hottest:
            said.append(_("hottest %(value).0f °C") % {"value": hottest})
        return ", ".join(said)


@dataclass(frozen=True, slots=True)
class Totals:
    """The row above the map. Sums are None where no slot told its part."""

    nodes: int
    troubled: int
    slots: int
    free: int
    used_bytes: float | None
    total_bytes: float | None
    watts: float | None
    hottest: float | None


def density(count: int) -> Density:
    """How much of each node there is room for."""
    return "roomy" if count <= ROOMY else "compact" if count <= COMPACT else "dense"


def chosen_by(text: str) -> By:
    """What bars say, out of the address. Raises InvalidInput for another word."""
    wanted = text.strip() or "held"
    if wanted not in BY:
        raise InvalidInput(
            "by_unknown",
            _("A map cannot show “%(text)s”.") % {"text": wanted[:40]},
            field="by",
            remedy=_("Use one of %(known)s.") % {"known": ", ".join(BY)},
        )
    return wanted


def ordered(rows: QuerySet[Node]) -> QuerySet[Node]:
    """Nodes in trouble first, then by name."""
    place = Case(
        *(When(state=state, then=Value(at)) for at, state in enumerate(_ORDER)),
        default=Value(len(_ORDER)),
        output_field=IntegerField(),
    )
    return rows.order_by(place, "hostname", "node_id")


def hosts(nodes: Sequence[Node], by: By) -> list[Host]:
    """The nodes with their slots. At most six queries and one question to Redis, however many nodes.

    Samples are read for every slot where there is room to show them or where `by` asks for them, holders' titles
    only where they are shown.
    """
    shown = density(len(nodes))
    found = {node.pk: Host(node) for node in nodes}
    slots: dict[int, Slot] = {}
    for gpu in Gpu.objects.filter(node__in=list(found)).order_by("node_id", "index"):
        gpu.node = found[gpu.node_id].node
        slots[gpu.pk] = Slot(gpu, by=by)
        found[gpu.node_id].slots.append(slots[gpu.pk])
    _hold(slots, titled=shown == "roomy")
    if by != "held" or shown != "dense":
        _read(list(slots.values()))
    return list(found.values())


def _hold(slots: dict[int, Slot], titled: bool) -> None:
    if titled:
        for gpu_id, leases in holders.by_slot(slots).items():
            slots[gpu_id].leases = leases
            for lease in leases:
                _count(slots[gpu_id], lease.row.share, lease.row.purpose)
        return
    rows = holders.open_leases().order_by().values_list("gpu_id", "share", "purpose")
    for gpu_id, share, purpose in rows:
        if gpu_id in slots:
            _count(slots[gpu_id], share, purpose)


def _count(slot: Slot, share: int, purpose: str) -> None:
    slot.held += share
    slot.purpose = slot.purpose or purpose


def _read(slots: list[Slot]) -> None:
    gpus = [slot for slot in slots if slot.gpu.device == Gpu.Device.GPU]
    if not gpus:
        return
    samples = store.newest_of([store.gpu_key(slot.gpu.pk) for slot in gpus], NOW_SECONDS)
    for slot, sample in zip(gpus, samples, strict=True):
        slot.sample = sample


def totals(found: Sequence[Host], nodes: int, troubled: int) -> Totals:
    """Sums over the shown hosts; `nodes` and `troubled` count all that fit the filter."""
    slots = [slot for host in found for slot in host.slots]
    gpus = [slot for slot in slots if slot.sample is not None]
    hot = [value for slot in gpus if (value := slot.told("gpu_temperature_celsius")) is not None]
    return Totals(
        nodes=nodes,
        troubled=troubled,
        slots=len(slots),
        free=sum(host.free for host in found),
        used_bytes=_sum([slot.used_bytes for slot in gpus]),
        total_bytes=_sum([slot.total_bytes for slot in gpus]),
        watts=_sum([slot.told("gpu_power_watts") for slot in gpus]),
        hottest=max(hot, default=None),
    )


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _quotient(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else min(1.0, part / whole)
