"""The servers of a trial: a profile and a deployment beside the one that is tuned, removed when it was measured."""

from __future__ import annotations

from typing import cast

from django.utils.translation import gettext as _

from apps.core.exceptions import NotPossibleNow
from apps.core.transitions import amend
from apps.fleet.selectors import free_share, slots_for_work
from apps.loadtests import tuning_states as states
from apps.loadtests.domain.tuner_parameters import BUILD, REPLICAS, settings_of
from apps.loadtests.tuning_models import Trial, Tuning
from apps.serving import services as serving_services
from apps.serving import states as serving_states
from apps.serving.domain.acting import EngineKind
from apps.serving.models import BatchingProfile, Deployment

ACTOR = "tuner"
# Hundredths of a slot that each server of a trial reserves, where there is room: trials take turns.
MOST_SHARE = 25


def share_for(replicas: int, kind: EngineKind) -> int | None:
    """The share of a slot for each server of a trial; null for GPUs, which are leased whole.

    Raises NotPossibleNow where no slot has room for them beside what runs.
    """
    free = sorted((free_share(slot) for slot in slots_for_work()), reverse=True)
    if kind != "llamacpp":
        if sum(share >= 100 for share in free) >= replicas:
            return None
        raise NotPossibleNow(
            "no_free_share",
            _("A trial needs %(count)d GPUs that nothing else uses.") % {"count": replicas},
            remedy=_("Stop a deployment, or tune on another host: trials run beside what serves."),
        )
    share = min(MOST_SHARE, (free[0] if free else 0) // max(1, replicas))
    if share < 1:
        raise NotPossibleNow(
            "no_free_share",
            _("A trial needs room for %(count)d servers, and no slot has it.") % {"count": replicas},
            remedy=_("Stop a deployment or wait for a build to end."),
        )
    return share


def make(row: Tuning, trial: Trial) -> None:
    """Make the profile and the deployment of a trial and start it. Raises InflightError."""
    deployment = row.deployment
    if deployment is None:
        raise NotPossibleNow("deployment_gone", _("The deployment that is tuned was deleted."))
    name = f"tune-{row.number}-{trial.number}"
    config = trial.configuration
    profile = serving_services.save_batching_profile(
        ACTOR, {**settings_of(config, row.base["profile"]), "name": name}
    )
    placement = {"device": row.base["placement"].get("device", "any")}
    if row.share is not None:
        placement["share"] = row.share
    made = serving_services.save_deployment(
        ACTOR,
        {
            "name": name,
            "build_profile": str(config.get(BUILD) or row.base["build"]),
            "batching": profile,
            "replicas": int(config.get(REPLICAS) or row.base["replicas"]),
            "placement": placement,
        },
    )
    amend(trial, states=[states.PREPARING], made=name)
    serving_services.deploy(ACTOR, made)


def served_by(trial: Trial) -> Deployment | None:
    """The deployment of a trial, while there is one."""
    return Deployment.objects.filter(name=trial.made).first() if trial.made else None


def let_go(trial: Trial) -> None:
    """Stop a trial's servers."""
    made = served_by(trial)
    if made is not None and made.desired == Deployment.Desired.RUNNING:
        serving_services.stop(ACTOR, made)


def cleared(trial: Trial) -> bool:
    """Delete what was made for a trial; False while its servers still end."""
    made = served_by(trial)
    if made is not None:
        if made.state not in (serving_states.STOPPED, serving_states.FAILED):
            return False
        serving_services.delete_deployment(ACTOR, made)
    name = trial.made or f"tune-{trial.tuning.number}-{trial.number}"
    profile = BatchingProfile.objects.filter(name=name).first()
    if profile is not None:
        serving_services.delete_batching_profile(ACTOR, profile)
    return True


def kind_of(row: Tuning) -> EngineKind:
    """What serves with the tuned profile."""
    return cast(EngineKind, row.base["kind"])
