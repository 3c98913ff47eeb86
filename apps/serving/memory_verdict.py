"""What the memory plan says of a batching profile: for each checkpoint served with it, on a slot of this fleet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from apps.core.exceptions import Finding, InflightError
from apps.engines import memory_plans
from apps.engines.domain.memory.inputs import PlanInput
from apps.engines.models import BuildProfile
from apps.fleet.models import Gpu
from apps.registry import states as checkpoint_states
from apps.registry.models import Checkpoint
from apps.serving import selectors, trtllm_files
from apps.serving.domain.acting import EngineKind
from apps.serving.models import BatchingProfile

# A preview is no list.
SHOWN = 6
# Where the fleet has no GPU, plans of TensorRT-LLM are for the one that most have.
USUAL_GPU = "h100-sxm"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One plan. `fits` null where none could be made; `sentence` says what is needed of what is there, or why not."""

    checkpoint: str
    target: str
    fits: bool | None
    sentence: str
    findings: tuple[Finding, ...] = ()


def verdicts(profile: BatchingProfile) -> list[Verdict]:
    """Plans for what is deployed with the profile, else for checkpoints that are ready."""
    kind = trtllm_files.kind_of_profile(profile)
    slot = _slot(kind)
    return [_verdict(profile, kind, checkpoint, build, slot) for checkpoint, build in _served(profile)]


def _served(profile: BatchingProfile) -> Iterator[tuple[Checkpoint, BuildProfile | None]]:
    found: dict[int, tuple[Checkpoint, BuildProfile | None]] = {}
    if profile.pk:
        for row in selectors.deployments().filter(batching=profile.pk, build_profile__isnull=False)[:SHOWN]:
            build = row.build_profile
            if build is not None:
                found.setdefault(build.checkpoint_id, (build.checkpoint, build))
    if not found:
        ready = Checkpoint.objects.filter(state=checkpoint_states.READY).order_by("name")[:SHOWN]
        found = {row.pk: (row, None) for row in ready}
    yield from found.values()


def _slot(kind: EngineKind) -> Gpu | None:
    """A slot that could serve it; null where the fleet has none."""
    rows = Gpu.objects.select_related("node").order_by("node__node_id", "index")
    if kind != "llamacpp":
        rows = rows.exclude(device=Gpu.Device.CPU)
    return rows.first()


def _verdict(
    profile: BatchingProfile,
    kind: EngineKind,
    checkpoint: Checkpoint,
    build: BuildProfile | None,
    slot: Gpu | None,
) -> Verdict:
    target = str(slot) if slot is not None else USUAL_GPU
    if slot is None and kind == "llamacpp":
        return Verdict(checkpoint.name, "-", None, _("No node has registered its slots yet."))
    try:
        given = PlanInput(
            gpu=memory_plans.slot_name(slot) if slot else USUAL_GPU, **plan_input(profile, kind, build)
        )
        found = memory_plans.answer(checkpoint, given)
    except InflightError as error:
        return Verdict(checkpoint.name, target, None, error.sentence)
    words = _("needs %(needed)s of %(memory)s; the cache holds %(tokens)s tokens") % {
        "needed": _gib(found.required),
        "memory": _gib(found.memory),
        "tokens": f"{found.kv_capacity_tokens:,}",
    }
    findings = tuple(item for item in found.findings if item.severity != "info")
    return Verdict(checkpoint.name, target, found.fits, words, findings)


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def plan_input(profile: BatchingProfile, kind: EngineKind, build: BuildProfile | None) -> dict[str, Any]:
    """The profile's part of a plan's input; what is not set keeps the plan's default."""
    slots = 1 if profile.strategy == BatchingProfile.Strategy.NONE else profile.max_batch_size
    found: dict[str, Any] = {"max_batch_size": slots, "max_seq_len": profile.max_seq_len}
    if kind == "llamacpp":
        return found
    chosen = profile.trtllm or {}
    names = {
        "kv_fraction": "kv_cache_free_gpu_mem_fraction",
        "kv_max_tokens": "max_tokens_in_paged_kv_cache",
        "beam_width": "max_beam_width",
        "chunked_context": "enable_chunked_context",
        "max_num_tokens": "max_num_tokens",
    }
    found |= {name: chosen[key] for name, key in names.items() if key in chosen}
    if build is not None:
        found |= {"tp": build.tp, "pp": build.pp}
        fixed = trtllm_files.limits(build)
        built = {"max_num_tokens": fixed.max_num_tokens, "max_seq_len": fixed.max_seq_len}
        found |= {key: value for key, value in built.items() if kind == "trtllm" and value}
    return found
