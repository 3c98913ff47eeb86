"""Reading checkpoints."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from apps.core.exceptions import NotFound
from apps.registry.models import Checkpoint, HubAccess


def checkpoints() -> QuerySet[Checkpoint]:
    """All checkpoints by name."""
    return Checkpoint.objects.all()


def checkpoint(name: str) -> Checkpoint:
    """One checkpoint by its name. Raises NotFound."""
    found = Checkpoint.objects.filter(name=name).first()
    if found is None:
        raise NotFound(
            "checkpoint_unknown",
            _("There is no checkpoint %(name)s.") % {"name": name},
            remedy=_("Register it, or see the list of checkpoints."),
        )
    return found


def checkpoints_folder() -> Path:
    """The home's own folder of checkpoints."""
    return Path(settings.INFLIGHT_HOME) / "checkpoints"


def allowed_roots() -> list[Path]:
    """Folders from which checkpoints may be registered by path."""
    return [checkpoints_folder(), *(Path(root) for root in settings.INFLIGHT_CHECKPOINT_ROOTS)]


def uploads_folder() -> Path:
    """Where archives lie that came through the page or the API, until they are unpacked."""
    return Path(settings.INFLIGHT_HOME) / "uploads"


def fetches_folder() -> Path:
    """Where plans and logs of fetches lie, a folder for each checkpoint by its number."""
    return Path(settings.INFLIGHT_HOME) / "fetches"


def archive_roots() -> list[Path]:
    """Folders from which archives may be unpacked."""
    return [*allowed_roots(), uploads_folder()]


def hub_access() -> HubAccess:
    """How hubs are asked; an unsaved row with the defaults before anybody changed it."""
    return HubAccess.objects.first() or HubAccess()
