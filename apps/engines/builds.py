"""Builds are started, cancelled and tried again by people. Workers' own functions are in attempts.py."""

from __future__ import annotations

import shutil
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit, clock
from apps.core.exceptions import InfrastructureError, InvalidInput, NotPossibleNow
from apps.core.jobs import ask_to_cancel
from apps.core.transitions import announce, transition
from apps.engines import dispatch, paths, states
from apps.engines.domain.build_spec import DISK_RESERVE_BYTES
from apps.engines.domain.trtllm.spec import TrtllmSpec
from apps.engines.frozen import Spec, choose_again, compose_spec, freeze_trtllm, read_spec
from apps.engines.models import Build, BuildProfile, Engine
from apps.engines.requests import model_facts, source_of
from apps.engines.selectors import estimated_bytes, findings_for, freeze, spec_of
from apps.registry import states as checkpoint_states
from apps.registry.models import Checkpoint

# Two starts at the same moment may choose the same number; the loser looks again.
NUMBER_TRIES = 5


def start_build(actor: audit.Actor, profile: BuildProfile) -> Build:
    """Start a build of a profile as it stands; needs the right to operate.

    Where the same specification is already being built, that build is returned; where its engine is ready, a build
    that succeeded at once (`reused`). Raises InvalidInput or NotPossibleNow (checkpoint not ready), and
    InfrastructureError `disk_full`.
    """
    require(actor, Action.OPERATE)
    _require_ready(profile.checkpoint)
    if profile.builder == BuildProfile.Builder.TRTLLM:
        spec = freeze_trtllm(profile, must_fit=True)
        _require_composed(spec, profile.checkpoint)
        return _start(actor, spec, profile.checkpoint, profile)
    _require_sound(profile.checkpoint, profile.builder, profile.quantization, profile.options)
    return _start(actor, freeze(profile), profile.checkpoint, profile)


def start_spec(actor: audit.Actor, spec: TrtllmSpec, profile: BuildProfile) -> Build:
    """Start a build of a specification that was chosen already, as start_build does for a profile."""
    require(actor, Action.OPERATE)
    _require_ready(profile.checkpoint)
    _require_composed(spec, profile.checkpoint)
    return _start(actor, spec, profile.checkpoint, profile)


def retry_build(actor: audit.Actor, build: Build) -> Build:
    """Start a new build of a failed or cancelled build's own specification. Raises as start_build does."""
    require(actor, Action.OPERATE)
    if build.state not in {states.FAILED, states.CANCELLED}:
        raise NotPossibleNow(
            "build_not_ended",
            _("Build #%(number)s is %(state)s; only a failed or cancelled one can be tried again.")
            % {"number": build.number, "state": build.state},
            remedy=_("Wait until it ends, or cancel it first."),
        )
    old = read_spec(build.spec)
    _require_ready(build.checkpoint)
    if isinstance(old, TrtllmSpec):
        release = build.profile.tensorrt_llm if build.profile else ""
        again = choose_again(old.model_copy(update={"source": source_of(build.checkpoint)}), release)
        _require_composed(again, build.checkpoint)
        return _start(actor, again, build.checkpoint, build.profile)
    _require_sound(build.checkpoint, old.builder, old.quantization, old.options)
    # The same settings on the checkpoint as it is now: an inspected, replaced file is a new input.
    spec = spec_of(build.checkpoint, old.builder, old.quantization, old.options)
    return _start(actor, spec, build.checkpoint, build.profile)


def cancel_build(actor: audit.Actor, build: Build) -> Build:
    """Cancel a build: a queued one at once, a running one as soon as its worker has ended it (under 5 s)."""
    require(actor, Action.OPERATE)
    return ask_to_cancel(
        actor, build, "build.cancel", before_it_began=_("Cancelled before it began."), ended=_has_ended
    )


def _has_ended(build: Build) -> NotPossibleNow:
    return NotPossibleNow(
        "build_ended",
        _("Build #%(number)s has ended: %(state)s.") % {"number": build.number, "state": build.state},
        remedy=_("There is nothing to cancel."),
    )


def _start(actor: audit.Actor, spec: Spec, checkpoint: Checkpoint, profile: BuildProfile | None) -> Build:
    fingerprint = spec.fingerprint()
    for _try in range(NUMBER_TRIES):
        active = Build.objects.filter(fingerprint=fingerprint, state__in=states.BUILD.active).first()
        if active is not None:
            return active
        engine = _ready_engine(fingerprint)
        if engine is None:
            require_disk(estimated_bytes(checkpoint, spec.quantization))
        try:
            return _create(actor, spec, checkpoint, profile, engine)
        except IntegrityError:
            continue
    raise InfrastructureError(
        "build_contended",
        _("Too many builds are being started at once."),
        remedy=_("Try again in a moment."),
    )


def _create(
    actor: audit.Actor,
    spec: Spec,
    checkpoint: Checkpoint,
    profile: BuildProfile | None,
    engine: Engine | None,
) -> Build:
    with transaction.atomic():
        highest = Build.objects.aggregate(highest=Max("number"))["highest"] or 0
        build = Build.objects.create(
            state=states.BUILD.initial,
            number=highest + 1,
            profile=profile,
            checkpoint=checkpoint,
            spec=spec.model_dump(mode="json", by_alias=True),
            fingerprint=spec.fingerprint(),
            requested_by=actor if isinstance(actor, User) else None,
        )
        audit.record(actor, "build.queued", build, to_state=build.state)
        announce(build)
        if engine is None:
            dispatch.on_commit(build)
            return build
        transition(
            build,
            states.SUCCEEDED,
            actor=actor,
            verb="build.reused",
            sentence=_("The same engine exists already and is used again."),
            engine=engine,
            node=engine.node,
            reused=True,
            progress=1.0,
            finished_at=clock.now(),
        )
    return build


def _ready_engine(fingerprint: str) -> Engine | None:
    """The engine if its row is ready and its files are there; the sweep marks one whose files are gone."""
    engine = Engine.objects.filter(fingerprint=fingerprint, state=states.READY).first()
    here = engine is not None and (paths.engine_folder(fingerprint) / "manifest.json").is_file()
    return engine if here else None


def _require_ready(checkpoint: Checkpoint) -> None:
    if checkpoint.state == checkpoint_states.READY:
        return
    raise NotPossibleNow(
        "checkpoint_not_ready",
        _("The checkpoint %(name)s is %(state)s.") % {"name": checkpoint.name, "state": checkpoint.state}
        + (f" {checkpoint.sentence}" if checkpoint.sentence else ""),
        field="checkpoint",
        remedy=checkpoint.remedy or _("Inspect it again, or choose another checkpoint."),
    )


def _require_sound(checkpoint: Checkpoint, builder: str, quantization: str, options: dict[str, Any]) -> None:
    findings = findings_for(checkpoint, builder, quantization, options)
    errors = tuple(finding for finding in findings if finding.severity == "error")
    if errors:
        first = errors[0]
        raise InvalidInput(first.id, first.message, field=first.where, remedy=first.remedy, findings=errors)


def _require_composed(spec: TrtllmSpec, checkpoint: Checkpoint) -> None:
    """Raise InvalidInput where the composer refuses the request on the chosen toolchain."""
    composed = compose_spec(spec, str(paths.build_folder(0, 0)), model_facts(checkpoint))
    errors = tuple(found for found in composed.findings if found.severity == "error")
    if errors:
        first = errors[0]
        raise InvalidInput(first.id, first.message, field=first.where, remedy=first.remedy, findings=errors)


def require_disk(needed: int | None) -> None:
    """Raise InfrastructureError `disk_full` where the engine would not fit on the disk of the engines' folder."""
    folder = paths.engines_folder()
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    wanted = (needed or 0) + DISK_RESERVE_BYTES
    if free < wanted:
        raise InfrastructureError(
            "disk_full",
            _("The engine needs about %(needed)s GB, and %(folder)s has %(free)s GB free.")
            % {"needed": f"{wanted / 1e9:.1f}", "folder": folder, "free": f"{free / 1e9:.1f}"},
            remedy=_("Delete engines that are no longer needed, or free space on that disk."),
            facts={"needed_bytes": wanted, "free_bytes": free},
        )
