"""What is wrong or worth knowing about a trtllm profile: the domain's rules, and what only the rows know."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _
from pydantic import ValidationError

from apps.core.exceptions import Finding, InvalidInput
from apps.engines import requests
from apps.engines.domain.trtllm import rules, rules_quantization
from apps.engines.domain.trtllm.compose import Composed, compose
from apps.engines.domain.trtllm.flag import parse_version
from apps.engines.frozen import choose_toolchain, freeze_trtllm
from apps.engines.models import BuildProfile, QuantizationProfile
from apps.fleet.models import Toolchain
from apps.registry.models import Checkpoint

# Folder that stands for an attempt's own in previews.
WORK = "/work"


@dataclass(frozen=True, slots=True)
class Offer:
    """A recipe that a toolchain of a node can do."""

    recipe: str
    node: str
    toolchain: str
    release: str


def offers() -> list[Offer]:
    """What the nodes' probes found: each recipe with where it can be done."""
    rows = Toolchain.objects.select_related("node").order_by("node__node_id", "name")
    return [
        Offer(recipe, str(row.node), row.name, row.release)
        for row in rows
        for recipe in row.recipes
        if recipe in BuildProfile.Recipe.values
    ]


def composed_of(profile: BuildProfile) -> Composed:
    """The steps and findings of a profile, saved or not, on the toolchain that it would get; nothing is written."""
    try:
        spec = freeze_trtllm(profile)
        request = spec.request.model_copy(update={"recipe": spec.recipe})
        found = compose(request, WORK, requests.model_facts(profile.checkpoint))
    except ValidationError as error:
        finding = _invalid(error)
        return Composed("", (), (finding,))
    except InvalidInput as error:
        finding = Finding(error.code, "error", error.sentence, error.field, error.remedy)
        return Composed("", (), (finding,))
    more = (*found.findings, *_of_rows(profile))
    steps = () if any(finding.severity == "error" for finding in more) else found.steps
    return Composed(found.recipe, steps, more)


def quantization_findings(profile: QuantizationProfile) -> list[Finding]:
    """Findings about a quantization profile, saved or not, and about every build profile that uses it."""
    try:
        quantization = requests.quantization_of(profile)
    except ValidationError as error:
        return [_invalid(error)]
    release = parse_version(requests.NEWEST_RELEASE)
    found = [
        *rules.check_options("quantize", quantization.options, release),
        *rules_quantization.check(quantization),
    ]
    if profile._state.adding:
        return found
    known = {(finding.id, finding.where) for finding in found}
    for user in profile.build_profiles.select_related("checkpoint"):
        user.quantization_profile = profile
        found += [
            Finding(
                finding.id,
                finding.severity,
                _("Build profile %(name)s, which uses it: %(why)s")
                % {"name": user.name, "why": finding.message},
                finding.where if finding.where.startswith("quantization") else "",
                finding.remedy,
            )
            for finding in composed_of(user).findings
            if finding.severity == "error" and (finding.id, finding.where) not in known
        ]
    return found


def _of_rows(profile: BuildProfile) -> list[Finding]:
    found: list[Finding] = []
    if profile.checkpoint.format == Checkpoint.Format.GGUF:
        found.append(
            Finding(
                "needs_hugging_face",
                "error",
                _("%(name)s is a GGUF file, which TensorRT-LLM does not read.")
                % {"name": profile.checkpoint.name},
                "checkpoint",
                _("Register the Hugging Face folder of the same model, or use the llama.cpp builder."),
            )
        )
    try:
        choose_toolchain(requests.request_of(profile), profile.tensorrt_llm)
    except InvalidInput as error:
        remedy = _("It can be saved, and built once a node can. %(remedy)s") % {"remedy": error.remedy}
        found.append(Finding(error.code, "warning", error.sentence, "recipe", remedy))
    return found


def _invalid(error: ValidationError) -> Finding:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return Finding("field_invalid", "error", f"{where}: {first['msg']}.", where, _("Correct the value."))
