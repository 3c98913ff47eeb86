"""What each chart shows: keys of the one vocabulary, their scale on the page, the colour token of each line."""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from apps.telemetry.domain.vocabulary import BY_NAME


@dataclass(frozen=True, slots=True)
class Line:
    """One trace: `key` times `scale`, divided by `per` where that is set, in the colour of a chart token.

    `key` empty: the numerator is 1. A quotient is of the step's means, and absent where its divisor is zero.
    `optional` lines are left out where nothing in the range has a value for them; `limit` is drawn as a dotted line.
    """

    key: str
    name: str | Promise
    color: str = "--chart-1"
    scale: float = 1.0
    per: str = ""
    optional: bool = False
    limit: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of a sample that the line needs."""
        return tuple(key for key in (self.key, self.per) if key)

    @property
    def help(self) -> str:
        """Where the figures come from and what they cannot say, in the vocabulary's words."""
        known = [BY_NAME[key] for key in self.keys if key in BY_NAME]
        return "\n".join(f"{key.title}: {key.source}. {key.limits}".strip() for key in known)


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: title, unit and its lines. `most` fixes the top of the axis, for shares.

    `hint` says under the title what to do where nothing can be shown, `hint_url` where.
    """

    id: str
    title: str | Promise
    unit: str | Promise
    lines: tuple[Line, ...]
    most: float | None = None
    hint: str = ""
    hint_url: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Panels under one heading."""

    id: str
    title: str | Promise
    panels: tuple[Panel, ...]


_MIB, _GIB, _PERCENT, _MEGA = 1 / 1_048_576, 1 / 1_073_741_824, 100.0, 1e-6
_PER_SECOND = _("per second")

TOKENS = Panel(
    "tokens",
    _("Tokens"),
    _PER_SECOND,
    (
        Line("generated_tokens_per_second", _("generated")),
        Line("prompt_tokens_per_second", _("prompt"), "--chart-8"),
    ),
)
GENERATED = Panel("generated", _("Tokens"), _PER_SECOND, TOKENS.lines[:1])
REQUESTS = Panel(
    "requests",
    _("Requests"),
    _PER_SECOND,
    (
        Line("requests_per_second", _("finished")),
        Line("requests_accepted_per_second", _("accepted"), "--chart-8", optional=True),
    ),
)
ERRORS = Panel(
    "errors",
    _("Requests that did not end well"),
    _PER_SECOND,
    (
        Line("requests_failed_per_second", _("failed"), "--chart-7"),
        Line("requests_rejected_per_second", _("rejected"), "--chart-2"),
        Line("requests_cancelled_per_second", _("cancelled"), "--chart-8"),
    ),
)
SERVERS = Panel(
    "servers",
    _("Servers"),
    _("now"),
    (
        Line("targets", _("to scrape"), "--chart-8"),
        Line("targets_lost", _("not answering"), "--chart-7"),
        Line("engine_stale", _("with old figures"), "--chart-2", optional=True),
    ),
)
QUEUE = Panel(
    "queue",
    _("Requests"),
    _("now"),
    (
        Line("requests_running", _("running"), "--chart-3"),
        Line("requests_waiting", _("waiting"), "--chart-2"),
        Line("requests_pending", _("in Triton's queue"), "--chart-6", optional=True),
        Line("slots", _("slots"), "--chart-8", optional=True, limit=True),
    ),
)
TTFT = Panel("ttft", _("TTFT"), "ms", (Line("ttft_p50_ms", "p50"), Line("ttft_p99_ms", "p99", "--chart-4")))
ITL = Panel(
    "itl",
    _("Inter-token latency"),
    "ms",
    (
        Line("itl_p50_ms", "p50"),
        Line("itl_p99_ms", "p99", "--chart-4"),
        Line("tpot_p50_ms", _("TPOT p50"), "--chart-3", optional=True),
        Line("tpot_p99_ms", _("TPOT p99"), "--chart-2", optional=True),
    ),
)
E2E = Panel("e2e", _("End to end"), "ms", (Line("e2e_p50_ms", "p50"), Line("e2e_p99_ms", "p99", "--chart-4")))
QUEUE_TIME = Panel(
    "queue-time",
    _("Time in the queue"),
    "ms",
    (
        Line("queue_p50_ms", "p50"),
        Line("queue_p99_ms", "p99", "--chart-4"),
        Line("queue_mean_ms", _("mean"), "--chart-8", optional=True),
    ),
)
KV = Panel("kv", _("KV cache in use"), "%", (Line("kv_use", _("used"), "--chart-6", _PERCENT),), most=100)
KV_FULL = Panel(
    "kv",
    _("KV cache"),
    "%",
    (
        Line("kv_use", _("in use"), "--chart-6", _PERCENT),
        Line("cached_prompt_share", _("prompt from cache"), "--chart-3", _PERCENT),
        Line("kv_hit_rate", _("hit rate"), "--chart-1", _PERCENT, optional=True),
    ),
    most=100,
)
BATCH = Panel(
    "batch",
    _("Batch size as executed"),
    _("sequences"),
    (
        Line("batch_size_mean", _("mean"), "--chart-1"),
        Line("triton_batch_size_mean", _("formed by Triton"), "--chart-3", optional=True),
        Line("slots", _("slots"), "--chart-8", optional=True, limit=True),
    ),
)
CPU = Panel("cpu", "CPU", "%", (Line("cpu_use", _("in use"), "--chart-5", _PERCENT),), most=100)
CPU_FULL = replace(
    CPU,
    lines=(
        Line("cpu_use", _("these servers"), "--chart-5", _PERCENT),
        Line("host_cpu_use", _("whole host"), "--chart-8", _PERCENT, optional=True),
    ),
)
GPU = Panel("gpu", "GPU", "%", (Line("gpu_use", _("in use"), "--chart-5", _PERCENT),), most=100)
GPU_FULL = replace(
    GPU,
    lines=(
        Line("gpu_use", _("in use"), "--chart-5", _PERCENT),
        Line("gpu_memory_bandwidth_use", _("memory busy"), "--chart-6", _PERCENT, optional=True),
        Line("gpu_sm_active", _("SM active"), "--chart-3", _PERCENT, optional=True),
        Line("gpu_tensor_active", _("tensor cores"), "--chart-4", _PERCENT, optional=True),
    ),
)
MEMORY_CPU = Panel("memory", _("Memory"), "MiB", (Line("rss_bytes", _("resident"), "--chart-7", _MIB),))
MEMORY_GPU = Panel(
    "memory",
    _("GPU memory"),
    "GiB",
    (
        Line("gpu_memory_used_bytes", _("used"), "--chart-7", _GIB),
        Line("gpu_memory_total_bytes", _("in all"), "--chart-8", _GIB, optional=True, limit=True),
    ),
)
POWER = Panel(
    "power",
    _("GPU power"),
    "W",
    (
        Line("gpu_power_watts", _("drawn"), "--chart-2"),
        Line("gpu_power_limit_watts", _("limit"), "--chart-8", optional=True, limit=True),
    ),
)
TEMPERATURE = Panel(
    "temperature",
    _("GPU temperature"),
    "°C",
    (
        Line("gpu_temperature_celsius", "GPU", "--chart-2"),
        Line("gpu_memory_temperature_celsius", _("memory"), "--chart-6", optional=True),
    ),
)
CLOCKS = Panel(
    "clocks",
    _("GPU clocks"),
    "MHz",
    (
        Line("gpu_sm_clock_hertz", "SM", "--chart-1", _MEGA),
        Line("gpu_memory_clock_hertz", _("memory"), "--chart-6", _MEGA, optional=True),
        Line("gpu_sm_clock_max_hertz", _("highest SM"), "--chart-8", _MEGA, optional=True, limit=True),
    ),
)
FAULTS = Panel(
    "faults",
    _("GPU slowed down or at fault"),
    _("1: yes; errors as counted"),
    (
        Line("gpu_throttle_power", _("by power"), "--chart-5"),
        Line("gpu_throttle_thermal", _("by heat"), "--chart-2"),
        Line("gpu_throttle_hardware", _("by hardware"), "--chart-7"),
        Line("gpu_xid_errors", "Xid", "--chart-4", optional=True),
        Line("gpu_ecc_uncorrected", _("ECC not corrected"), "--chart-6", optional=True),
    ),
)
EFFICIENCY = Panel(
    "efficiency",
    _("Tokens per watt"),
    _("tokens/s per W"),
    (Line("generated_tokens_per_second", _("generated"), "--chart-3", per="gpu_power_watts"),),
)

GPU_PANELS = (GPU_FULL, MEMORY_GPU, POWER, TEMPERATURE, CLOCKS, FAULTS, EFFICIENCY)
CPU_PANELS = (CPU_FULL, MEMORY_CPU)


def cost(price_per_hour: float | None, missing: str, url: str) -> Panel:
    """Price of a million generated tokens at `price_per_hour` of all slots; `missing` says whose price is not known.

    price per second / tokens per second x 1e6. Null while no token is generated: an idle server has no such cost.
    """
    scale = (price_per_hour or 0.0) / 3600 * 1e6
    line = Line("", _("generated"), "--chart-2", scale, per="generated_tokens_per_second")
    return Panel(
        "cost",
        _("Cost of a million tokens"),
        _("at the price per hour"),
        (line,) if price_per_hour is not None else (),
        hint="" if price_per_hour is not None else missing,
        hint_url="" if price_per_hour is not None else url,
    )


def deployment_sections(gpu: bool, cost_panel: Panel) -> tuple[Section, ...]:
    """Charts of a deployment's page: the four golden signals, batching, what it runs on, what it costs."""
    return (
        Section("latency", _("Latency"), (TTFT, ITL, E2E, QUEUE_TIME)),
        Section("traffic", _("Traffic"), (REQUESTS, TOKENS)),
        Section("errors", _("Errors"), (ERRORS, SERVERS)),
        Section("saturation", _("Saturation"), (QUEUE, KV_FULL)),
        Section("batching", _("Batching"), (BATCH,)),
        Section("hardware", _("Hardware and cost"), (*(GPU_PANELS if gpu else CPU_PANELS), cost_panel)),
    )


def playground_panels(gpu: bool) -> tuple[Panel, ...]:
    """Rows beside a conversation, over one time axis."""
    queue = replace(QUEUE, lines=QUEUE.lines[:2])
    batch = replace(BATCH, title=_("Batch size"), lines=BATCH.lines[:1])
    return (GENERATED, queue, batch, TTFT, KV, GPU if gpu else CPU)


def fleet_panels() -> tuple[Panel, ...]:
    """Charts of all deployments together."""
    queue = replace(QUEUE, lines=QUEUE.lines[:2])
    return (REQUESTS, TOKENS, TTFT, queue, ERRORS, SERVERS)
