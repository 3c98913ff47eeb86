"""What a trtllm build profile asks for, as the domain's BuildRequest and as the frozen input of a build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from apps.engines.domain.memory.gpus import find_gpu
from apps.engines.domain.trtllm.request import BuildRequest, Calibration, Parallel, Quantization, Target
from apps.engines.domain.trtllm.spec import TrtllmSpec
from apps.engines.models import BuildProfile, QuantizationProfile
from apps.registry.domain.model_facts import ModelFacts
from apps.registry.models import Checkpoint

# The release that rules are checked against where neither profile nor toolchain names one.
NEWEST_RELEASE = "1.2.1"


def quantization_of(profile: QuantizationProfile | None) -> Quantization:
    """The domain's quantization; the defaults where there is no profile."""
    if profile is None:
        return Quantization()
    return Quantization(
        format=profile.format,
        kv_cache=profile.kv_cache_dtype,
        calibration=Calibration(
            dataset=profile.calib_dataset,
            size=profile.calib_size,
            max_seq_length=profile.calib_max_seq_length,
            batch_size=profile.calib_batch_size,
        ),
        group_size=profile.group_size,
        smoothquant=profile.smoothquant,
        per_channel=profile.per_channel,
        per_token=profile.per_token,
        quantize_lm_head=profile.quantize_lm_head,
        weights=profile.weights,
        options=profile.options,
    )


def request_of(profile: BuildProfile, config: Mapping[str, Any] | None = None) -> BuildRequest:
    """What the profile asks for, saved or not. `config` is the checkpoint's config.json where it is at hand.

    Raises pydantic's ValidationError for values that no form lets through.
    """
    options = profile.options if isinstance(profile.options, dict) else {}
    return BuildRequest(
        name=profile.name,
        model=profile.checkpoint.path,
        config=config,
        recipe=profile.recipe,
        dtype=profile.dtype,
        quantization=quantization_of(profile.quantization_profile),
        parallel=Parallel(tp=profile.tp, pp=profile.pp, cp=profile.cp, moe_ep=profile.moe_ep),
        target=Target(
            gpu=profile.gpu,
            toolchain=profile.toolchain,
            tensorrt_llm=profile.tensorrt_llm or NEWEST_RELEASE,
            gpus=profile.gpus,
        ),
        build=options.get("build", {}),
        convert=options.get("convert", {}),
    )


def spec_of(
    profile: BuildProfile,
    config: Mapping[str, Any] | None = None,
    sm: int | None = None,
    versions: Mapping[str, str] | None = None,
) -> TrtllmSpec:
    """The frozen input of a build of the profile as it stands.

    `sm` and `versions` are those of the GPU and toolchain that were chosen; left out, what the profile itself names
    counts, so that the same profile always gives the same fingerprint before one is chosen.
    """
    request = request_of(profile, config)
    named = find_gpu(profile.gpu)
    return TrtllmSpec(
        quantization=request.quantization.format,
        checkpoint=profile.checkpoint.name,
        path=profile.checkpoint.path,
        source=source_of(profile.checkpoint),
        recipe=request.recipe,
        toolchain=profile.toolchain,
        request=request,
        sm=sm if sm is not None else named.sm if named else None,
        versions=dict(versions) if versions is not None else _asked_versions(profile),
    )


def model_facts(checkpoint: Checkpoint) -> ModelFacts | None:
    """What a checkpoint's headers say, as the domain reads it; None where it was not inspected yet."""
    known = {key: value for key, value in checkpoint.facts.items() if key in ModelFacts.model_fields}
    if not known.get("family") and not known.get("num_layers"):
        return None
    try:
        return ModelFacts.model_validate(known)
    except ValidationError:
        return None


def source_of(checkpoint: Checkpoint) -> dict[str, str | int]:
    """What identifies a checkpoint's content: its hash where it was taken, else size, time and header's hash."""
    return {"sha256": checkpoint.sha256} if checkpoint.sha256 else dict(checkpoint.facts.get("identity", {}))


def _asked_versions(profile: BuildProfile) -> dict[str, str]:
    return {"tensorrt_llm": profile.tensorrt_llm} if profile.tensorrt_llm else {}
