"""The memory bar, and predicted against measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django import template
from django.utils.functional import Promise
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from apps.core.exceptions import InflightError
from apps.dashboard import formats
from apps.dashboard.planner import address
from apps.engines import learning
from apps.engines.domain.memory.inputs import PlanInput
from apps.engines.memory_plans import Segment, answer, slot_name
from apps.engines.models import Build, MemoryMeasurement
from apps.fleet.models import Gpu
from apps.registry.models import Checkpoint

register = template.Library()
# The defaults of a batching profile.
USUAL_BATCH, USUAL_LENGTH = 16, 1024
# Rows of a few loads of one engine.
MOST = 40

LABELS: dict[str, Promise] = {
    "weights": _("Weights"),
    "kv": _("KV cache"),
    "activations": _("Activations"),
    "overhead": _("Overhead"),
    "free": _("Free"),
}
TERMS: dict[str, Promise] = {
    "weights": _("Weights"),
    "repacked": _("Weights in the processor's layout"),
    "kv": _("KV cache"),
    "kv_tokens": _("KV cache, tokens"),
    "activations": _("Compute buffers"),
    "output": _("Logits"),
    "process": _("All processes"),
}
SOURCES: dict[str, Promise] = {"log": _("engine's log"), "proc": _("/proc"), "file": _("file")}


@dataclass(frozen=True, slots=True)
class Part:
    """A segment as the bar draws it; `width` in hundredths of the bar."""

    name: str
    label: Promise
    bytes: int
    low: int
    high: int
    width: float

    @property
    def range(self) -> bool:
        """Whether the figure is an estimate whose range can be seen."""
        return str(formats.memory(self.low)) != str(formats.memory(self.high))


@register.inclusion_tag("pieces/memory_bar.html")
def memory_bar(segments: Iterable[Segment], total: int) -> dict[str, Any]:
    """Stacked bar of a card's memory (bytes). Where the parts are more than the card has, a line marks its end."""
    parts = list(segments)
    used = sum(part.bytes for part in parts)
    whole = max(used, total, 1)
    drawn = [
        Part(
            part.name,
            LABELS[part.name],
            part.bytes,
            part.low,
            part.high,
            round(100 * part.bytes / whole, 3),
        )
        for part in parts
    ]
    words = ", ".join(f"{part.label} {formats.memory(part.bytes)}" for part in drawn)
    return {
        "parts": drawn,
        "total": total,
        "limit": round(100 * total / whole, 3) if used > total else None,
        "label": f"{words} {_t('of')} {formats.memory(total)}",
    }


@register.inclusion_tag("pieces/build_plan.html")
def build_plan(checkpoint: Checkpoint, quantization: str) -> dict[str, Any]:
    """What serving the engine of a build would take of this fleet's first slot, with the usual batching."""
    slot = Gpu.objects.select_related("node").order_by("node__node_id", "index").first()
    if slot is None or checkpoint.format != Checkpoint.Format.GGUF:
        return {}
    given = PlanInput(
        gpu=slot_name(slot),
        weights=quantization.lower(),
        max_batch_size=USUAL_BATCH,
        max_seq_len=USUAL_LENGTH,
    )
    try:
        found = answer(checkpoint, given)
    except InflightError as error:
        return {"refused": f"{error.sentence} {error.remedy}"}
    return {"plan": found, "slot": slot, "address": address(checkpoint, given)}


@register.inclusion_tag("pieces/measurements.html")
def instance_memory(uid: str) -> dict[str, Any]:
    """Predicted against measured memory of an instance's last load."""
    return _table(list(learning.measurements(instance=uid)[:MOST]))


@register.inclusion_tag("pieces/measurements.html")
def build_memory(build: Build) -> dict[str, Any]:
    """The same of a build, and of the newest load of the engine that it made."""
    made = list(learning.measurements(build=build)[:MOST])
    loads = learning.measurements(engine=build.engine) if build.engine else None
    newest = list(loads.filter(event=MemoryMeasurement.Event.LOAD)[:MOST]) if loads is not None else []
    first = newest[0] if newest else None
    same = [row for row in newest if first and (row.subject, row.attempt) == (first.subject, first.attempt)]
    return {**_table(same), "written": [_row(row) for row in made]}


def _table(rows: list[MemoryMeasurement]) -> dict[str, Any]:
    """One line a term; an instance that was started again shows its last attempt."""
    order = {term: place for place, term in enumerate(TERMS)}
    last = max((row.attempt for row in rows), default=0)
    found = sorted(
        (row for row in rows if row.attempt == last), key=lambda row: order.get(row.term, len(order))
    )
    return {
        "rows": [_row(row) for row in found],
        "version": found[0].version if found else "",
        "gpu_kind": found[0].gpu_kind if found else "",
    }


def _row(row: MemoryMeasurement) -> dict[str, Any]:
    tokens = row.term == "kv_tokens"
    write = formats.grouped if tokens else formats.memory
    return {
        "term": TERMS.get(row.term, row.term),
        "predicted": write(row.predicted),
        "range": _range(row) if not tokens else "",
        "measured": write(row.measured),
        "error": "" if row.error is None else _signed(row.error),
        "off": row.error is not None and abs(row.error) > 0.05 and not _within(row),
        "source": SOURCES.get(row.source, row.source),
    }


def _within(row: MemoryMeasurement) -> bool:
    low, high = row.predicted_low, row.predicted_high
    return low is not None and high is not None and low <= row.measured <= high


def _range(row: MemoryMeasurement) -> str:
    low, high = row.predicted_low, row.predicted_high
    if low is None or high is None or low == high:
        return ""
    return f"{formats.memory(low)} {formats.ABSENT} {formats.memory(high)}"


def _signed(share: float) -> str:
    sign = "" if abs(share) < 0.0005 else "+" if share > 0 else formats.MINUS
    return f"{sign}{formats.percent(min(abs(share), 99.0), 1)}"
