"""Studies: rows that the sweep moves on. Servers come up, runs take turns one at a time, servers go, a verdict stays.

No task waits for another: `advance` looks at a study's rows and does the next thing, at every sweep and after
each run.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth.models import User
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit, clock
from apps.core.exceptions import InflightError, InfrastructureError, InvalidInput, NotPossibleNow
from apps.core.jobs import ask_to_end, create_numbered, delete_audited, refuse_unended
from apps.core.transitions import amend, announce, transition
from apps.fleet.selectors import free_share, slots_for_work
from apps.loadtests import comparing, inputs, limits, runs, states, waking
from apps.loadtests.domain.batching_study import ArmSettings, arms_of, scenario_of
from apps.loadtests.domain.compare import DEFAULT_PRIMARY
from apps.loadtests.domain.scenario import Scenario
from apps.loadtests.models import LoadRun, Study
from apps.loadtests.policy import MOST_ARMS, MOST_REPEATS, PREPARE_SECONDS, REPEATS
from apps.serving import selectors as serving
from apps.serving import services as serving_services
from apps.serving import states as serving_states
from apps.serving.models import BatchingProfile, Deployment

log = logging.getLogger(__name__)


def start_comparison(
    actor: User | str,
    deployments: Sequence[str],
    scenario: Any,
    *,
    repeats: int = REPEATS,
    primary: str = DEFAULT_PRIMARY,
    allow_production: bool = False,
) -> Study:
    """Start paired runs of one scenario against deployments that serve; the first is what the others are
    compared with.

    Raises InvalidInput (fewer than two, unknown), NotPossibleNow (one does not serve, beyond the limits).
    """
    require(actor, Action.OPERATE)
    names = list(dict.fromkeys(deployments))
    if not 2 <= len(names) <= MOST_ARMS:
        raise InvalidInput(
            "arms",
            _("A comparison needs 2 to %(most)s different deployments.") % {"most": MOST_ARMS},
            field="deployments",
            remedy=_("Name each deployment once, the one to compare with first."),
        )
    checked = inputs.scenario({**_plain(scenario), "target": names[0]})
    arms = []
    for name in names:
        row = serving.deployment(name)
        if not waking.serves_or_wakes(row):
            raise NotPossibleNow(
                "nothing_serving",
                _("No instance of %(name)s is serving.") % {"name": name},
                field="deployments",
                remedy=_("Deploy it first."),
            )
        limits.check(actor, checked, row, allow_production)
        arms.append({"label": name, "deployment": name, "own": False, "settings": {}})
    return _create(
        actor,
        study_kind=Study.Kind.DEPLOYMENTS,
        title=_("%(names)s") % {"names": _(" against ").join(names)},
        arms=arms,
        repeats=_repeats(repeats),
        scenario=checked.model_dump(mode="json"),
        primary=inputs.primary(primary),
        allow_production=allow_production,
    )


def start_batching_study(
    actor: User | str,
    deployment: Deployment,
    *,
    full: bool = False,
    repeats: int = 3,
    primary: str = DEFAULT_PRIMARY,
    allow_production: bool = False,
) -> Study:
    """Serve the engine of a deployment with each batching strategy beside it, and compare them.

    `full` adds delays and batch sizes. The study makes a deployment and a profile for each arm and removes them
    at its end; what the given deployment serves is not touched. Raises NotPossibleNow where the slot has no room
    for them.
    """
    require(actor, Action.OPERATE)
    require(actor, Action.CONFIGURE)
    if deployment.build_profile is None:
        raise NotPossibleNow(
            "no_engine",
            _("%(name)s serves an imported repository, whose batching is its own.")
            % {"name": deployment.name},
            field="deployment",
            remedy=_("Choose a deployment that serves an engine, or compare deployments."),
        )
    profile = deployment.batching
    wanted = arms_of(profile.max_batch_size, full)
    checked = inputs.scenario(scenario_of(deployment.name, profile.max_batch_size))
    limits.check(actor, checked, deployment, allow_production)
    share = _room_for(len(wanted))
    study = _create(
        actor,
        study_kind=Study.Kind.BATCHING,
        title=_("Batching of %(name)s") % {"name": deployment.build_profile.name},
        arms=[
            {"label": arm.label, "deployment": "", "own": True, "settings": arm.as_dict()} for arm in wanted
        ],
        repeats=_repeats(repeats),
        scenario=checked.model_dump(mode="json"),
        primary=inputs.primary(primary),
        allow_production=allow_production,
    )
    try:
        _make_servers(actor, study, deployment, wanted, share)
    except InflightError as error:
        _end(study, states.FAILED, error.code, error.sentence, error.remedy)
        raise
    return study


def cancel_study(actor: User | str, row: Study) -> Study:
    """Cancel a study: the run that goes on stops, servers made for it go."""
    require(actor, Action.OPERATE)
    ask_to_end(actor, row, (states.PREPARING, states.RUNNING), "study.cancel", ended=_has_ended)
    advance(row)
    return row


def _has_ended(row: Study) -> NotPossibleNow:
    return NotPossibleNow("study_ended", _is(row), remedy=_("There is nothing to cancel."))


def _is(row: Study) -> str:
    return _("Study #%(number)s is %(state)s.") % {"number": row.number, "state": row.state}


def delete_study(actor: User | str, row: Study) -> None:
    """Delete a study that has ended, with its runs and their records."""
    require(actor, Action.OPERATE)
    refuse_unended(row, "study_not_ended", _is(row), _("Cancel it first."))
    for run in row.runs.select_related("study"):
        runs.delete_run(actor, run)
    delete_audited(actor, row)


def advance_all() -> int:
    """Move every study on; returns how many there are."""
    rows = list(Study.objects.filter(state__in=states.STUDY.active).order_by("number"))
    for row in rows:
        try:
            advance(row)
        except InflightError as error:
            _end(row, states.FAILED, error.code, error.sentence, error.remedy)
        except Exception:
            log.exception("Study #%d could not be moved on; the next sweep tries again.", row.number)
    return len(rows)


def advance(row: Study) -> None:
    """Do the next thing that a study's rows ask for. Raises InflightError where it cannot go on."""
    row.refresh_from_db()
    if row.state == states.PREPARING:
        _prepare(row)
    elif row.state == states.RUNNING:
        _run(row)
    if row.state == states.CLEARING:
        _clear(row)


# ---------------------------------------------------------------------- steps


def _prepare(row: Study) -> None:
    if row.cancel_requested_at is not None:
        _end(row, states.CANCELLED, "cancelled", _("Cancelled before its servers were ready."))
        return
    for arm in row.arms:
        deployment = Deployment.objects.filter(name=arm["deployment"]).first()
        if deployment is None or deployment.state == serving_states.FAILED:
            sentence = deployment.sentence if deployment is not None else _("Its deployment is gone.")
            _end(
                row,
                states.FAILED,
                "arm_failed",
                _("%(label)s does not serve: %(sentence)s") % {"label": arm["label"], "sentence": sentence},
                _("See the deployment's page; then start the study again."),
            )
            return
        if not serving.endpoints(deployment):
            if (clock.now() - row.state_since).total_seconds() > PREPARE_SECONDS:
                _end(
                    row,
                    states.FAILED,
                    "arm_late",
                    _("%(label)s did not come up in time.") % {"label": arm["label"]},
                )
            return
    if transition(row, states.RUNNING, actor="sweep", sources=[states.PREPARING], started_at=clock.now()):
        _run(row)


def _run(row: Study) -> None:
    made = list(row.runs.order_by("number"))
    active = [run for run in made if run.is_active]
    if row.cancel_requested_at is not None:
        for run in active:
            if run.cancel_requested_at is None:
                runs.stop_run("sweep", run)
        if not active or all(run.state == states.CANCELLED for run in active):
            _end(row, states.CANCELLED, "cancelled", _("Cancelled; the runs that had ended are kept."))
        return
    failed = next((run for run in made if run.state in (states.FAILED, states.CANCELLED)), None)
    if failed is not None:
        _end(
            row,
            states.FAILED,
            "run_failed",
            _("Run #%(number)s ended without a result: %(sentence)s")
            % {"number": failed.number, "sentence": failed.sentence},
            failed.remedy,
        )
        return
    if active:
        return
    following = next_turn(len(row.arms), row.repeats, len(made))
    if following is None:
        amend(row, states=[states.RUNNING], verdict=comparing.verdict_of(row))
        _end(row, states.SUCCEEDED, "", "")
        return
    runs.of_study(row, *following)


def next_turn(arms: int, repeats: int, made: int) -> tuple[int, int] | None:
    """(arm, repeat) of the next run, None when all are made. Each second repeat goes the other way round."""
    if made >= arms * repeats:
        return None
    repeat, place = divmod(made, arms)
    return (place if repeat % 2 == 0 else arms - 1 - place), repeat


def _end(row: Study, outcome: str, reason: str, sentence: str, remedy: str = "") -> None:
    """Let the study's own servers go; when they are gone it has ended."""
    for arm in row.arms:
        deployment = Deployment.objects.filter(name=arm["deployment"]).first() if arm["own"] else None
        if deployment is not None and deployment.desired == Deployment.Desired.RUNNING:
            serving_services.stop("study", deployment)
    moved = transition(
        row,
        states.CLEARING,
        actor="sweep",
        sources=[states.PREPARING, states.RUNNING],
        outcome=outcome,
        reason=reason,
        sentence=sentence,
        remedy=remedy,
    )
    if moved:
        _clear(row)


def _clear(row: Study) -> None:
    for arm in row.arms:
        if not arm["own"]:
            continue
        deployment = Deployment.objects.filter(name=arm["deployment"]).first()
        if deployment is not None:
            if deployment.state not in (serving_states.STOPPED, serving_states.FAILED):
                return
            serving_services.delete_deployment("study", deployment)
        profile = BatchingProfile.objects.filter(name=arm["deployment"]).first()
        if profile is not None:
            serving_services.delete_batching_profile("study", profile)
    transition(
        row,
        row.outcome,
        actor="sweep",
        sources=[states.CLEARING],
        reason=row.reason,
        sentence=row.sentence,
        remedy=row.remedy,
        finished_at=clock.now(),
    )


# ---------------------------------------------------------------------- making


def _plain(scenario: Any) -> Mapping[str, Any]:
    if isinstance(scenario, Scenario):
        return dict(scenario.model_dump(mode="json"))
    if isinstance(scenario, Mapping):
        return scenario
    raise InvalidInput(
        "scenario",
        _("The scenario is no mapping."),
        field="scenario",
        remedy=_("Write it as the spec of a LoadTest."),
    )


def _repeats(repeats: int) -> int:
    if not 1 <= repeats <= MOST_REPEATS:
        raise InvalidInput(
            "repeats",
            _("Repeats must be 1 to %(most)s.") % {"most": MOST_REPEATS},
            field="repeats",
            remedy=_("Three tell what changes from run to run."),
        )
    return repeats


def _room_for(count: int) -> int:
    """The share of a slot that each of so many servers gets: they take turns, so it reserves room, no more."""
    free = max((free_share(slot) for slot in slots_for_work()), default=0)
    share = min(25, free // count)
    if share < 1:
        raise NotPossibleNow(
            "no_free_share",
            _("The study needs %(count)s servers at once, and no slot has room for them.") % {"count": count},
            remedy=_(
                "Stop a deployment or wait for a build to end; on a GPU, leased whole, compare deployments instead."
            ),
        )
    return share


def _create(actor: User | str, **columns: Any) -> Study:
    def create(number: int) -> Study:
        row = Study.objects.create(
            state=states.STUDY.initial,
            number=number,
            seed=secrets.randbelow(runs.SEEDS),
            requested_by=actor if isinstance(actor, User) else None,
            **columns,
        )
        audit.record(actor, "study.started", row, to_state=row.state)
        announce(row)
        return row

    contended = InfrastructureError(
        "studies_contended",
        _("Too many studies are being started at once."),
        remedy=_("Try again in a moment."),
    )
    return create_numbered(Study, create, contended)


def _make_servers(
    actor: User | str, study: Study, deployment: Deployment, wanted: Sequence[ArmSettings], share: int
) -> None:
    """A profile and a deployment for each arm, named after the study."""
    base = deployment.batching
    arms = []
    for index, arm in enumerate(wanted):
        name = f"study-{study.number}-{arm.label.replace(' ', '-')}"
        profile = {
            "name": name,
            "strategy": arm.strategy,
            "max_batch_size": arm.max_batch_size,
            "max_queue_delay_microseconds": arm.delay_microseconds,
            "max_seq_len": base.max_seq_len,
            "max_queue_size": base.max_queue_size,
            "threads": base.threads,
        }
        serving_services.save_batching_profile(actor, profile)
        made = serving_services.save_deployment(
            actor,
            {
                "name": name,
                "build_profile": deployment.build_profile,
                "batching": name,
                "replicas": 1,
                "placement": {
                    "device": deployment.placement.get("device", "any"),
                    "share": share,
                    "purpose": "test",
                },
            },
        )
        arms.append({**study.arms[index], "deployment": name})
        amend(study, states=[states.PREPARING], arms=[*arms, *study.arms[index + 1 :]])
        serving_services.deploy(actor, made)


def after_run(run: LoadRun) -> None:
    """Move the run's study on at once instead of at the next sweep."""
    if run.study is None:
        return
    try:
        advance(run.study)
    except InflightError as error:
        _end(run.study, states.FAILED, error.code, error.sentence, error.remedy)
