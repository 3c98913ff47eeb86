"""The frozen input of a build of either builder: read from its row, made from a profile and a toolchain that fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from apps.core.exceptions import InvalidInput
from apps.engines import requests
from apps.engines.domain.build_spec import BuildSpec
from apps.engines.domain.memory.gpus import GPUS, find_gpu
from apps.engines.domain.trtllm.compose import Composed, compose
from apps.engines.domain.trtllm.request import BuildRequest, Target
from apps.engines.domain.trtllm.spec import TrtllmSpec
from apps.engines.models import BuildProfile
from apps.fleet import states as fleet_states
from apps.fleet.domain.toolchain_report import CHECKPOINT, ENGINE, release_of
from apps.fleet.models import Toolchain
from apps.registry.domain.model_facts import ModelFacts

Spec = BuildSpec | TrtllmSpec
# Versions of a toolchain that decide an engine's bytes.
DECIDING = ("tensorrt_llm", "tensorrt", "cuda")


@dataclass(frozen=True, slots=True)
class Choice:
    """A toolchain for a request, with the recipe that it will do and the compute capability of its GPUs."""

    row: Toolchain
    recipe: str
    sm: int | None

    @property
    def versions(self) -> dict[str, str]:
        """What decides the engine's bytes."""
        known = {name: str(self.row.versions[name]) for name in DECIDING if self.row.versions.get(name)}
        return known if self.row.how == Toolchain.Kind.NATIVE else known | {"image": self.row.location}


def read_spec(raw: Mapping[str, Any]) -> Spec:
    """The specification of a build's row. Raises pydantic's ValidationError."""
    kind = TrtllmSpec if raw.get("builder") == "trtllm" else BuildSpec
    return kind.model_validate(raw)


def freeze_trtllm(profile: BuildProfile, *, must_fit: bool = False) -> TrtllmSpec:
    """The input of a build of a trtllm profile as it and the fleet stand.

    Raises InvalidInput `no_toolchain_fits` where `must_fit` and no node can build it; else what the profile itself
    names counts, for pages.
    """
    spec = requests.spec_of(profile)
    try:
        choice = choose_toolchain(spec.request, profile.tensorrt_llm)
    except InvalidInput:
        if must_fit:
            raise
        return spec
    return chosen(requests.spec_of(profile, sm=choice.sm, versions=choice.versions), choice)


def choose_again(spec: TrtllmSpec, release: str = "") -> TrtllmSpec:
    """The same request for the fleet as it stands now. Raises InvalidInput `no_toolchain_fits`."""
    choice = choose_toolchain(spec.request, release)
    return chosen(spec.model_copy(update={"sm": choice.sm, "versions": choice.versions}), choice)


def chosen(spec: TrtllmSpec, choice: Choice) -> TrtllmSpec:
    """The specification with what the toolchain really has in place of what was typed."""
    row = choice.row
    asked = spec.request.target
    target = Target(
        gpu=asked.gpu or gpu_of(choice.sm),
        toolchain=asked.toolchain,
        tensorrt_llm=row.release,
        examples=row.examples,
        python="python3",
        gpus=asked.gpus,
    )
    return spec.model_copy(
        update={
            "recipe": choice.recipe,
            "toolchain": row.name,
            "request": spec.request.model_copy(update={"target": target}),
        }
    )


def choose_toolchain(request: BuildRequest, release: str = "") -> Choice:
    """A toolchain of a ready node that can do the request: this host's first, then the newest release.

    `release` is TensorRT-LLM's where the profile names one.

    Raises InvalidInput `no_toolchain_fits` that says of each why not.
    """
    rows = Toolchain.objects.select_related("node").filter(
        node__state=fleet_states.READY, node__cordoned=False
    )
    ordered = sorted(
        rows,
        key=lambda row: (
            row.node.node_id == settings.INFLIGHT_NODE_ID,
            release_of(row.release) or (0, 0),
            row.release,
        ),
        reverse=True,
    )
    reasons = []
    for row in ordered:
        found = consider(row, request, release)
        if isinstance(found, Choice):
            return found
        reasons.append(f"{row.name}: {found}")
    if not reasons:
        sentence = _("No node has a TensorRT-LLM toolchain.")
        remedy = _("Write a toolchains file on a GPU node (docs/trtllm-builds.md) and probe it again.")
    else:
        sentence = _("No toolchain fits. %(reasons)s") % {"reasons": " ".join(reasons)}
        remedy = _("Change what the profile asks for, or add a toolchain that has it.")
    raise InvalidInput("no_toolchain_fits", sentence, field="toolchain", remedy=remedy)


def consider(row: Toolchain, request: BuildRequest, release: str = "") -> Choice | str:
    """The choice of this toolchain, or why it does not fit."""
    target = request.target
    if target.toolchain and row.name != target.toolchain:
        return _("the profile names %(name)s.") % {"name": target.toolchain}
    if release and row.release != release:
        return _("it has TensorRT-LLM %(has)s, asked is %(release)s.") % {
            "has": row.release or "-",
            "release": release,
        }
    if not row.recipes:
        return row.problem or _("it can build nothing.")
    recipe = _recipe(row, request.recipe)
    if recipe is None:
        return row.problem or _("it cannot do the recipe %(recipe)s.") % {"recipe": request.recipe}
    named = find_gpu(target.gpu) if target.gpu else None
    if named is not None and named.sm not in row.sms:
        return _("its GPUs are SM %(has)s, asked is %(gpu)s (SM %(sm)s).") % {
            "has": ", ".join(map(str, row.sms)) or "-",
            "gpu": target.gpu,
            "sm": named.sm,
        }
    sm = named.sm if named is not None else (row.sms[-1] if row.sms else None)
    return Choice(row, recipe, sm)


def compose_spec(spec: TrtllmSpec, work: str, facts: ModelFacts | None) -> Composed:
    """The steps of the recipe that was chosen, working in the folder `work`. Raises InvalidInput."""
    recipe = spec.request.recipe if spec.recipe == "auto" else spec.recipe
    return compose(spec.request.model_copy(update={"recipe": recipe}), work, facts)


def gpu_of(sm: int | None) -> str:
    """A GPU of the table with this compute capability, for rules that ask for one; empty where there is none."""
    return next((gpu.key for gpu in GPUS if gpu.sm == sm), "")


def _recipe(row: Toolchain, asked: str) -> str | None:
    wanted = (ENGINE, CHECKPOINT) if asked == "auto" else (asked,)
    return next((recipe for recipe in wanted if recipe in row.recipes), None)
