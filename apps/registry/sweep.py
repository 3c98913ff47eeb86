"""Noticing files that are gone."""

from __future__ import annotations

from pathlib import Path

from django.utils.translation import gettext as _

from apps.core.transitions import transition
from apps.registry import states
from apps.registry.models import Checkpoint


def sweep() -> list[Checkpoint]:
    """Mark ready checkpoints whose file is gone; returns them."""
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
