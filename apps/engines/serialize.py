"""Build profiles, builds and engines as plain JSON values, for pages, API, command line and live topics."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from apps.engines import states
from apps.engines.models import Build, BuildProfile, Engine, QuantizationProfile


def build_profile_dict(profile: BuildProfile) -> dict[str, Any]:
    """One build profile; `checkpoint` is a name, `quantization` a weight type or a quantization profile's name."""
    return {
        "id": profile.pk,
        "name": profile.name,
        **build_profile_values(profile),
        "created_at": _iso(profile.created_at),
        "updated_at": _iso(profile.updated_at),
    }


def build_profile_values(profile: BuildProfile) -> dict[str, Any]:
    """What is configured of a build profile, as shapes.BuildProfileFields spells it."""
    trtllm = profile.builder == BuildProfile.Builder.TRTLLM
    quantization: str = profile.quantization
    if trtllm:
        quantization = profile.quantization_profile.name if profile.quantization_profile else "none"
    flags = profile.options if trtllm else {}
    return {
        "builder": profile.builder,
        "checkpoint": profile.checkpoint.name,
        "quantization": quantization,
        "options": {} if trtllm else profile.options,
        "recipe": profile.recipe,
        "dtype": profile.dtype,
        "parallel": {"tp": profile.tp, "pp": profile.pp, "cp": profile.cp, "moe_ep": profile.moe_ep},
        "target": {
            "gpu": profile.gpu,
            "gpus": profile.gpus,
            "tensorrt_llm": profile.tensorrt_llm,
            "toolchain": profile.toolchain,
        },
        "build": flags.get("build", {}),
        "convert": flags.get("convert", {}),
    }


def quantization_profile_dict(profile: QuantizationProfile) -> dict[str, Any]:
    """One quantization profile."""
    return {
        "id": profile.pk,
        "name": profile.name,
        **quantization_profile_values(profile),
        "created_at": _iso(profile.created_at),
        "updated_at": _iso(profile.updated_at),
    }


def quantization_profile_values(profile: QuantizationProfile) -> dict[str, Any]:
    """What is configured of a quantization profile, as shapes.QuantizationProfileFields spells it."""
    return {
        "format": profile.format,
        "kv_cache_dtype": profile.kv_cache_dtype,
        "calibration": {
            "dataset": profile.calib_dataset,
            "size": profile.calib_size,
            "max_seq_length": profile.calib_max_seq_length,
            "batch_size": profile.calib_batch_size,
        },
        "group_size": profile.group_size,
        "smoothquant": profile.smoothquant,
        "per_channel": profile.per_channel,
        "per_token": profile.per_token,
        "quantize_lm_head": profile.quantize_lm_head,
        "weights": profile.weights,
        "options": profile.options,
    }


def build_dict(build: Build) -> dict[str, Any]:
    """One build. `progress` is 0..1, `eta_seconds` and `rate_bytes_per_second` null where they cannot be told.

    `stages` is [{name, title, state, started_at, finished_at, argv, note}]; `actions` lists what may be done now:
    cancel, retry.
    """
    return {
        "id": build.pk,
        "number": build.number,
        "state": build.state,
        "tone": build.tone,
        "reason": build.reason or None,
        "sentence": build.sentence or None,
        "remedy": build.remedy or None,
        "version": build.version,
        "state_since": _iso(build.state_since),
        "profile": build.profile.name if build.profile else None,
        "checkpoint": build.checkpoint.name,
        "builder": build.spec.get("builder"),
        "quantization": build.spec.get("quantization"),
        "options": build.spec.get("options", {}),
        "fingerprint": build.fingerprint,
        "requested_by": build.requested_by.get_username() if build.requested_by else None,
        "engine": build.engine.fingerprint if build.engine else None,
        "reused": build.reused,
        "attempt": build.attempt,
        "retries": build.retries,
        "node": build.node.node_id if build.node else None,
        "slot": f"{build.gpu.device}{build.gpu.index}" if build.gpu else None,
        "placement": build.placement or None,
        "cancel_requested": build.cancel_requested_at is not None,
        "stages": build.stages,
        "progress": build.progress,
        "rate_bytes_per_second": build.rate_bytes_per_second,
        "eta_seconds": build.eta_seconds,
        "diagnosis": build.diagnosis,
        "has_log": bool(build.log_path),
        "created_at": _iso(build.created_at),
        "started_at": _iso(build.started_at),
        "finished_at": _iso(build.finished_at),
        "seconds": _seconds(build.started_at, build.finished_at),
        "actions": _actions(build),
    }


def engine_dict(engine: Engine) -> dict[str, Any]:
    """One engine with its manifest."""
    return {
        "id": engine.pk,
        "fingerprint": engine.fingerprint,
        "state": engine.state,
        "tone": engine.tone,
        "reason": engine.reason or None,
        "sentence": engine.sentence or None,
        "remedy": engine.remedy or None,
        "version": engine.version,
        "state_since": _iso(engine.state_since),
        "checkpoint": engine.checkpoint.name,
        "builder": engine.builder,
        "quantization": engine.quantization,
        "node": engine.node.node_id if engine.node else None,
        "path": engine.path,
        "size_bytes": engine.size_bytes,
        "manifest": engine.manifest,
        "created_at": _iso(engine.created_at),
    }


def _actions(build: Build) -> list[str]:
    if build.state in states.BUILD.active:
        return [] if build.cancel_requested_at else ["cancel"]
    return ["retry"] if build.state in {states.FAILED, states.CANCELLED} else []


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return (end - start).total_seconds() if start and end else None


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
