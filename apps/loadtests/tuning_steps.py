"""A tuning moves on: the sweep looks at its trial, the load worker proposes the next. Rows alone say how far it is.

A trial is prepared (its servers come up), running (a load run against them), clearing (they go), then ended. Nothing
waits for anything: each call does the next thing that the rows ask for, and a call too many does nothing.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils.translation import gettext as _

from apps.core import audit, clock
from apps.core.exceptions import InflightError
from apps.core.transitions import amend, announce, transition
from apps.loadtests import dispatch, inputs, runs, tuning_figures, tuning_servers, tuning_space
from apps.loadtests import states as run_states
from apps.loadtests import tuning_states as states
from apps.loadtests.domain import tuner_goals, tuner_parameters
from apps.loadtests.domain.tuner_report import report
from apps.loadtests.domain.tuner_request import TuningFields
from apps.loadtests.domain.tuner_space import key_of
from apps.loadtests.models import LoadRun
from apps.loadtests.policy import MESSAGE_LIFE_SECONDS, PREPARE_SECONDS, RESEND_AFTER_SECONDS
from apps.loadtests.tuning_models import Trial, Tuning
from apps.loadtests.tuning_search import Proposal
from apps.realtime.broker import BROKER_ERRORS, wake
from apps.serving import selectors as serving
from apps.serving import states as serving_states

log = logging.getLogger(__name__)
PROPOSE = "workers.propose_trial"
ACTOR = "tuner"
# So many trials in a row without a result end a tuning: something is wrong with all of them.
MOST_FAILURES = 4
# Seconds that a trial usually takes beside its run, before one has ended: its servers come up and go.
USUAL_EXTRA = 20.0


def advance_all() -> int:
    """Move every tuning on; returns how many there are."""
    rows = list(Tuning.objects.filter(state=states.RUNNING).order_by("number"))
    for row in rows:
        try:
            advance(row)
        except Exception:
            log.exception("Tuning #%d could not be moved on; the next sweep tries again.", row.number)
    return len(rows)


def advance(row: Tuning) -> None:
    """Do the next thing that a tuning's rows ask for."""
    row.refresh_from_db()
    if row.state != states.RUNNING:
        return
    trial = active_trial(row)
    if trial is not None:
        _move(row, trial)
        if trial.is_active:
            return
        amend(row, states=[states.RUNNING], dispatched_at=None)
    if row.cancel_requested_at is not None:
        _finish(row, states.CANCELLED, "cancelled", _("Cancelled; what was measured is kept."))
    elif (ended := _why_over(row)) is not None:
        _finish(row, *ended)
    else:
        _send(row)


def active_trial(row: Tuning) -> Trial | None:
    """The trial that goes on; one at a time, so that they do not disturb each other."""
    return row.trials.filter(state__in=states.TRIAL.active).order_by("number").first()


def after_run(run: LoadRun) -> None:
    """Move the run's tuning on at once instead of at the next sweep."""
    trial = Trial.objects.select_related("tuning").filter(run=run).first()
    if trial is not None:
        advance(trial.tuning)


# ---------------------------------------------------------------------- the next trial


def _send(row: Tuning) -> None:
    """Wake the load worker to propose the next trial; sent again where nothing came of it."""
    late = clock.now() - timedelta(seconds=RESEND_AFTER_SECONDS)
    if row.dispatched_at is not None and row.dispatched_at > late:
        return
    amend(row, states=[states.RUNNING], dispatched_at=clock.now())
    try:
        _publish(row)
    except BROKER_ERRORS as error:
        log.warning("Tuning #%d: the load worker could not be woken: %s", row.number, error)


def _publish(row: Tuning) -> None:
    wake(
        PROPOSE,
        row.pk,
        f"node.{dispatch.node_of(LoadRun(deployment=row.deployment))}.load",
        MESSAGE_LIFE_SECONDS,
    )


def propose(row: Tuning) -> Trial | None:
    """Choose the next configuration and start its servers; None where a trial goes on, or none is left.

    Configurations that the memory plan refuses become trials without a run, at once and for free.
    """
    row.refresh_from_db()
    if row.state != states.RUNNING or row.cancel_requested_at is not None or active_trial(row) is not None:
        return None
    search = tuning_space.search_of(row)
    told = tuning_space.tried(row)
    while True:
        proposal = search.next(told)
        if proposal is None:
            _finish(row, states.SUCCEEDED, "", "")
            return None
        trial = _create(row, proposal)
        if trial is None:
            return None
        why = tuning_space.why_infeasible(row, proposal.config)
        if why:
            transition(
                trial,
                states.INFEASIBLE,
                actor=ACTOR,
                reason="memory_plan",
                sentence=why,
                finished_at=clock.now(),
            )
            told.append(tuner_goals.Tried(trial.number, proposal.config, "infeasible", {}, why))
            continue
        try:
            tuning_servers.make(row, trial)
        except InflightError as error:
            _clear(trial, states.FAILED, error.code, error.sentence, error.remedy)
        return trial


def _create(row: Tuning, proposal: Proposal) -> Trial | None:
    """The trial's row; None where another worker was first."""
    try:
        with transaction.atomic():
            if active_trial(row) is not None:
                return None
            highest = row.trials.aggregate(highest=Max("number"))["highest"] or 0
            trial = Trial.objects.create(
                tuning=row,
                number=highest + 1,
                state=states.TRIAL.initial,
                configuration=proposal.config,
                source=proposal.source,
            )
            audit.record(
                ACTOR, "trial.started", trial, to_state=trial.state, detail={"configuration": proposal.config}
            )
            announce(trial)
    except IntegrityError:
        return None
    return trial


# ---------------------------------------------------------------------- the trial that goes on


def _move(row: Tuning, trial: Trial) -> None:
    if trial.state == states.PREPARING:
        _prepare(row, trial)
    elif trial.state == states.RUNNING:
        _look(row, trial)
    if trial.state == states.CLEARING and tuning_servers.cleared(trial):
        transition(
            trial,
            trial.outcome,
            actor=ACTOR,
            sources=[states.CLEARING],
            reason=trial.reason,
            sentence=trial.sentence,
            remedy=trial.remedy,
            finished_at=clock.now(),
        )


def _prepare(row: Tuning, trial: Trial) -> None:
    if row.cancel_requested_at is not None:
        _clear(trial, states.CANCELLED, "cancelled", _("Cancelled before its servers were ready."))
        return
    made = tuning_servers.served_by(trial)
    waited = (clock.now() - trial.state_since).total_seconds()
    if made is None or made.state == serving_states.FAILED:
        if made is None and waited < RESEND_AFTER_SECONDS:
            # The worker that makes it may be between two writes.
            return
        sentence = made.sentence if made is not None else _("Its servers were not made.")
        _clear(trial, states.FAILED, "servers_failed", sentence, made.remedy if made is not None else "")
    elif len(serving.endpoints(made)) >= made.replicas:
        _begin(row, trial)
    elif waited > PREPARE_SECONDS:
        _clear(trial, states.FAILED, "servers_late", _("Its servers did not come up in time."))


def _begin(row: Tuning, trial: Trial) -> None:
    repeat = row.trials.filter(number__lt=trial.number, configuration=trial.configuration).count()
    scenario = inputs.scenario({**row.scenario, "target": trial.made})
    try:
        with transaction.atomic():
            # Each repeat asks every configuration the same.
            run = runs.begin(
                row.requested_by or ACTOR,
                scenario,
                allowed=row.allow_production,
                limited=False,
                seed=(row.seed + repeat) % runs.SEEDS,
            )
            transition(trial, states.RUNNING, actor=ACTOR, sources=[states.PREPARING], run=run)
    except InflightError as error:
        _clear(trial, states.FAILED, error.code, error.sentence, error.remedy)


def _look(row: Tuning, trial: Trial) -> None:
    run = trial.run
    if run is None:
        _clear(trial, states.FAILED, "run_gone", _("Its run was deleted."))
        return
    if not run.is_terminal:
        if row.cancel_requested_at is not None and run.cancel_requested_at is None:
            runs.stop_run(ACTOR, run)
        return
    stopped = run.cancel_requested_at is not None
    figures = tuning_figures.figures_of(run) if run.state == run_states.SUCCEEDED and not stopped else None
    if figures is not None:
        amend(trial, states=[states.RUNNING], figures=figures)
        _clear(trial, states.SUCCEEDED, "", "")
    elif stopped:
        _clear(trial, states.CANCELLED, "cancelled", _("Its run was stopped."))
    else:
        _clear(
            trial,
            states.FAILED,
            run.reason or "not_measured",
            run.sentence or _("Nothing was measured."),
            run.remedy,
        )


def _clear(trial: Trial, outcome: str, reason: str, sentence: str, remedy: str = "") -> None:
    """Let a trial's servers go; when they are gone it has ended."""
    tuning_servers.let_go(trial)
    transition(
        trial,
        states.CLEARING,
        actor=ACTOR,
        sources=[states.PREPARING, states.RUNNING],
        outcome=outcome,
        reason=reason,
        sentence=sentence,
        remedy=remedy,
    )


# ---------------------------------------------------------------------- the end


def _why_over(row: Tuning) -> tuple[str, str, str] | None:
    """(state, reason, sentence) where nothing more is tried; None: it goes on."""
    last = list(row.trials.exclude(state=states.INFEASIBLE).order_by("-number")[:MOST_FAILURES])
    if len(last) == MOST_FAILURES and all(trial.state == states.FAILED for trial in last):
        text = _("%(count)d trials in a row ended without a result. The last: %(sentence)s")
        return states.FAILED, "trials_fail", text % {"count": MOST_FAILURES, "sentence": last[0].sentence}
    if row.deployment is None:
        return states.FAILED, "deployment_gone", _("The deployment that was tuned is gone.")
    if seconds_left(row) <= 0:
        return states.SUCCEEDED, "time_over", _("Its time is over; the best of what was measured won.")
    return None


def seconds_left(row: Tuning) -> float:
    """Of the time that it was given."""
    given = TuningFields.model_validate(row.request).minutes * 60
    return given - (clock.now() - row.created_at).total_seconds()


def eta_seconds(row: Tuning) -> float | None:
    """About how long it goes on: what is left of its trials, as long as the ended ones took; None: ended."""
    if row.is_terminal:
        return None
    done = [each for each in row.trials.exclude(state=states.INFEASIBLE) if each.finished_at is not None]
    times = [(each.finished_at - each.created_at).total_seconds() for each in done if each.finished_at]
    usual = sum(times) / len(times) if times else inputs.scenario(row.scenario).expected_seconds + USUAL_EXTRA
    left = max(0, TuningFields.model_validate(row.request).trials - len(done))
    return max(0.0, min(left * usual, seconds_left(row)))


def _finish(row: Tuning, state: str, reason: str, sentence: str) -> None:
    """Say who won and why."""
    told = tuning_space.tried(row)
    goals = tuning_space.goals_of(row)
    space = tuning_space.space_of(row)
    present = tuner_parameters.present_config(
        [each["name"] for each in row.space], row.base["profile"], row.base["replicas"], row.base["build"]
    )
    winner = tuner_goals.best(tuner_goals.candidates(told, goals), goals)
    said = report(told, goals, space, space.same(present) if space.has(present) else None)
    if winner is None and state == states.SUCCEEDED:
        state, reason, sentence = states.FAILED, "nothing_feasible", said[0]
    columns: dict[str, Any] = {
        "winner": winner.numbers[0] if winner is not None else None,
        "report": said,
        "finished_at": clock.now(),
    }
    transition(row, state, actor=ACTOR, sources=[states.RUNNING], reason=reason, sentence=sentence, **columns)


def is_present(row: Tuning, trial: Trial) -> bool:
    """Whether a trial's configuration is what the deployment had when the tuning began."""
    space = tuning_space.space_of(row)
    present = tuner_parameters.present_config(
        [each["name"] for each in row.space], row.base["profile"], row.base["replicas"], row.base["build"]
    )
    return space.has(present) and key_of(space.same(present)) == key_of(trial.configuration)
