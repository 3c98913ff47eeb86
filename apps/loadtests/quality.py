"""Quality runs are started, cancelled and deleted by people; gates say what a build must keep."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit
from apps.core.exceptions import InvalidInput, NotPossibleNow
from apps.core.jobs import ask_to_cancel, create_numbered, delete_audited, refuse_unended
from apps.core.transitions import announce
from apps.engines import selectors as engine_selectors
from apps.engines import states as engine_states
from apps.engines.models import BuildProfile, Engine
from apps.loadtests import dispatch, states, waking
from apps.loadtests.models import QualityGate, QualityRun, QualityWaiver
from apps.loadtests.policy import (
    MOST_QUALITY_ANSWER_TOKENS,
    MOST_QUALITY_WINDOWS,
    QUALITY_ANSWER_TOKENS,
    QUALITY_WINDOWS,
)
from apps.loadtests.runs import contended_runs
from apps.serving.inputs import assign
from apps.serving.models import Deployment

GATE_FIELDS = (
    "name",
    "build_profile",
    "max_perplexity_ratio",
    "max_divergence",
    "min_top1",
    "min_agreement",
    "blocking",
)
# Builders whose engines llama.cpp reads.
WITH_LOGITS = ("llamacpp",)


def start_quality_run(
    actor: User | str,
    engine: Engine,
    baseline: Engine | None = None,
    *,
    windows: int = QUALITY_WINDOWS,
    answer_tokens: int = QUALITY_ANSWER_TOKENS,
) -> QualityRun:
    """Compare a build's log-probabilities with those of its source: another engine, or (null) its checkpoint's file.

    Raises InvalidInput (builders without log-probabilities, another model, sizes), NotPossibleNow (files gone).
    """
    require(actor, Action.OPERATE)
    return _begin(actor, **_of_engines(engine, baseline, windows, answer_tokens))


def start_answer_run(
    actor: User | str,
    deployment: Deployment,
    baseline: Deployment,
    *,
    answer_tokens: int = QUALITY_ANSWER_TOKENS,
) -> QualityRun:
    """Compare what two deployments that serve answer to the golden prompts, greedily; any engine will do.

    Raises InvalidInput (the same twice, sizes), NotPossibleNow (one does not serve).
    """
    require(actor, Action.OPERATE)
    return _begin(actor, **_of_deployments(deployment, baseline, answer_tokens))


def cancel_quality_run(actor: User | str, row: QualityRun) -> QualityRun:
    """Cancel a run: a queued one at once, a running one within seconds. What it wrote helps a later one."""
    require(actor, Action.OPERATE)
    return ask_to_cancel(
        actor, row, "qualityrun.cancel", before_it_began=_("Cancelled before it began."), ended=_has_ended
    )


def _has_ended(row: QualityRun) -> NotPossibleNow:
    return NotPossibleNow(
        "run_ended",
        _("Quality run #%(number)s has ended: %(state)s.") % {"number": row.number, "state": row.state},
        remedy=_("There is nothing to cancel."),
    )


def repeat_quality_run(actor: User | str, row: QualityRun) -> QualityRun:
    """Run an ended comparison again; one that failed or was cancelled goes on where it stopped.

    Raises as the start does.
    """
    require(actor, Action.OPERATE)
    if not row.is_terminal:
        raise NotPossibleNow(
            "run_not_ended",
            _("Quality run #%(number)s is %(state)s.") % {"number": row.number, "state": row.state},
            remedy=_("Wait until it ends, or cancel it."),
        )
    if row.method == QualityRun.Method.LOGITS and row.engine is not None:
        columns = _of_engines(row.engine, row.baseline, **row.settings)
    elif row.deployment is not None and row.baseline_deployment is not None:
        tokens = row.settings["answer_tokens"]
        columns = _of_deployments(row.deployment, row.baseline_deployment, tokens)
    else:
        raise NotPossibleNow("gone", _("What it compared is gone."), remedy=_("Start another run."))
    # The rows that one which did not come to its end left are checked by what they depend on before they are used.
    return _begin(actor, folder="" if row.state == states.SUCCEEDED else row.folder, **columns)


def delete_quality_run(actor: User | str, row: QualityRun) -> None:
    """Delete a run that has ended, with its files."""
    require(actor, Action.OPERATE)
    said = _("Quality run #%(number)s is %(state)s.") % {"number": row.number, "state": row.state}
    refuse_unended(row, "run_not_ended", said, _("Cancel it first."))
    folder, shared = row.folder, QualityRun.objects.filter(folder=row.folder).exclude(pk=row.pk).exists()
    delete_audited(actor, row)
    if folder and not shared:
        shutil.rmtree(Path(folder), ignore_errors=True)


def save_quality_gate(
    actor: User | str, data: Mapping[str, Any], instance: QualityGate | None = None
) -> QualityGate:
    """Create a gate, or change one (`instance`). `build_profile` is a row or its name. Raises InvalidInput."""
    require(actor, Action.CONFIGURE)
    created = instance is None
    row = QualityGate.objects.get(pk=instance.pk) if instance is not None else QualityGate()
    values = dict(data)
    if isinstance(values.get("build_profile"), str):
        values["build_profile"] = engine_selectors.build_profile(values["build_profile"])
    changes = assign(row, values, GATE_FIELDS)
    if not row.thresholds.given:
        raise InvalidInput(
            "no_threshold",
            _("The gate asks for nothing."),
            field="max_perplexity_ratio",
            remedy=_("Give at least one bound, as a perplexity ratio of at most 1.05."),
        )
    if not created and not changes:
        return row
    with transaction.atomic():
        row.save()
        verb = "qualitygate.created" if created else "qualitygate.changed"
        audit.record(actor, verb, row, detail={"changes": changes})
    return row


def delete_quality_gate(actor: User | str, row: QualityGate) -> None:
    """Delete a gate: engines of its profile are asked for nothing any more."""
    require(actor, Action.CONFIGURE)
    with transaction.atomic():
        audit.record(actor, "qualitygate.deleted", row)
        row.delete()


def waive_quality_gate(actor: User | str, engine: Engine, why: str) -> QualityWaiver:
    """Let an engine be deployed whatever its gate says; needs an administrator and a reason."""
    require(actor, Action.ADMINISTER)
    if not why.strip():
        raise InvalidInput(
            "no_reason",
            _("A waiver needs a reason."),
            field="why",
            remedy=_("Say why this engine may pass; it stands in the audit trail."),
        )
    with transaction.atomic():
        row, _made = QualityWaiver.objects.update_or_create(
            engine=engine,
            defaults={
                "why": why.strip()[:500],
                "waived_by": actor if isinstance(actor, User) else None,
            },
        )
        audit.record(actor, "engine.quality_waived", engine, sentence=row.why)
        announce(engine)
    return row


def end_quality_waiver(actor: User | str, engine: Engine) -> None:
    """Let the gate hold for an engine again. What serves goes on serving."""
    require(actor, Action.ADMINISTER)
    with transaction.atomic():
        if QualityWaiver.objects.filter(engine=engine).delete()[0]:
            audit.record(actor, "engine.quality_waiver_ended", engine)
            announce(engine)


def _of_engines(engine: Engine, baseline: Engine | None, windows: int, answer_tokens: int) -> dict[str, Any]:
    for each in (engine, *([baseline] if baseline is not None else [])):
        _require_file(each)
    if baseline is not None and baseline.checkpoint_id != engine.checkpoint_id:
        raise InvalidInput(
            "other_checkpoint",
            _("%(one)s and %(other)s were made of different checkpoints.")
            % {"one": engine, "other": baseline},
            field="baseline",
            remedy=_("Choose an engine of %(name)s, or none: its checkpoint.")
            % {"name": engine.checkpoint.name},
        )
    if baseline is None and not engine.checkpoint.path.endswith(".gguf"):
        raise InvalidInput(
            "no_source_file",
            _("The checkpoint %(name)s is no GGUF file that llama.cpp could read.")
            % {"name": engine.checkpoint.name},
            field="baseline",
            remedy=_("Name an engine to compare with, or compare two deployments."),
        )
    against = baseline.quantization if baseline is not None else engine.checkpoint.name
    return {
        "method": QualityRun.Method.LOGITS,
        "engine": engine,
        "baseline": baseline,
        "title": f"{engine.checkpoint.name} {engine.quantization} / {against}",
        "settings": _sizes(windows, answer_tokens),
    }


def _of_deployments(deployment: Deployment, baseline: Deployment, answer_tokens: int) -> dict[str, Any]:
    if deployment.pk == baseline.pk:
        raise InvalidInput(
            "same_deployment",
            _("A deployment cannot be compared with itself."),
            field="baseline",
            remedy=_("Choose the deployment that serves its source."),
        )
    for field, row in (("deployment", deployment), ("baseline", baseline)):
        if not waking.serves_or_wakes(row):
            raise NotPossibleNow(
                "nothing_serving",
                _("No instance of %(name)s is serving.") % {"name": row.name},
                field=field,
                remedy=_("Deploy it first."),
            )
    revision = deployment.active_revision
    return {
        "method": QualityRun.Method.ANSWERS,
        "engine": revision.engine if revision is not None else None,
        "deployment": deployment,
        "baseline_deployment": baseline,
        "title": f"{deployment.name} / {baseline.name}",
        "settings": _sizes(1, answer_tokens),
    }


def file_of(engine: Engine) -> Path:
    """The GGUF file of an engine."""
    return Path(engine.path) / "model.gguf"


def _require_file(engine: Engine) -> None:
    if engine.builder not in WITH_LOGITS:
        raise InvalidInput(
            "no_log_probabilities",
            _("Engines of %(builder)s are not read by llama.cpp, so their log-probabilities are not known.")
            % {"builder": engine.builder},
            field="engine",
            remedy=_("Serve both and compare their greedy answers: a run over two deployments."),
        )
    if engine.state != engine_states.READY:
        raise NotPossibleNow(
            "engine_not_ready",
            _("The engine %(engine)s is %(state)s.") % {"engine": engine, "state": engine.state},
            field="engine",
            remedy=_("Build it again first."),
        )


def _sizes(windows: int, answer_tokens: int) -> dict[str, int]:
    for field, value, least, most in (
        ("windows", windows, 1, MOST_QUALITY_WINDOWS),
        ("answer_tokens", answer_tokens, 1, MOST_QUALITY_ANSWER_TOKENS),
    ):
        if not least <= value <= most:
            raise InvalidInput(
                "out_of_range",
                _("%(field)s must be from %(least)d to %(most)d.")
                % {"field": field, "least": least, "most": most},
                field=field,
                remedy=_("Leave it out for the default."),
            )
    return {"windows": windows, "answer_tokens": answer_tokens}


def _begin(actor: User | str, **columns: Any) -> QualityRun:
    def create(number: int) -> QualityRun:
        row = QualityRun.objects.create(
            state=states.QUALITYRUN.initial,
            number=number,
            requested_by=actor if isinstance(actor, User) else None,
            **columns,
        )
        audit.record(actor, "qualityrun.queued", row, to_state=row.state)
        announce(row)
        dispatch.on_commit(row)
        return row

    return create_numbered(QualityRun, create, contended_runs())


def profile_of(engine: Engine) -> BuildProfile | None:
    """The build profile that an engine was last made by."""
    build = engine.builds.select_related("profile").filter(profile__isnull=False).order_by("-number").first()
    return build.profile if build is not None else None
