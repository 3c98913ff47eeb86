"""What people do with a checkpoint that is fetched: cancel, try again, choose a file, bring an archive."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from django.conf import settings
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit, clock
from apps.core.exceptions import InfrastructureError, InvalidInput, NotPossibleNow
from apps.core.transitions import amend, transition
from apps.registry import states
from apps.registry.domain.sources import ARCHIVE_ENDINGS, parse_source
from apps.registry.hub.policy import DISK_MARGIN_BYTES
from apps.registry.models import Checkpoint
from apps.registry.registering import back_to_registered, inspect_again, refuse_busy
from apps.registry.selectors import uploads_folder

RESTING = (states.FAILED, states.CANCELLED, states.REFUSED, states.MISSING)


def cancel_fetch(actor: audit.Actor, checkpoint: Checkpoint) -> Checkpoint:
    """Stop fetching or unpacking; what is here already is kept for another try. Raises NotPossibleNow."""
    require(actor, Action.CONFIGURE)
    waits = checkpoint.state == states.REGISTERED and not checkpoint.path
    if waits and transition(
        checkpoint,
        states.CANCELLED,
        actor=actor,
        sources=[states.REGISTERED],
        reason="cancelled",
        sentence=_("Cancelled before it began."),
        remedy=_("Try again when it shall be fetched."),
        finished_at=clock.now(),
    ):
        return checkpoint
    checkpoint.refresh_from_db()
    if checkpoint.state in states.HELD:
        if checkpoint.cancel_requested_at is None:
            amend(checkpoint, states=states.HELD, cancel_requested_at=clock.now())
            audit.record(actor, "checkpoint.cancel", checkpoint, from_state=checkpoint.state)
        return checkpoint
    raise NotPossibleNow(
        "nothing_to_cancel",
        _("%(name)s is not being fetched; it is %(state)s.")
        % {"name": checkpoint.name, "state": checkpoint.state},
        remedy=_("There is nothing to cancel."),
    )


def retry_fetch(actor: audit.Actor, checkpoint: Checkpoint, files: Sequence[str] | None = None) -> Checkpoint:
    """Fetch again what failed, was refused, cancelled or is missing; it goes on where it was, at the same commit.

    `files`: names or patterns, where a person chooses among what the repository has. Raises NotPossibleNow for a
    checkpoint that is not fetched at all, InvalidInput for `files`.
    """
    require(actor, Action.CONFIGURE)
    refuse_busy(checkpoint)
    if not checkpoint.is_fetched or checkpoint.state not in RESTING:
        raise NotPossibleNow(
            "nothing_to_fetch",
            _("%(name)s is %(state)s, and nothing is left to fetch.")
            % {"name": checkpoint.name, "state": checkpoint.state},
            remedy=_("Inspect it again, or point it at another source."),
        )
    if checkpoint.source.get("archive"):
        require(actor, Action.AUTHOR_CODE)
    if files:
        return _choose(actor, checkpoint, files)
    if checkpoint.folder and Path(checkpoint.folder).is_dir():
        # It is here and whole; only its inspection is left.
        return inspect_again(actor, checkpoint)
    back_to_registered(actor, checkpoint, None)
    return checkpoint


def _choose(actor: audit.Actor, checkpoint: Checkpoint, files: Sequence[str]) -> Checkpoint:
    hub = checkpoint.source.get("huggingface")
    if hub is None:
        raise InvalidInput(
            "files_not_chosen_here",
            _("Files are chosen from a hub's repository only."),
            field="files",
            remedy=_("Leave them out."),
        )
    source = parse_source({**checkpoint.source, "huggingface": {**hub, "files": list(files)}})
    back_to_registered(actor, checkpoint, None, source=source.as_dict(), folder="", bytes_done=None)
    return checkpoint


def keep_upload(actor: audit.Actor, name: str, chunks: Iterable[bytes], size: int | None = None) -> Path:
    """Keep an archive that came over the network until a checkpoint unpacks it; returns its path.

    Needs the rights to configure and to bring in code. `size` in bytes, where the sender said it. Raises InvalidInput
    for another kind of file or one larger than INFLIGHT_UPLOAD_BYTES, InfrastructureError where the disk is full.
    """
    require(actor, Action.CONFIGURE)
    require(actor, Action.AUTHOR_CODE)
    ending = next((end for end in ARCHIVE_ENDINGS[::-1] if name.lower().endswith(end)), None)
    if ending is None:
        raise InvalidInput(
            "archive_kind_unknown",
            _("%(name)s is no archive that is read here.") % {"name": name[:100]},
            field="upload",
            remedy=_("Upload a file that ends in one of %(endings)s.")
            % {"endings": ", ".join(ARCHIVE_ENDINGS)},
        )
    folder = uploads_folder()
    folder.mkdir(parents=True, exist_ok=True)
    _require_room(folder, size or 0)
    place = folder / f"{secrets.token_hex(8)}{ending}"
    draft = place.with_name(f".{place.name}")
    try:
        _write(draft, chunks)
        draft.rename(place)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    return place


def _write(draft: Path, chunks: Iterable[bytes]) -> None:
    written = 0
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        for chunk in chunks:
            written += len(chunk)
            if written > settings.INFLIGHT_UPLOAD_BYTES:
                raise too_large()
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def too_large() -> InvalidInput:
    """The refusal of an upload beyond the bound."""
    return InvalidInput(
        "upload_too_large",
        _("The upload is larger than %(most)s GB.") % {"most": f"{settings.INFLIGHT_UPLOAD_BYTES / 1e9:.1f}"},
        field="upload",
        remedy=_("Copy the archive to the node and name its path, or have INFLIGHT_UPLOAD_BYTES raised."),
    )


def _require_room(folder: Path, size: int) -> None:
    if size > settings.INFLIGHT_UPLOAD_BYTES:
        raise too_large()
    free = shutil.disk_usage(folder).free
    if free < size + DISK_MARGIN_BYTES:
        raise InfrastructureError(
            "disk_full",
            _("The upload needs %(needed)s GB, and %(folder)s has %(free)s GB free.")
            % {
                "needed": f"{(size + DISK_MARGIN_BYTES) / 1e9:.1f}",
                "folder": folder,
                "free": f"{free / 1e9:.1f}",
            },
            remedy=_("Free space on that disk."),
        )
