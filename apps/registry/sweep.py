"""Noticing files that are gone, sending waiting checkpoints again, removing what nobody fetches any more."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.utils.translation import gettext as _

from apps.core.transitions import transition
from apps.registry import states
from apps.registry.hub import dispatch
from apps.registry.hub.folders import PARTIAL, partial_of
from apps.registry.hub.policy import LEFTOVER_SECONDS
from apps.registry.models import Checkpoint
from apps.registry.selectors import checkpoints_folder, fetches_folder, uploads_folder


def sweep() -> list[Checkpoint]:
    """Mark ready checkpoints whose file is gone; returns them. Send waiting ones again."""
    dispatch.resend()
    _remove_leftovers()
    gone = [row for row in Checkpoint.objects.filter(state=states.READY) if not Path(row.path).exists()]
    return [
        row
        for row in gone
        if transition(
            row,
            states.MISSING,
            actor="sweep",
            reason="file_missing",
            sentence=_("%(path)s is gone.") % {"path": row.path},
            remedy=_("Put the file back and inspect it again; engines already built are not affected."),
        )
    ]


def _remove_leftovers() -> None:
    """Remove old halves that no row will go on with, and uploads that no row names."""
    kept = {partial_of(Path(folder)).name for folder in _column("folder") if folder}
    _remove_old(checkpoints_folder().glob(f".*{PARTIAL}"), kept)
    named = {Path(source["archive"]).name for source in _column("source") if "archive" in source}
    _remove_old(uploads_folder().glob("*"), named)
    _remove_old(fetches_folder().glob("*"), {str(pk) for pk in _column("pk")})


def _column(name: str) -> Iterable[Any]:
    return Checkpoint.objects.values_list(name, flat=True)


def _remove_old(paths: Iterable[Path], kept: set[str]) -> None:
    oldest = time.time() - LEFTOVER_SECONDS
    for path in paths:
        with contextlib.suppress(OSError):
            if path.name in kept or path.stat().st_mtime > oldest:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
