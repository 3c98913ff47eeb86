"""What a trtllm profile would give: command lines, whether it fits, and what stands against it."""

from __future__ import annotations

import shlex
from typing import Any

from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _

from apps.accounts.service_admin import Preview, PreviewPart
from apps.core.exceptions import Finding, InflightError
from apps.engines import memory_plans, trtllm_checks
from apps.engines.domain.memory.gpus import find_gpu
from apps.engines.domain.memory.inputs import AUTO, PlanInput
from apps.engines.domain.trtllm.build_flags import BY_NAME
from apps.engines.domain.trtllm.compose import Composed
from apps.engines.models import BuildProfile, QuantizationProfile

# The planner's words for what the builder calls otherwise.
PLANNED = {
    "fp8": "fp8",
    "fp8_rowwise": "fp8",
    "nvfp4": "nvfp4",
    "int8_sq": "int8_sq",
    "int4_awq": "int4_awq",
    "w4a8_awq": "w4a8_awq",
    "qserve": "w4a8_awq",
    "int8_wo": "int8",
    "gptq_int8": "int8",
    "int4_wo": "int4_wo",
    "gptq": "int4_gptq",
    "awq": "int4_awq_zeros",
}
DTYPES = {"auto": AUTO, "float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}


def build_preview(profile: BuildProfile) -> Preview:
    """Parts for a build profile; empty before a checkpoint is chosen."""
    if not profile.checkpoint_id:
        return Preview()
    composed = trtllm_checks.composed_of(profile)
    parts = [PreviewPart(_("A build of this profile"), rows=_rows(profile, composed))]
    if composed.findings:
        parts.append(PreviewPart(_("Findings"), findings=composed.findings))
    parts.append(_memory(profile))
    if composed.steps:
        lines = [_step(step.name, step.env, step.argv) for step in composed.steps]
        not_run = _(
            "Not verified: no command here was run by TensorRT-LLM; the flags are those of its source."
        )
        parts.append(PreviewPart(_("Steps of a build"), text=not_run, code="\n\n".join(lines)))
    return Preview(tuple(parts))


def quantization_preview(profile: QuantizationProfile) -> Preview:
    """Parts for a quantization profile."""
    found = tuple(trtllm_checks.quantization_findings(profile))
    users = [row.name for row in profile.build_profiles.all()] if profile.pk else []
    rows = (
        (_("weights become"), profile.get_format_display()),
        (_("KV cache"), profile.get_kv_cache_dtype_display()),
        (_("made by"), _made_by(profile.format)),
        (_("used by"), ", ".join(users) or None),
    )
    parts = [PreviewPart(_("What this profile does"), rows=rows)]
    if found:
        parts.append(PreviewPart(_("Findings"), findings=found))
    return Preview(tuple(parts))


def _made_by(kind: str) -> str:
    if kind in ("fp8", "nvfp4", "int4_awq", "w4a8_awq"):
        return _("quantize.py, by calibration on a GPU")
    return _("convert_checkpoint.py, by calibration") if kind == "int8_sq" else "convert_checkpoint.py"


def _rows(profile: BuildProfile, composed: Composed) -> tuple[tuple[Any, Any], ...]:
    offers = [offer for offer in trtllm_checks.offers() if offer.recipe == composed.recipe]
    where = ", ".join(f"{offer.node}: {offer.toolchain} ({offer.release})" for offer in offers[:4])
    return (
        (_("checkpoint"), f"{profile.checkpoint.name} ({profile.checkpoint.state})"),
        (_("recipe"), composed.recipe or None),
        (_("offered by"), where or _("no node now")),
        (_("weights become"), profile.weight_format),
        (_("ranks"), profile.world_size),
    )


def _step(name: str, env: dict[str, str], argv: tuple[str, ...]) -> str:
    before = "".join(f"{key}={value} " for key, value in env.items())
    # A line for each flag reads better than one long one, and can be pasted as it is.
    words = [shlex.quote(word) for word in argv]
    lines: list[str] = []
    for word in words:
        if word.startswith("--") or not lines:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return f"# {name}\n{before}" + " \\\n  ".join(lines)


def _memory(profile: BuildProfile) -> PreviewPart:
    title = _("Memory plan")
    kind = find_gpu(profile.gpu) if profile.gpu else None
    if kind is None:
        return PreviewPart(title, text=_("Choose a GPU to see whether it fits."))
    try:
        found = memory_plans.answer(profile.checkpoint, plan_input(profile, kind.key))
    except InflightError as error:
        finding = Finding(error.code, "info", error.sentence, error.field, error.remedy)
        return PreviewPart(title, findings=(finding,))
    sizes = {segment.name: filesizeformat(segment.bytes) for segment in found.segments}
    rows = (
        (
            _("each GPU needs"),
            _("%(needs)s of %(has)s")
            % {"needs": filesizeformat(found.required), "has": filesizeformat(found.memory)},
        ),
        (_("weights"), sizes.get("weights")),
        (_("activations"), sizes.get("activations")),
        (_("KV cache"), f"{sizes.get('kv')}: {_grouped(found.kv_capacity_tokens)} " + _("tokens")),
        (_("sequences at full length"), _grouped(found.sequences)),
    )
    if found.fits:
        return PreviewPart(title, text=_("It fits."), rows=rows)
    finding = Finding(
        "plan_does_not_fit",
        "warning",
        _("It does not fit on %(gpu)s.") % {"gpu": kind.label},
        "target.gpu",
        _("Use more ranks, fewer bits, or smaller limits; the memory planner shows which."),
    )
    return PreviewPart(title, rows=rows, findings=(finding,))


def _grouped(number: int) -> str:
    """Thousands set apart by thin spaces."""
    return f"{number:,}".replace(",", "\u2009")


def plan_input(profile: BuildProfile, gpu: str) -> PlanInput:
    """The plan of the profile's limits on a GPU of the table."""
    flags = profile.options.get("build", {}) if isinstance(profile.options, dict) else {}
    quantization = profile.quantization_profile
    weights = PLANNED.get(profile.weight_format, DTYPES.get(profile.dtype, AUTO))
    kv = quantization.kv_cache_dtype if quantization and quantization.kv_cache_dtype != "auto" else "fp16"
    return PlanInput(
        gpu=gpu,
        tp=profile.tp,
        pp=profile.pp,
        ep=profile.moe_ep,
        weights=weights,
        kv=kv,
        max_batch_size=_number(flags, "max_batch_size"),
        max_seq_len=flags.get("max_seq_len") if isinstance(flags.get("max_seq_len"), int) else None,
        max_num_tokens=_number(flags, "max_num_tokens"),
        beam_width=_number(flags, "max_beam_width"),
        tokens_per_block=_number(flags, "tokens_per_block"),
        gather_context_logits=flags.get("gather_context_logits") is True,
    )


def _number(flags: dict[str, Any], name: str) -> int:
    value = flags.get(name)
    return value if isinstance(value, int) and value > 0 else int(BY_NAME[name].default)
