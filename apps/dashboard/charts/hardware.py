"""Charts of one node or one GPU: what the host or the device itself tells, whoever uses it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.translation import gettext_lazy as _

from apps.core.exceptions import InvalidInput
from apps.dashboard.charts import cards, ranges, source
from apps.dashboard.charts.panels import (
    CLOCKS,
    FAULTS,
    GPU_FULL,
    MEMORY_GPU,
    POWER,
    TEMPERATURE,
    Line,
    Panel,
)
from apps.telemetry import store
from apps.telemetry.history import Scope

_GIB, _MIB, _PERCENT = 1 / 1_073_741_824, 1 / 1_048_576, 100.0
# What a script that asks again gets at most; a page that was hidden for longer has a gap.
MOST_SECONDS = 900.0

PCIE = Panel(
    "pcie",
    "PCIe",
    _("MB per second"),
    (
        Line("gpu_pcie_sent_bytes_per_second", _("sent"), "--chart-1", 1e-6),
        Line("gpu_pcie_received_bytes_per_second", _("received"), "--chart-8", 1e-6),
    ),
)
GPU = (GPU_FULL, MEMORY_GPU, TEMPERATURE, POWER, CLOCKS, PCIE, FAULTS)
NODE = (
    Panel("cpu", "CPU", "%", (Line("host_cpu_use", _("in use"), "--chart-5", _PERCENT),), most=100),
    Panel(
        "memory",
        _("Memory"),
        "GiB",
        (
            Line("host_memory_used_bytes", _("used"), "--chart-7", _GIB),
            Line("host_memory_total_bytes", _("in all"), "--chart-8", _GIB, optional=True, limit=True),
        ),
    ),
    Panel(
        "shm",
        _("Shared memory"),
        "MiB",
        (
            Line("shm_used_bytes", _("used"), "--chart-6", _MIB),
            Line("shm_total_bytes", _("in all"), "--chart-8", _MIB, optional=True, limit=True),
        ),
    ),
)


def context(scope: Scope, shown: Sequence[Panel], query: Mapping[str, str], data_url: str) -> dict[str, Any]:
    """What `pieces/charts_bar.html`, the chart cards and their script need. Raises InvalidInput for a bad range."""
    now = time.time()
    chosen = ranges.parse(query, now)
    keys = cards.keys_of(shown)
    frame = source.frame(scope, chosen, keys)
    compare = source.compared(scope, chosen, keys)
    return {
        "chosen": chosen,
        "ranges": ranges.choices(chosen),
        "compared": ranges.compared_choices(chosen),
        "charts": [cards.line_card([panel], frame) for panel in shown],
        "charts_page": cards.page_spec(
            frame,
            now,
            chosen.seconds,
            "",
            fixed=None if chosen.live else [chosen.since, chosen.until],
            compare=compare.as_json() if compare else None,
            compare_name=chosen.compare,
            data_url=data_url,
            query=chosen.query,
        ),
    }


def data(scope: Scope, shown: Sequence[Panel], query: Mapping[str, str]) -> dict[str, Any]:
    """`?since=` (epoch seconds): samples after it; else a range in finer steps, as the script of charts asks."""
    keys = cards.keys_of(shown)
    if "since" in query:
        after = max(_seconds(query["since"]), time.time() - MOST_SECONDS)
        wanted = ("at", *keys)
        found = store.read(store.key_of(scope.kind, scope.id), after)
        return {"samples": [{key: sample.get(key) for key in wanted} for sample in found]}
    chosen = ranges.parse(query, time.time())
    compare = source.compared(scope, chosen, keys)
    frame = source.frame(scope, chosen, keys)
    return {"frame": frame.as_json(), "compare": compare.as_json() if compare else None, "cards": {}}


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e11:
        raise InvalidInput(
            "time_unreadable",
            _("“%(text)s” is no time.") % {"text": text[:40]},
            field="since",
            remedy=str(_("Write it as seconds since 1970.")),
        )
    return seconds
