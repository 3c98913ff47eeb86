"""Checkpoints are registered, inspected again and deleted. Their files are never changed."""

from __future__ import annotations

import re
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit
from apps.core.exceptions import InflightError, InvalidInput, NotPossibleNow
from apps.core.names import NAME_PATTERN, RESERVED_NAMES
from apps.core.transitions import amend, transition
from apps.registry import inspection, states
from apps.registry.domain.sources import Located, Source, locate, parse_source
from apps.registry.models import Checkpoint
from apps.registry.selectors import allowed_roots, checkpoints_folder
from apps.registry.signals import checkpoint_deleting


def register_checkpoint(actor: audit.Actor, name: str, source: object) -> Checkpoint:
    """Register weights under a name and inspect them at once; needs the right to configure.

    `source` is {"demo": name} | {"path": absolute path} | {"huggingface": {"repo":, "revision":}}. A file that is
    there but not usable gives a row in state refused with reason, sentence and remedy. Raises InvalidInput, naming
    `name` or `source...`, where nothing can be registered at all.
    """
    require(actor, Action.CONFIGURE)
    check_name(name)
    parsed, located = _find(source)
    try:
        with transaction.atomic():
            checkpoint = Checkpoint.objects.create(
                name=name, source=parsed.as_dict(), path=str(located.path), state=states.CHECKPOINT.initial
            )
            audit.record(actor, "checkpoint.registered", checkpoint, to_state=checkpoint.state)
    except IntegrityError as error:
        raise InvalidInput(
            "name_taken",
            _("There already is a checkpoint %(name)s.") % {"name": name},
            field="name",
            remedy=_("Choose another name, or inspect that one again."),
        ) from error
    _inspect(actor, checkpoint, located)
    return checkpoint


def change_source(actor: audit.Actor, checkpoint: Checkpoint, source: object) -> Checkpoint:
    """Point a checkpoint at other weights and inspect them; engines that exist keep what they were built from."""
    require(actor, Action.CONFIGURE)
    parsed, located = _find(source)
    _back_to_registered(actor, checkpoint, source=parsed.as_dict(), path=str(located.path))
    _inspect(actor, checkpoint, located)
    return checkpoint


def inspect_again(actor: audit.Actor, checkpoint: Checkpoint) -> Checkpoint:
    """Read the headers again, after a file was replaced or came back."""
    require(actor, Action.CONFIGURE)
    _parsed, located = _find(checkpoint.source)
    _back_to_registered(actor, checkpoint, path=str(located.path))
    _inspect(actor, checkpoint, located)
    return checkpoint


def delete_checkpoint(actor: audit.Actor, checkpoint: Checkpoint) -> None:
    """Forget a checkpoint and its finished builds; the file stays. Raises NotPossibleNow while something uses it."""
    require(actor, Action.CONFIGURE)
    try:
        with transaction.atomic():
            checkpoint_deleting.send(sender=Checkpoint, checkpoint=checkpoint)
            audit.record(actor, "checkpoint.deleted", checkpoint, from_state=checkpoint.state)
            checkpoint.delete()
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


def _find(source: object) -> tuple[Source, Located]:
    parsed = parse_source(source)
    return parsed, locate(parsed, checkpoints_folder(), allowed_roots())


def _back_to_registered(actor: audit.Actor, checkpoint: Checkpoint, **columns: Any) -> None:
    if checkpoint.state == states.REGISTERED:
        # An inspection that was cut off by a crash leaves the row here; go on from it.
        amend(checkpoint, states=[states.REGISTERED], **columns)
    elif not transition(checkpoint, states.REGISTERED, actor=actor, verb="checkpoint.inspect", **columns):
        raise NotPossibleNow(
            "checkpoint_changed",
            _("Somebody else just changed %(name)s.") % {"name": checkpoint.name},
            remedy=_("Look at its page and try again."),
        )


def _inspect(actor: audit.Actor, checkpoint: Checkpoint, located: Located) -> None:
    try:
        found = inspection.inspect(located)
    except InflightError as error:
        _refuse(actor, checkpoint, error.code, error.sentence, error.remedy)
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


def _refuse(actor: audit.Actor, checkpoint: Checkpoint, reason: str, sentence: str, remedy: str) -> None:
    empty: dict[str, Any] = {"format": "", "size_bytes": None, "sha256": "", "facts": {}, "chat_template": ""}
    transition(
        checkpoint, states.REFUSED, actor=actor, reason=reason, sentence=sentence, remedy=remedy, **empty
    )
