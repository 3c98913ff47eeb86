"""A tuning's space out of its rows, what of it the memory plan refuses, and what its trials have said so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from django.utils.translation import gettext as _

from apps.core.exceptions import InflightError, InvalidInput
from apps.engines import memory_plans
from apps.engines import selectors as engines
from apps.engines.domain.memory.inputs import PlanInput
from apps.engines.models import BuildProfile
from apps.fleet.models import Gpu
from apps.loadtests import tuning_states as states
from apps.loadtests.domain import tuner_parameters, tuner_prior
from apps.loadtests.domain.scenario import Scenario
from apps.loadtests.domain.tuner_goals import Goals, State, Tried
from apps.loadtests.domain.tuner_parameters import BUILD, REPLICAS, settings_of
from apps.loadtests.domain.tuner_request import TuningFields
from apps.loadtests.domain.tuner_space import Config, Parameter, Space
from apps.loadtests.tuning_models import Trial, Tuning
from apps.loadtests.tuning_search import Budget, Search, bounds_of
from apps.serving import inputs as serving_inputs
from apps.serving import memory_verdict, trtllm_files
from apps.serving.domain.acting import EngineKind
from apps.serving.models import BatchingProfile, Deployment

# Two doublings beyond what will be under way: more slots than requests only cost memory.
BATCH_ROOM = 4


def goals_of(row: Tuning) -> Goals:
    """What it looks for."""
    return TuningFields.model_validate(row.request).goals()


def space_of(row: Tuning) -> Space:
    """What it may choose."""
    kind = cast(EngineKind, row.base["kind"])
    found = [Parameter(each["name"], tuple(each["values"]), each["ordered"]) for each in row.space]
    return Space(found, lambda config: tuner_parameters.idle(config, row.base["profile"], kind))


def search_of(row: Tuning) -> Search:
    """The search as far as it is; the trials are told to it with each question."""
    request = TuningFields.model_validate(row.request)
    present = tuner_parameters.present_config(
        [each["name"] for each in row.space], row.base["profile"], row.base["replicas"], row.base["build"]
    )
    scenario = Scenario.model_validate(row.scenario)
    wanted, slo = tuner_prior.under_way(scenario), bounds_of(scenario)
    return Search(space_of(row), request.goals(), row.seed, Budget(request.trials), present, wanted, slo)


def tried(row: Tuning) -> list[Tried]:
    """Every trial that has ended."""
    said: dict[str, State] = {
        states.SUCCEEDED: "measured",
        states.INFEASIBLE: "infeasible",
        states.FAILED: "failed",
    }
    return [
        Tried(each.number, each.configuration, said[each.state], each.figures or {}, each.sentence)
        for each in Trial.objects.filter(tuning=row, state__in=said).order_by("number")
    ]


# ---------------------------------------------------------------------- beginning


def base_of(deployment: Deployment) -> dict[str, Any]:
    """What a tuning begins from, as the row keeps it."""
    profile = deployment.batching
    values = {key: getattr(profile, key) for key in serving_inputs.PROFILE_FIELDS if key != "name"}
    return {
        "kind": trtllm_files.kind_of_profile(profile),
        "profile": values,
        "replicas": deployment.replicas,
        "build": deployment.build_profile.name if deployment.build_profile else "",
        "placement": deployment.placement,
    }


def resolve(deployment: Deployment, request: TuningFields, scenario: Scenario) -> list[Parameter]:
    """The parameters with their values, each checked by the profile's own validators. Raises InvalidInput."""
    base = base_of(deployment)
    kind = cast(EngineKind, base["kind"])
    wanted = tuner_prior.under_way(scenario)
    asked = dict(request.parameters)
    if BUILD in asked and asked[BUILD] is None:
        asked[BUILD] = builds_of(deployment)
    names = list(asked) or list(tuner_parameters.DEFAULTS[kind])
    usable = [name for name in names if tuner_parameters.known(name)]
    present = tuner_parameters.present_config(usable, base["profile"], base["replicas"], base["build"])
    found = tuner_parameters.parameters(asked, kind, present, max(2, int(BATCH_ROOM * wanted)))
    for parameter in found:
        for value in parameter.values:
            _check(deployment, parameter.name, value, base["profile"])
    if all(len(parameter.values) == 1 for parameter in found):
        raise InvalidInput(
            "nothing_to_choose",
            _("Every parameter has one value, so there is nothing to choose."),
            field="parameters",
            remedy=_("Give a parameter several values, or leave parameters out for the usual ones."),
        )
    return found


def builds_of(deployment: Deployment) -> list[str]:
    """Names of the build profiles that it could serve instead: quantisations and variants of its checkpoint that have
    an engine of the same kind."""
    own = deployment.build_profile
    if own is None:
        return []
    rows = BuildProfile.objects.filter(checkpoint=deployment.checkpoint, builder=own.builder).order_by("name")
    return [row.name for row in rows if row.pk == own.pk or engines.newest_engine(row) is not None]


def _check(deployment: Deployment, name: str, value: Any, base: Mapping[str, Any]) -> None:
    where = f"parameters.{name}"
    if name == BUILD:
        _check_build(deployment, str(value), where)
        return
    if name == REPLICAS:
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 64:
            raise InvalidInput(
                "replicas", _("Instances are 1 to 64."), field=where, remedy=_("Give whole numbers.")
            )
        return
    try:
        # A row that is never saved: its validators say whether the value may stand in a profile.
        serving_inputs.assign(
            BatchingProfile(),
            {"name": "trial", **settings_of({name: value}, base)},
            serving_inputs.PROFILE_FIELDS,
        )
    except InflightError as error:
        raise InvalidInput(
            "parameter_values",
            _("%(name)s cannot be %(value)s: %(why)s")
            % {"name": name, "value": value, "why": error.sentence},
            field=where,
            remedy=error.remedy,
        ) from error


def _check_build(deployment: Deployment, name: str, where: str) -> None:
    found = BuildProfile.objects.filter(name=name).first()
    if found is None or found.checkpoint_id != (deployment.checkpoint.pk if deployment.checkpoint else None):
        raise InvalidInput(
            "build_unknown",
            _("%(name)s is no build profile of the deployment's checkpoint.") % {"name": name},
            field=where,
            remedy=_("Name build profiles of the same checkpoint, as f16 and q8."),
        )
    if engines.newest_engine(found) is None:
        raise InvalidInput(
            "build_without_engine",
            _("%(name)s has no engine yet.") % {"name": name},
            field=where,
            remedy=_("Build it first: a tuning does not wait for builds."),
        )


# ---------------------------------------------------------------------- what the plan says


def why_infeasible(row: Tuning, config: Config) -> str:
    """What the memory plan has against a configuration; empty where it fits, or where no plan can be made."""
    deployment = row.deployment
    if deployment is None or deployment.checkpoint is None:
        return ""
    values = settings_of(config, row.base["profile"])
    profile = BatchingProfile(**{"name": "trial", **values})
    build = BuildProfile.objects.filter(name=str(config.get(BUILD) or row.base["build"])).first()
    kind = cast(EngineKind, row.base["kind"])
    slot = _slot(kind)
    if slot is None:
        return ""
    given = memory_verdict.plan_input(profile, kind, build)
    if kind == "llamacpp" and build is not None and build.quantization:
        given["weights"] = build.quantization.lower()
    try:
        answer = memory_plans.answer(
            deployment.checkpoint, PlanInput(gpu=memory_plans.slot_name(slot), **given)
        )
    except InflightError:
        # What cannot be planned is found out by trying.
        return ""
    replicas = int(config.get(REPLICAS) or row.base["replicas"])
    together = replicas if kind == "llamacpp" else 1
    if answer.fits and answer.required * together <= answer.memory:
        return ""
    return _("%(replicas)d x %(needed)s are needed, %(slot)s has %(memory)s.") % {
        "replicas": together,
        "needed": _gib(answer.required),
        "slot": slot,
        "memory": _gib(answer.memory),
    }


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _slot(kind: EngineKind) -> Gpu | None:
    rows = Gpu.objects.select_related("node").order_by("node__node_id", "index")
    return (rows if kind == "llamacpp" else rows.exclude(device=Gpu.Device.CPU)).first()
