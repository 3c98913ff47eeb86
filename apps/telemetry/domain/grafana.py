"""Grafana dashboards over our own /metrics, made of the vocabulary: titles, units and names cannot drift apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apps.telemetry.domain.exported import name_of
from apps.telemetry.domain.vocabulary import BY_NAME

# The vocabulary's units in Grafana's words.
_UNITS = {
    "1": "short",
    "1/s": "reqps",
    "ms": "ms",
    "s": "s",
    "By": "bytes",
    "By/s": "Bps",
    "W": "watt",
    "J": "joule",
    "Cel": "celsius",
    "Hz": "hertz",
    "1/J": "short",
}
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: its title and the keys that it shows."""

    title: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard of one kind of object. `variable`: whether one object is chosen by name, or all are shown."""

    uid: str
    title: str
    scope: str
    panels: tuple[Panel, ...]
    variable: bool = True


_DEPLOYMENT = (
    Panel("Requests running and waiting", ("requests_running", "requests_waiting", "requests_pending")),
    Panel("Requests per second", ("requests_per_second", "requests_accepted_per_second")),
    Panel(
        "Bad ends per second",
        ("requests_failed_per_second", "requests_rejected_per_second", "requests_cancelled_per_second"),
    ),
    Panel("Tokens per second", ("generated_tokens_per_second", "prompt_tokens_per_second")),
    Panel("Time to first token", ("ttft_p50_ms", "ttft_p90_ms", "ttft_p99_ms")),
    Panel("Between two tokens", ("itl_p50_ms", "itl_p99_ms", "tpot_p50_ms", "tpot_p99_ms")),
    Panel("End to end", ("e2e_p50_ms", "e2e_p90_ms", "e2e_p99_ms")),
    Panel("In the queue", ("queue_p50_ms", "queue_p99_ms", "queue_mean_ms")),
    Panel("Batch size as executed", ("batch_size_mean", "triton_batch_size_mean", "slots_busy", "slots")),
    Panel("KV cache", ("kv_use", "kv_hit_rate", "cached_prompt_share")),
    Panel("KV tokens", ("kv_tokens_used", "kv_tokens_capacity")),
    Panel("GPU use", ("gpu_use", "gpu_memory_bandwidth_use")),
    Panel("GPU memory", ("gpu_memory_used_bytes", "gpu_memory_total_bytes")),
    Panel("Tokens per second per watt", ("tokens_per_watt",)),
    Panel("CPU", ("cpu_use",)),
    Panel("Servers", ("targets", "targets_lost", "engine_stale")),
)
_FLEET = (
    Panel("Requests running and waiting", ("requests_running", "requests_waiting")),
    Panel("Requests per second", ("requests_per_second", "requests_failed_per_second")),
    Panel("Tokens per second", ("generated_tokens_per_second", "prompt_tokens_per_second")),
    Panel("Time to first token", ("ttft_p50_ms", "ttft_p99_ms")),
    Panel("GPU power", ("gpu_power_watts", "gpu_power_limit_watts")),
    Panel("Servers", ("targets", "targets_lost")),
)
_GPU = (
    Panel("Use", ("gpu_use", "gpu_memory_bandwidth_use", "gpu_sm_active", "gpu_tensor_active")),
    Panel("Memory", ("gpu_memory_used_bytes", "gpu_memory_total_bytes")),
    Panel("Power", ("gpu_power_watts", "gpu_power_limit_watts")),
    Panel("Temperature", ("gpu_temperature_celsius", "gpu_memory_temperature_celsius")),
    Panel("Clocks", ("gpu_sm_clock_hertz", "gpu_sm_clock_max_hertz", "gpu_memory_clock_hertz")),
    Panel("Slowed down", ("gpu_throttle_power", "gpu_throttle_thermal", "gpu_throttle_hardware")),
    Panel("Errors", ("gpu_ecc_corrected", "gpu_ecc_uncorrected", "gpu_xid_errors", "gpu_xid_last")),
    Panel("PCIe", ("gpu_pcie_sent_bytes_per_second", "gpu_pcie_received_bytes_per_second")),
)
_NODE = (
    Panel("CPU", ("host_cpu_use",)),
    Panel("Memory", ("host_memory_used_bytes", "host_memory_total_bytes")),
    Panel("Shared memory", ("shm_used_bytes", "shm_total_bytes")),
    Panel("GPU power", ("gpu_power_watts", "gpu_power_limit_watts")),
)

DASHBOARDS: tuple[Dashboard, ...] = (
    Dashboard("inflight-fleet", "Inflight: fleet", "fleet", _FLEET, variable=False),
    Dashboard("inflight-deployment", "Inflight: deployment", "deployment", _DEPLOYMENT),
    Dashboard("inflight-instance", "Inflight: server", "instance", _DEPLOYMENT),
    Dashboard("inflight-gpu", "Inflight: GPU", "gpu", _GPU),
    Dashboard("inflight-node", "Inflight: host", "node", _NODE),
)


def render(dashboard: Dashboard) -> dict[str, Any]:
    """Grafana's JSON model of a dashboard (schema 39)."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["inflight"],
        "timezone": "browser",
        "editable": True,
        "schemaVersion": 39,
        "version": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables(dashboard)},
        "panels": [_panel(number, panel, dashboard) for number, panel in enumerate(dashboard.panels)],
    }


def expressions(document: dict[str, Any]) -> list[str]:
    """Every PromQL expression of a rendered dashboard."""
    found = [target["expr"] for panel in document["panels"] for target in panel["targets"]]
    return found + [each["query"] for each in document["templating"]["list"] if each["type"] == "query"]


def _variables(dashboard: Dashboard) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    ]
    if dashboard.variable:
        first = name_of(dashboard.panels[0].keys[0])
        found.append(
            {
                "name": "name",
                "label": dashboard.title.partition(": ")[2],
                "type": "query",
                "datasource": _SOURCE,
                "query": f'label_values({first}{{scope="{dashboard.scope}"}}, name)',
                "refresh": 2,
                "sort": 1,
            }
        )
    return found


def _panel(number: int, panel: Panel, dashboard: Dashboard) -> dict[str, Any]:
    keys = [BY_NAME[name] for name in panel.keys]
    chosen = ',name="$name"' if dashboard.variable else ""
    unit = keys[0].unit
    ratio = all(key.kind == "ratio" and key.unit == "1" for key in keys)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": _limits([key.limits for key in keys]),
        "datasource": _SOURCE,
        "gridPos": {"h": 8, "w": 12, "x": number % 2 * 12, "y": number // 2 * 8},
        "fieldConfig": {
            "defaults": {
                "unit": "percentunit" if ratio else _UNITS[unit],
                "min": 0,
                # A second that nobody told is a gap, never a line through it.
                "custom": {"spanNulls": False, "lineWidth": 2, "showPoints": "never"},
            },
            "overrides": [],
        },
        "options": {"tooltip": {"mode": "multi"}, "legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "expr": f'{name_of(key)}{{scope="{dashboard.scope}"{chosen}}}',
                "legendFormat": key.title,
                "datasource": _SOURCE,
            }
            for place, key in enumerate(keys)
        ],
    }


def _limits(texts: Sequence[str]) -> str:
    return " ".join(dict.fromkeys(text for text in texts if text))
