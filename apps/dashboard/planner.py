"""What the planner's page offers to choose from, and how it reads its own address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict
from django.utils.translation import gettext as _

from apps.core.exceptions import InflightError, InvalidInput
from apps.dashboard import formats
from apps.dashboard.sparklines import Tile
from apps.engines.domain.memory.formats import kv_choices, weight_choices
from apps.engines.domain.memory.gpus import GPUS
from apps.engines.domain.memory.inputs import AUTO, PlanInput, parse_input
from apps.engines.memory_plans import Answer, slot_memory, slot_name
from apps.fleet.models import Gpu
from apps.registry.models import Checkpoint
from apps.registry.states import READY

DEFAULT_GPU = "h100-sxm"
SIZES = (1, 2, 4, 8, 16)
FLAGS = ("chunked_context", "windows", "gather_context_logits", "parallel_embedding")
# Formats of whole GGUF files that the planner offers; the rest are known to the API and the command line.
OFFERED_GGUF = ("q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0")


@dataclass(frozen=True, slots=True)
class Choice:
    """One option of a list."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class Slider:
    """A number with a slider; `scale` is log or linear."""

    name: str
    label: str
    value: str
    low: str
    high: str
    step: str
    scale: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Choices:
    """All lists of the form, and what is chosen."""

    checkpoints: list[Choice]
    slots: list[Choice]
    gpus: list[Choice]
    weights: list[Choice]
    gguf: list[Choice]
    kv: list[Choice]
    sizes: tuple[int, ...]
    sliders: list[Slider]


def checkpoints() -> list[Checkpoint]:
    """Checkpoints that can be planned."""
    return list(Checkpoint.objects.filter(state=READY).defer("chat_template").order_by("name"))


def chosen(query: QueryDict, rows: list[Checkpoint]) -> Checkpoint | None:
    """The checkpoint of the address, else the first one."""
    name = query.get("checkpoint", "")
    return next((row for row in rows if row.name == name), rows[0] if rows and not name else None)


def read(query: QueryDict) -> PlanInput:
    """The plan that an address asks for. Raises InvalidInput."""
    known = PlanInput.model_fields
    values: dict[str, Any] = {
        name: value.strip()
        for name, value in query.items()
        if name in known and isinstance(value, str) and value.strip()
    }
    for name in FLAGS:
        if name in query:
            values[name] = query.get(name) in ("on", "true", "1")
    values.setdefault("gpu", "" if values.get("gpu_memory") else default_gpu())
    return parse_input(values)


def default_gpu() -> str:
    """The first slot of this fleet, else a usual GPU."""
    slot = next(iter(_slots()), None)
    return slot_name(slot) if slot is not None else DEFAULT_GPU


def address(checkpoint: Checkpoint, given: PlanInput) -> str:
    """Query of a plan: what differs from the defaults, so that a link stays short."""
    plain = PlanInput()
    values: dict[str, Any] = {"checkpoint": checkpoint.name}
    for name in PlanInput.model_fields:
        value = getattr(given, name)
        if value != getattr(plain, name) or name == "gpu":
            values[name] = ("on" if value else "off") if isinstance(value, bool) else value
    return urlencode({name: value for name, value in values.items() if value not in (None, "")})


def choices(rows: list[Checkpoint], given: PlanInput) -> Choices:
    """Lists and sliders of the form."""
    wide = weight_choices()
    return Choices(
        checkpoints=[Choice(row.name, row.name) for row in rows],
        slots=[Choice(slot_name(slot), _slot_label(slot)) for slot in _slots()],
        gpus=[Choice(gpu.key, f"{gpu.label} (SM {gpu.sm})") for gpu in GPUS],
        weights=[
            Choice(AUTO, _("as it is stored")),
            *(Choice(form.name, form.label) for form in wide if not form.label.startswith("GGUF")),
        ],
        gguf=[Choice(name, name.upper()) for name in OFFERED_GGUF],
        kv=[Choice(form.name, form.label) for form in kv_choices() if form.name != "fp32"],
        sizes=SIZES,
        sliders=_sliders(given),
    )


def _slots() -> list[Gpu]:
    return list(Gpu.objects.select_related("node").order_by("node__node_id", "index")[:100])


def _slot_label(slot: Gpu) -> str:
    memory = slot_memory(slot)
    size = f", {formats.memory(memory)}" if memory else ""
    return f"{slot.node} {slot.device}{slot.index}: {slot.product}{size}"


def _sliders(given: PlanInput) -> list[Slider]:
    return [
        Slider("max_batch_size", _("Sequences at once"), str(given.max_batch_size), "1", "4096", "1", "log"),
        Slider(
            "max_seq_len",
            _("Longest sequence"),
            str(given.max_seq_len or ""),
            "64",
            "1048576",
            "1",
            "log",
            _("tokens"),
        ),
        Slider(
            "max_num_tokens",
            _("Tokens of one step"),
            str(given.max_num_tokens),
            "16",
            "131072",
            "1",
            "log",
            _("tokens"),
        ),
        Slider(
            "kv_fraction",
            _("Share of the rest for the cache"),
            f"{given.kv_fraction:g}",
            "0.05",
            "0.98",
            "0.01",
            "linear",
        ),
    ]


def tiles(found: Answer) -> list[Tile]:
    """The figures that answer first."""
    fewest = found.fewest
    spread = f"tp {fewest.tp}, pp {fewest.pp}" if fewest and fewest.gpus > 1 else ""
    return [
        Tile(_("Sequences of full length"), formats.grouped(found.max_concurrency if found.fits else 0)),
        Tile(_("Cache capacity"), formats.grouped(found.kv_capacity_tokens), _("tokens")),
        Tile(_("Cache of a token"), *formats.memory(found.kv_bytes_per_token)),
        Tile(_("Largest batch"), formats.grouped(found.largest_batch)),
        Tile(_("Longest that fits"), formats.grouped(found.longest), _("tokens")),
        Tile(_("Fewest GPUs"), formats.grouped(fewest.gpus) if fewest else formats.ABSENT, spread),
    ]


def refusal(error: InflightError) -> list[dict[str, str]]:
    """Findings of an input that was refused."""
    if isinstance(error, InvalidInput) and error.findings:
        return [finding.as_dict() for finding in error.findings]
    return [
        {
            "id": error.code,
            "severity": "error",
            "message": error.sentence,
            "where": error.field,
            "remedy": error.remedy,
        }
    ]
