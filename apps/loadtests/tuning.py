"""Tunings are started, cancelled, applied and deleted by people. tuning_steps.py moves them on."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext as _
from pydantic import ValidationError

from apps.accounts.roles import Action, require
from apps.core import audit, clock
from apps.core.exceptions import InfrastructureError, InvalidInput, NotFound, NotPossibleNow
from apps.core.jobs import ask_to_end, create_numbered, delete_audited, refuse_unended
from apps.core.refused import refused_fields
from apps.core.transitions import amend, announce
from apps.loadtests import inputs, limits, runs, tuning_servers, tuning_space, tuning_steps
from apps.loadtests import tuning_states as states
from apps.loadtests.domain import tuner_goals
from apps.loadtests.domain.batching_study import scenario_of
from apps.loadtests.domain.scenario import Scenario
from apps.loadtests.domain.tuner_parameters import BUILD, REPLICAS, settings_of
from apps.loadtests.domain.tuner_request import TuningFields
from apps.loadtests.domain.tuner_space import Parameter, key_of
from apps.loadtests.tuning_models import Trial, Tuning
from apps.serving import selectors as serving
from apps.serving import services as serving_services
from apps.serving.domain.acting import EngineKind
from apps.serving.models import BatchingProfile, Deployment

# Of a trial where nobody gives a scenario: longer than a turn of the batching study's, as there are no repeats.
WARM_UP_SECONDS, MEASURED_SECONDS = 6.0, 30.0


def start_tuning(actor: User | str, request: Any, *, allow_production: bool = False) -> Tuning:
    """Start a search for a better configuration of a deployment; `request` is a TuningFields or its plain values.

    Every trial gets servers of its own beside what serves, which is not touched. Raises InvalidInput naming the
    field, NotPossibleNow where there is no engine or no room.
    """
    require(actor, Action.OPERATE)
    require(actor, Action.CONFIGURE)
    asked = parse(request)
    deployment = serving.deployment(asked.deployment)
    if deployment.build_profile is None:
        raise NotPossibleNow(
            "no_engine",
            _("%(name)s serves an imported repository, whose batching is its own.")
            % {"name": deployment.name},
            field="deployment",
            remedy=_("Choose a deployment that serves an engine."),
        )
    scenario = _scenario(asked, deployment)
    limits.check(actor, scenario, deployment, allow_production)
    space = tuning_space.resolve(deployment, asked, scenario)
    base = tuning_space.base_of(deployment)
    most = max((max(each.values) for each in space if each.name == REPLICAS), default=deployment.replicas)
    share = tuning_servers.share_for(int(most), cast(EngineKind, base["kind"]))
    row = _create(
        actor,
        deployment=deployment,
        target=deployment.name,
        request=asked.model_dump(mode="json"),
        scenario=scenario.model_dump(mode="json"),
        space=[_plain(each) for each in space],
        base=base,
        share=share,
        seed=asked.seed if asked.seed is not None else secrets.randbelow(runs.SEEDS),
        allow_production=allow_production,
    )
    transaction.on_commit(lambda: tuning_steps.advance(row))
    return row


def cancel_tuning(actor: User | str, row: Tuning) -> Tuning:
    """Cancel a tuning: the run that goes on stops, its servers go; what was measured is kept and may be applied."""
    require(actor, Action.OPERATE)
    ask_to_end(actor, row, [states.RUNNING], "tuning.cancel", ended=_has_ended)
    tuning_steps.advance(row)
    return row


def _has_ended(row: Tuning) -> NotPossibleNow:
    return NotPossibleNow("tuning_ended", _is(row), remedy=_("There is nothing to cancel."))


def _is(row: Tuning) -> str:
    return _("Tuning #%(number)s is %(state)s.") % {"number": row.number, "state": row.state}


def delete_tuning(actor: User | str, row: Tuning) -> None:
    """Delete a tuning that has ended, with its trials, their runs and records."""
    require(actor, Action.OPERATE)
    refuse_unended(row, "tuning_not_ended", _is(row), _("Cancel it first."))
    for trial in row.trials.select_related("run__study"):
        if trial.run is not None:
            runs.delete_run(actor, trial.run)
    delete_audited(actor, row)


def apply_tuning(actor: User | str, row: Tuning, number: int | None = None) -> Deployment:
    """Make a trial's configuration the deployment's (default: the winner's) and deploy it by a rolling update.

    It gets a batching profile of its own; the profile and the revision before stay, to roll back to. Raises
    NotPossibleNow where the trial did not keep the constraints, or is what the deployment has already.
    """
    require(actor, Action.CONFIGURE)
    require(actor, Action.OPERATE)
    trial = _applicable(row, number)
    deployment = row.deployment
    if deployment is None:
        raise NotPossibleNow(
            "deployment_gone",
            _("The deployment %(name)s is gone.") % {"name": row.target},
            remedy=_("Make it again with the configuration that the trial shows."),
        )
    wanted = _wanted(row, trial, deployment)
    before = deployment.active_revision
    with transaction.atomic():
        values = {**settings_of(trial.configuration, tuning_space.base_of(deployment)["profile"])}
        name = _free_name(f"{deployment.name}-tuned-{row.number}-{trial.number}")
        profile = serving_services.save_batching_profile(actor, {**values, "name": name})
        deployment = serving_services.save_deployment(actor, {**wanted, "batching": profile}, deployment)
        amend(
            row,
            applied_trial=trial.number,
            applied_at=clock.now(),
            applied_before=before.number if before is not None else None,
        )
        audit.record(
            actor,
            "deployment.tuning_applied",
            deployment,
            sentence=row.report[0] if row.report else "",
            detail={
                "tuning": row.number,
                "trial": trial.number,
                "configuration": trial.configuration,
                "figures": trial.figures,
                "revision_before": before.number if before is not None else None,
            },
        )
    return serving_services.deploy(actor, deployment)


# ---------------------------------------------------------------------- reading


def tuning(number: int) -> Tuning:
    """One tuning by its number. Raises NotFound."""
    found = Tuning.objects.select_related("deployment", "requested_by").filter(number=number).first()
    if found is None:
        raise NotFound(
            "tuning_unknown",
            _("There is no tuning #%(number)s.") % {"number": number},
            remedy=_("See the list of load tests."),
        )
    return found


def parse(request: Any) -> TuningFields:
    """A checked request. Raises InvalidInput with a finding for each refused field."""
    try:
        return request if isinstance(request, TuningFields) else TuningFields.model_validate(request)
    except ValidationError as error:
        raise refused_fields(error, _("docs/tuning.md lists the fields of a tuning.")) from error


# ---------------------------------------------------------------------- inside


def _scenario(asked: TuningFields, deployment: Deployment) -> Scenario:
    if asked.scenario is None:
        slots = deployment.batching.max_batch_size
        found = inputs.scenario(scenario_of(deployment.name, slots, WARM_UP_SECONDS, MEASURED_SECONDS))
    else:
        if not isinstance(asked.scenario, Mapping):
            raise InvalidInput("scenario", _("The scenario is no mapping."), field="scenario")
        found = inputs.scenario({**asked.scenario, "target": deployment.name})
    if len(found.load.steps) > 1:
        raise InvalidInput(
            "one_step",
            _("A trial measures one load, and this scenario has %(count)d steps.")
            % {"count": len(found.load.steps)},
            field="scenario.load",
            remedy=_("Give one number of clients or one rate."),
        )
    needs_slo = {"goodput_per_second"} & {*asked.objectives, *(each.figure for each in asked.constraints)}
    if needs_slo and not found.slo.as_slo().given:
        raise InvalidInput(
            "slo_missing",
            _("Goodput counts requests that keep an SLO, and the scenario has none."),
            field="scenario.slo",
            remedy=_("Give slo a bound, as ttft_ms: 500."),
        )
    return found


def _plain(parameter: Parameter) -> dict[str, Any]:
    return {**asdict(parameter), "values": list(parameter.values)}


def _create(actor: User | str, **columns: Any) -> Tuning:
    def create(number: int) -> Tuning:
        row = Tuning.objects.create(
            state=states.TUNING.initial,
            number=number,
            requested_by=actor if isinstance(actor, User) else None,
            **columns,
        )
        audit.record(actor, "tuning.started", row, to_state=row.state)
        announce(row)
        return row

    contended = InfrastructureError(
        "tunings_contended",
        _("Too many tunings are being started at once."),
        remedy=_("Try again in a moment."),
    )
    return create_numbered(Tuning, create, contended)


def _applicable(row: Tuning, number: int | None) -> Trial:
    chosen = number if number is not None else row.winner
    if chosen is None:
        raise NotPossibleNow(
            "no_winner",
            _("Tuning #%(number)s has no winner (yet).") % {"number": row.number},
            remedy=_("Wait until it has ended, or name a trial that was measured."),
        )
    trial = row.trials.filter(number=chosen).first()
    if trial is None:
        raise NotFound(
            "trial_unknown",
            _("Tuning #%(number)s has no trial %(trial)s.") % {"number": row.number, "trial": chosen},
            remedy=_("See its table of trials."),
        )
    goals = tuning_space.goals_of(row)
    if trial.state != states.SUCCEEDED or goals.losses(trial.figures or {}) is None:
        raise NotPossibleNow(
            "trial_not_measured",
            _("Trial %(trial)s was not measured.") % {"trial": chosen},
            remedy=_("Choose one that was."),
        )
    kept = {each.key: each.feasible for each in tuner_goals.candidates(tuning_space.tried(row), goals)}
    if not kept.get(key_of(trial.configuration)):
        raise NotPossibleNow(
            "trial_breaks_constraints",
            _("Trial %(trial)s does not keep the constraints.") % {"trial": chosen},
            remedy=_("Choose one that does, or change the profile by hand."),
        )
    return trial


def _wanted(row: Tuning, trial: Trial, deployment: Deployment) -> dict[str, Any]:
    """What changes at the deployment besides its profile. Raises NotPossibleNow where nothing changes at all."""
    config = trial.configuration
    found: dict[str, Any] = {}
    if BUILD in config:
        found["build_profile"] = str(config[BUILD])
    if REPLICAS in config:
        found["replicas"] = int(config[REPLICAS])
    now = tuning_space.base_of(deployment)
    same = settings_of(config, now["profile"]) == settings_of({}, now["profile"])
    same = same and found.get("replicas", now["replicas"]) == now["replicas"]
    if same and found.get("build_profile", now["build"]) == now["build"]:
        raise NotPossibleNow(
            "is_configured",
            _("%(name)s has this configuration already.") % {"name": deployment.name},
            remedy=_("There is nothing to apply; deploy it if it does not run."),
        )
    return found


def _free_name(wanted: str) -> str:
    """The name, cut to what a name may be, with a number where it is taken."""
    for number in range(1, 1000):
        end = "" if number == 1 else f"-{number}"
        name = wanted[: 63 - len(end)].rstrip("-") + end
        if not BatchingProfile.objects.filter(name=name).exists():
            return name
    return wanted[:63]
