"""Load tests are saved, run, stopped and deleted by people. Workers' own functions are in attempts.py."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit
from apps.core.exceptions import InfrastructureError, NotPossibleNow
from apps.core.jobs import ask_to_cancel, create_numbered, delete_audited, refuse_unended
from apps.core.transitions import announce
from apps.loadtests import dispatch, generators, inputs, limits, states, waking
from apps.loadtests.domain.scenario import Scenario
from apps.loadtests.models import LoadRun, LoadTest, ProductionMark, Study
from apps.serving.inputs import assign
from apps.serving.models import Deployment

SEEDS = 2**31 - 1


def save_load_test(actor: User | str, data: Mapping[str, Any], instance: LoadTest | None = None) -> LoadTest:
    """Create a load test, or change one (`instance`): keys name, scenario. Raises InvalidInput naming the field."""
    require(actor, Action.CONFIGURE)
    created = instance is None
    row = LoadTest.objects.get(pk=instance.pk) if instance is not None else LoadTest()
    values = dict(data)
    if "scenario" in values:
        values["scenario"] = inputs.scenario(values["scenario"]).model_dump(mode="json")
    changes = assign(row, values, ("name", "scenario"))
    if not created and not changes:
        return row
    with transaction.atomic():
        row.save()
        audit.record(
            actor, "loadtest.created" if created else "loadtest.changed", row, detail={"changes": changes}
        )
    return row


def delete_load_test(actor: User | str, row: LoadTest) -> None:
    """Delete a load test; its runs stay."""
    require(actor, Action.CONFIGURE)
    with transaction.atomic():
        audit.record(actor, "loadtest.deleted", row)
        row.delete()


def start_run(
    actor: User | str,
    test: LoadTest,
    *,
    allow_production: bool = False,
    generator: str = LoadRun.Generator.INFLIGHT,
) -> LoadRun:
    """Start a run of a load test as it stands; needs the right to operate. `generator` sends it: ours, or AIPerf.

    Raises InvalidInput (no such target, what AIPerf cannot do), NotPossibleNow (nothing serves, beyond the limits,
    no AIPerf); `allow_production` lifts the limits and needs an administrator.
    """
    require(actor, Action.OPERATE)
    scenario = inputs.scenario(test.scenario)
    return begin(actor, scenario, test=test, allowed=allow_production, generator=generator)


def start_scenario(
    actor: User | str,
    scenario: Any,
    *,
    allow_production: bool = False,
    generator: str = LoadRun.Generator.INFLIGHT,
) -> LoadRun:
    """Start a run of a scenario that is under no name. Raises as start_run does."""
    require(actor, Action.OPERATE)
    return begin(actor, inputs.scenario(scenario), allowed=allow_production, generator=generator)


def repeat_run(actor: User | str, row: LoadRun, *, generator: str = "") -> LoadRun:
    """Start a run of an ended run's own scenario, with a seed of its own unless the scenario fixes one.

    `generator` has the other one send it (empty: the same), with the run's seed and for as long as it measured.
    """
    require(actor, Action.OPERATE)
    if not row.is_terminal:
        raise NotPossibleNow(
            "run_not_ended",
            _("Run #%(number)s is %(state)s; only one that has ended can be repeated.")
            % {"number": row.number, "state": row.state},
            remedy=_("Wait until it ends, or stop it."),
        )
    if generator in ("", row.generator):
        same = inputs.scenario(row.scenario)
        return begin(
            actor, same, test=row.test, allowed=row.allow_production, generator=generator or row.generator
        )
    other = inputs.scenario(generators.for_the_other(row))
    return begin(
        actor, other, test=row.test, allowed=row.allow_production, generator=generator, seed=row.seed
    )


def begin(
    actor: User | str,
    scenario: Scenario,
    *,
    test: LoadTest | None = None,
    allowed: bool = False,
    limited: bool = True,
    generator: str = LoadRun.Generator.INFLIGHT,
    **columns: Any,
) -> LoadRun:
    """Queue a run, after every check (`limited`: also those of limits.py); `columns` are those of a study's run."""
    deployment = inputs.deployment_of(scenario)
    if deployment is not None and scenario.via != "gateway" and not waking.serves_or_wakes(deployment):
        raise NotPossibleNow(
            "nothing_serving",
            _("No instance of %(name)s is serving; its state is: %(state)s.")
            % {"name": deployment.name, "state": deployment.sentence or deployment.state},
            field="target",
            remedy=_("Deploy it, or wait until it is ready; its page says what it is doing."),
        )
    generators.check(generator, scenario, deployment)
    if limited:
        limits.check(actor, scenario, deployment, allowed)
    # A study gives its runs their seed, so that each repeat asks every arm the same.
    seed = columns.pop("seed", scenario.seed if scenario.seed is not None else secrets.randbelow(SEEDS))

    def create(number: int) -> LoadRun:
        row = LoadRun.objects.create(
            state=states.LOADRUN.initial,
            number=number,
            test=test,
            target=scenario.target,
            deployment=deployment,
            scenario=scenario.model_dump(mode="json"),
            seed=seed,
            generator=generator,
            allow_production=allowed,
            requested_by=actor if isinstance(actor, User) else None,
            **columns,
        )
        audit.record(actor, "loadrun.queued", row, to_state=row.state)
        announce(row)
        dispatch.on_commit(row)
        return row

    return create_numbered(LoadRun, create, contended_runs())


def contended_runs() -> InfrastructureError:
    """Numbers of runs were taken by others again and again."""
    return InfrastructureError(
        "runs_contended", _("Too many runs are being started at once."), remedy=_("Try again in a moment.")
    )


def stop_run(actor: User | str, row: LoadRun) -> LoadRun:
    """Stop a run: a queued one at once; a running one sends nothing more, and keeps what it has measured."""
    require(actor, Action.OPERATE)
    return ask_to_cancel(
        actor, row, "loadrun.stop", before_it_began=_("Stopped before it began."), ended=_has_ended
    )


def _has_ended(row: LoadRun) -> NotPossibleNow:
    return NotPossibleNow(
        "run_ended",
        _("Run #%(number)s has ended: %(state)s.") % {"number": row.number, "state": row.state},
        remedy=_("There is nothing to stop."),
    )


def delete_run(actor: User | str, row: LoadRun) -> None:
    """Delete a run that has ended, with its records."""
    require(actor, Action.OPERATE)
    said = _("Run #%(number)s is %(state)s.") % {"number": row.number, "state": row.state}
    refuse_unended(row, "run_not_ended", said, _("Stop it first."))
    if row.study is not None and row.study.is_active:
        raise NotPossibleNow(
            "study_not_ended",
            _("Study #%(number)s still needs this run.") % {"number": row.study.number},
            remedy=_("Wait until it ends, or cancel it."),
        )
    folder = row.folder
    delete_audited(actor, row)
    if folder:
        shutil.rmtree(Path(folder), ignore_errors=True)


def set_production(actor: User | str, deployment: Deployment, production: bool) -> None:
    """Mark a deployment as production, or take the mark away; needs an administrator."""
    require(actor, Action.ADMINISTER)
    marked = ProductionMark.objects.filter(deployment=deployment)
    if production == marked.exists():
        return
    with transaction.atomic():
        if production:
            ProductionMark.objects.create(
                deployment=deployment, marked_by=actor if isinstance(actor, User) else None
            )
        else:
            marked.delete()
        verb = "deployment.production" if production else "deployment.not_production"
        audit.record(actor, verb, deployment)


def of_study(study: Study, arm: int, repeat: int) -> LoadRun:
    """Queue one run of a study. Raises as start_run does."""
    scenario = inputs.scenario({**study.scenario, "target": study.arms[arm]["deployment"]})
    return begin(
        study.requested_by or "study",
        scenario,
        allowed=study.allow_production,
        # Servers made for a study are nobody's; beside whom they run was looked at when it began.
        limited=not study.arms[arm]["own"],
        study=study,
        arm=arm,
        repeat=repeat,
        seed=(study.seed + repeat) % SEEDS,
    )
