"""Engines are deleted by people."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from django.db import models, transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit, ids
from apps.core.exceptions import NotPossibleNow
from apps.core.transitions import transition
from apps.engines import paths, states
from apps.engines.models import Build, Engine


def delete_engine(actor: audit.Actor, engine: Engine) -> Engine:
    """Delete an engine's files; its row stays as history. Raises NotPossibleNow while anything is served from it."""
    require(actor, Action.OPERATE)
    users = users_of(engine)
    if users:
        raise NotPossibleNow(
            "engine_in_use",
            _("This engine is still used by: %(users)s.") % {"users": ", ".join(users[:5])},
            remedy=_("Delete those deployments, or wait until no revision of theirs needs it."),
        )
    if not transition(engine, states.DELETED, actor=actor):
        raise NotPossibleNow(
            "engine_deleted", _("This engine was deleted already."), remedy=_("There is nothing to do.")
        )
    folder = paths.engine_folder(engine.fingerprint)
    # Out of the way in one step, so that nobody ever sees half an engine.
    doomed = paths.engines_folder() / f".deleted-{ids.short_id()}"
    try:
        folder.rename(doomed)
    except FileNotFoundError:
        return engine
    shutil.rmtree(doomed, ignore_errors=True)
    return engine


def forget_history(checkpoint: models.Model) -> None:
    """Remove the ended builds and deleted engines of a checkpoint that is being deleted, or refuse.

    Raises NotPossibleNow while a build of it runs. Live engines and profiles protect it by their foreign keys.
    """
    builds = Build.objects.filter(checkpoint_id=checkpoint.pk)
    running = builds.filter(state__in=states.BUILD.active).first()
    if running is not None:
        raise NotPossibleNow(
            "checkpoint_in_use",
            _("Build #%(number)s is still reading it.") % {"number": running.number},
            remedy=_("Cancel that build first."),
        )
    folders = [paths.build_folder(build.number, n) for build in builds for n in range(1, build.attempt + 1)]
    builds.delete()
    Engine.objects.filter(checkpoint_id=checkpoint.pk, state=states.DELETED).delete()

    def remove() -> None:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    transaction.on_commit(remove)


def users_of(engine: Engine) -> list[str]:
    """Names of the rows of other apps that hold the engine by a protecting foreign key; no app is known by name."""
    return sorted(set(_protected_by(engine)))


def _protected_by(engine: Engine) -> Iterator[str]:
    """Rows of other apps that hold the engine by a protecting foreign key; engines knows none of them by name."""
    for relation in engine._meta.related_objects:
        if getattr(relation, "on_delete", None) is models.PROTECT:
            rows = relation.related_model._default_manager.filter(**{relation.field.name: engine})
            yield from (str(row) for row in rows[:5])
