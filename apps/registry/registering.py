"""Checkpoints are registered, pointed elsewhere, inspected again and deleted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit
from apps.core.exceptions import InflightError, InvalidInput, NotPossibleNow
from apps.core.names import NAME_PATTERN, RESERVED_NAMES
from apps.core.transitions import amend, announce, transition
from apps.registry import inspection, states
from apps.registry.domain.sources import Located, Source, locate, locate_path, parse_source, refuse_pickles
from apps.registry.hub import dispatch
from apps.registry.hub.folders import remove_fetched
from apps.registry.models import Checkpoint
from apps.registry.selectors import allowed_roots, archive_roots, checkpoints_folder
from apps.registry.signals import checkpoint_deleting


def register_checkpoint(actor: audit.Actor, name: str, source: object) -> Checkpoint:
    """Register weights under a name; needs the right to configure.

    `source` is {"demo": name} | {"path": absolute path} | {"archive": absolute path} | {"huggingface": {"repo":,
    "revision":, "files": [names or patterns]}}, with "pickle": true where pickle files are accepted. Files on this
    host are inspected at once: what is there but not usable gives a row in state refused with reason, sentence and
    remedy. Everything else waits as registered for the load worker, which fetches or unpacks it. Raises InvalidInput,
    naming `name` or `source...`, where nothing can be registered at all.
    """
    require(actor, Action.CONFIGURE)
    check_name(name)
    parsed, located = _find(actor, source)
    try:
        with transaction.atomic():
            checkpoint = Checkpoint.objects.create(
                name=name,
                source=parsed.as_dict(),
                path=str(located.path) if located else "",
                state=states.CHECKPOINT.initial,
            )
            audit.record(actor, "checkpoint.registered", checkpoint, to_state=checkpoint.state)
            announce(checkpoint)
            if located is None:
                dispatch.on_commit(checkpoint)
    except IntegrityError as error:
        raise InvalidInput(
            "name_taken",
            _("There already is a checkpoint %(name)s.") % {"name": name},
            field="name",
            remedy=_("Choose another name, or inspect that one again."),
        ) from error
    if located is not None:
        _inspect(actor, checkpoint, located)
    return checkpoint


def change_source(actor: audit.Actor, checkpoint: Checkpoint, source: object) -> Checkpoint:
    """Point a checkpoint at other weights and inspect or fetch them; engines keep what they were built from."""
    require(actor, Action.CONFIGURE)
    parsed, located = _find(actor, source)
    back_to_registered(actor, checkpoint, located, source=parsed.as_dict(), commit="", folder="")
    if located is not None:
        _inspect(actor, checkpoint, located)
    return checkpoint


def inspect_again(actor: audit.Actor, checkpoint: Checkpoint) -> Checkpoint:
    """Read the headers again, after a file was replaced or came back; what was fetched and is gone is fetched."""
    require(actor, Action.CONFIGURE)
    located: Located | None
    if checkpoint.folder and Path(checkpoint.folder).is_dir():
        located = locate_path(Path(checkpoint.folder), allowed_roots())
    else:
        _parsed, located = _find(actor, checkpoint.source)
    back_to_registered(actor, checkpoint, located)
    if located is not None:
        _inspect(actor, checkpoint, located)
    return checkpoint


def delete_checkpoint(actor: audit.Actor, checkpoint: Checkpoint, files: bool = False) -> None:
    """Forget a checkpoint and its finished builds. Raises NotPossibleNow while something uses it or it is fetched.

    `files`: remove what Inflight itself fetched or unpacked for it too, unless another checkpoint uses that. Files
    that people put there stay in any case; what was fetched in part goes always.
    """
    require(actor, Action.CONFIGURE)
    refuse_busy(checkpoint)
    folder = checkpoint.folder
    try:
        with transaction.atomic():
            checkpoint_deleting.send(sender=Checkpoint, checkpoint=checkpoint)
            removed = bool(files and folder)
            audit.record(
                actor,
                "checkpoint.deleted",
                checkpoint,
                from_state=checkpoint.state,
                detail={"files_removed": removed, "folder": folder},
            )
            checkpoint.delete()
            if folder and not Checkpoint.objects.filter(folder=folder).exists():
                transaction.on_commit(lambda: remove_fetched(Path(folder), whole=files))
    except ProtectedError as error:
        users = ", ".join(sorted({f"{row._meta.verbose_name} {row}" for row in error.protected_objects})[:5])
        raise NotPossibleNow(
            "checkpoint_in_use",
            _("%(name)s is still used by: %(users)s.") % {"name": checkpoint.name, "users": users},
            remedy=_("Delete those first."),
        ) from error


def check_name(name: str, field: str = "name") -> None:
    """Raise InvalidInput unless `name` may be the public name of an object."""
    if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name) or name in RESERVED_NAMES:
        raise InvalidInput(
            "name_invalid",
            _("%(name)s cannot be a name.") % {"name": repr(name)},
            field=field,
            remedy=_(
                "Use lower-case letters, digits, dots, dashes and underscores; begin with a letter or digit; "
                "at most 63."
            ),
        )


def _find(actor: audit.Actor, source: object) -> tuple[Source, Located | None]:
    parsed = parse_source(source)
    if parsed.archive is not None:
        require(actor, Action.AUTHOR_CODE)
    return parsed, locate(
        parsed, checkpoints_folder(), archive_roots() if parsed.archive else allowed_roots()
    )


def refuse_busy(checkpoint: Checkpoint) -> None:
    """Raise NotPossibleNow while a worker holds the checkpoint."""
    if checkpoint.state in states.HELD:
        raise NotPossibleNow(
            "checkpoint_busy",
            _("%(name)s is being fetched.") % {"name": checkpoint.name},
            remedy=_("Cancel that first, or wait for its end."),
        )


def back_to_registered(
    actor: audit.Actor, checkpoint: Checkpoint, located: Located | None, **columns: Any
) -> None:
    """Take a checkpoint back to its beginning; one whose files are elsewhere waits for the load worker."""
    refuse_busy(checkpoint)
    fresh: dict[str, Any] = {
        "path": str(located.path) if located else "",
        "retries": 0,
        "offered": [],
        "cancel_requested_at": None,
        "dispatched_at": None,
        "not_before": None,
        **columns,
    }
    with transaction.atomic():
        if checkpoint.state == states.REGISTERED:
            # An inspection that was cut off by a crash leaves the row here, or it waits for a worker: go on from it.
            moved = amend(checkpoint, states=[states.REGISTERED], reason="", sentence="", remedy="", **fresh)
        else:
            resting = [states.REFUSED, states.MISSING, states.READY, states.FAILED, states.CANCELLED]
            moved = transition(
                checkpoint,
                states.REGISTERED,
                actor=actor,
                sources=resting,
                verb="checkpoint.inspect",
                **fresh,
            )
        if moved and located is None:
            dispatch.on_commit(checkpoint)
    if not moved:
        raise NotPossibleNow(
            "checkpoint_changed",
            _("Somebody else just changed %(name)s.") % {"name": checkpoint.name},
            remedy=_("Look at its page and try again."),
        )


def _inspect(actor: audit.Actor, checkpoint: Checkpoint, located: Located) -> None:
    try:
        refuse_pickles(located, bool(checkpoint.source.get("pickle")))
        found = inspection.inspect(located)
    except InflightError as error:
        known = error.found if isinstance(error, inspection.Refusal) else None
        _refuse(actor, checkpoint, error.code, error.sentence, error.remedy, known)
    except OSError as error:
        sentence = _("%(path)s cannot be read: %(why)s.") % {
            "path": located.path,
            "why": error.strerror or error,
        }
        _refuse(
            actor, checkpoint, "unreadable", sentence, _("Make it readable for the user that runs Inflight.")
        )
    else:
        transition(
            checkpoint,
            states.READY,
            actor=actor,
            format=found.form,
            size_bytes=found.size_bytes,
            sha256=found.sha256,
            facts=found.facts,
            chat_template=found.chat_template,
        )


def _refuse(
    actor: audit.Actor,
    checkpoint: Checkpoint,
    reason: str,
    sentence: str,
    remedy: str,
    found: inspection.Inspected | None = None,
) -> None:
    """What is known of a checkpoint stays on its row, though it is not to be used."""
    columns: dict[str, Any] = {
        "format": found.form if found else "",
        "size_bytes": found.size_bytes if found else None,
        "sha256": found.sha256 if found else "",
        "facts": found.facts if found else {},
        "chat_template": found.chat_template if found else "",
    }
    transition(
        checkpoint, states.REFUSED, actor=actor, reason=reason, sentence=sentence, remedy=remedy, **columns
    )
