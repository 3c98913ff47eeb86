"""Bringing in a model repository that somebody already has: found, checked, kept; see adopting.py for serving it.

Callers reach these as `serving.services`.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, may, require
from apps.core import audit, clock
from apps.core.exceptions import InvalidInput, NotAllowed, NotPossibleNow
from apps.registry import selectors as registry
from apps.registry.domain import archives
from apps.registry.hub.policy import MAX_ENTRIES, MAX_RATIO, RATIO_FREE_BYTES
from apps.registry.registering import check_name
from apps.serving.domain.adopting import files
from apps.serving.domain.repository_check.check import check_repository
from apps.serving.models import ModelRepository
from apps.serving.repository_shapes import RepositorySource

# What is unpacked while somebody waits for the page; more is copied to the node and named by its folder.
UNPACKED_BYTES = 2_000_000_000


def repositories_folder() -> Path:
    """Where archives of repositories are unpacked, each under its hash."""
    return Path(settings.INFLIGHT_HOME) / "repositories"


def allowed_roots() -> list[Path]:
    """Folders from which repositories may be imported by path, and which their links may lead to."""
    return [*registry.allowed_roots(), repositories_folder()]


def import_repository(actor: User | str, name: str, source: Mapping[str, Any]) -> ModelRepository:
    """Bring in a repository under a name and check it; nothing is served yet.

    `source` is {"path": absolute folder inside the allowed ones} or {"archive": path of an upload}, with its sha256
    where it must be a certain one. Files that run
    (.py, .so, archives) need the role code-author. What the check found is on the row and refuses nothing here.
    Raises InvalidInput naming `name` or `source`, NotAllowed.
    """
    require(actor, Action.CONFIGURE)
    check_name(name)
    if ModelRepository.objects.filter(name=name).exists():
        raise _taken(name)
    folder, kept = _folder(actor, source)
    listed = _listed(actor, folder)
    requested_by = actor if isinstance(actor, User) else None
    try:
        with transaction.atomic():
            row = ModelRepository.objects.create(
                name=name, source=kept, created_by=requested_by, **_columns(folder, listed)
            )
            audit.record(actor, "modelrepository.imported", row, detail={"fingerprint": row.fingerprint})
    except IntegrityError as error:
        raise _taken(name) from error
    return row


def check_source(source: Mapping[str, Any], row: ModelRepository | None, look_at_files: bool) -> None:
    """Raise InvalidInput where a repository could not be brought in from there, before anything is written.

    `row`: the one of that name, whose source stays. `look_at_files`: whether the asker may know what lies there.
    """
    if row is not None:
        if not RepositorySource.model_validate(source).is_that_of(row.source):
            raise InvalidInput(
                "source_fixed",
                _("%(name)s was brought in from elsewhere, and its source does not change.")
                % {"name": row.name},
                field="source",
                remedy=_("Import it under another name; deployments are moved by adopting that one."),
            )
        return
    if not look_at_files:
        return
    if source.get("path"):
        _located(str(source["path"]))
    else:
        _archive(Path(str(source.get("archive"))))


def check_again(actor: User | str, repository: ModelRepository) -> ModelRepository:
    """Read the files anew, after somebody changed them; deployments take them at their next press of deploy."""
    require(actor, Action.CONFIGURE)
    folder = Path(repository.folder)
    if not folder.is_dir():
        raise NotPossibleNow(
            "repository_gone",
            _("%(folder)s is not there any more.") % {"folder": folder},
            remedy=_("Bring it back, or delete this repository and import it from its new place."),
        )
    columns = _columns(folder, _listed(actor, folder))
    with transaction.atomic():
        before = repository.fingerprint
        for field, value in columns.items():
            setattr(repository, field, value)
        repository.save()
        if before != repository.fingerprint:
            detail = {"changes": {"fingerprint": [before, repository.fingerprint]}}
            audit.record(actor, "modelrepository.changed", repository, detail=detail)
    return repository


def delete_repository(actor: User | str, repository: ModelRepository) -> None:
    """Forget a repository that no deployment serves; what was unpacked from an archive is removed, too."""
    require(actor, Action.CONFIGURE)
    users = list(repository.deployments.values_list("name", flat=True))
    if users:
        raise NotPossibleNow(
            "repository_in_use",
            _("The repository is served by: %(names)s.") % {"names": ", ".join(users)},
            remedy=_("Delete these deployments first."),
            facts={"deployments": users},
        )
    folder = Path(repository.folder)
    with transaction.atomic():
        audit.record(actor, "modelrepository.deleted", repository)
        repository.delete()
        if not ModelRepository.objects.filter(folder=str(folder)).exists():
            transaction.on_commit(lambda: _remove_unpacked(folder))


def require_unchanged(repository: ModelRepository) -> None:
    """Raise NotPossibleNow where the files are not those that were checked."""
    found = files.fingerprint(files.listing(Path(repository.folder), allowed_roots()))
    if found != repository.fingerprint:
        raise NotPossibleNow(
            "repository_changed",
            _("The files of %(name)s have changed since they were checked.") % {"name": repository.name},
            remedy=_("Check the repository again, look at what is found, then deploy."),
        )


def _folder(actor: User | str, source: Mapping[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Where the files lie, and what the row keeps of the source."""
    if set(source) == {"path"} and isinstance(source["path"], str):
        return _located(source["path"]), {"path": source["path"]}
    if set(source) <= {"archive", "sha256"} and isinstance(source.get("archive"), str):
        require(actor, Action.AUTHOR_CODE)
        return _unpacked(Path(source["archive"]), source.get("sha256"))
    raise InvalidInput(
        "source_form",
        _("The source is neither a folder nor an archive."),
        field="source",
        remedy=_('Write {"path": "/folder"} or {"archive": "/file.tar.gz"}.'),
    )


def _located(given: str) -> Path:
    path = Path(given)
    allowed = [root.resolve() for root in allowed_roots()]
    real = path.resolve() if path.is_absolute() else None
    if real is None or not any(real.is_relative_to(root) for root in allowed):
        raise InvalidInput(
            "path_not_allowed",
            _("%(path)s is not inside a folder from which repositories may be imported.") % {"path": given},
            field="source.path",
            remedy=_("Use one of: %(roots)s; INFLIGHT_CHECKPOINT_ROOTS adds folders.")
            % {"roots": ", ".join(str(root) for root in allowed)},
        )
    if not real.is_dir():
        raise InvalidInput(
            "repository_missing",
            _("%(path)s is no folder.") % {"path": given},
            field="source.path",
            remedy=_("Name the folder that is given to tritonserver as --model-repository."),
        )
    return real


def _archive(archive: Path) -> Path:
    """The real file, if it lies in an allowed folder."""
    allowed = [root.resolve() for root in registry.archive_roots()]
    # An exported document knows the name alone.
    named = [root / archive for root in allowed if not archive.is_absolute() and (root / archive).is_file()]
    real = (named[0] if named else archive).resolve()
    if not real.is_file() or not any(real.is_relative_to(root) for root in allowed):
        raise InvalidInput(
            "archive_not_allowed",
            _("%(path)s is no archive inside an allowed folder.") % {"path": archive},
            field="source.archive",
            remedy=_("Upload it, or copy it to one of: %(roots)s.")
            % {"roots": ", ".join(str(root) for root in allowed)},
        )
    return real


def _unpacked(archive: Path, wanted: str | None = None) -> tuple[Path, dict[str, Any]]:
    """Unpack under the archive's hash, whole or not at all; the same archive again is found there."""
    real = _archive(archive)
    with real.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    if wanted not in (None, digest):
        raise InvalidInput(
            "archive_differs",
            _("%(path)s is another archive: its SHA-256 begins with %(found)s.")
            % {"path": archive, "found": digest[:12]},
            field="source.sha256",
            remedy=_("Bring back the archive that was meant, or leave sha256 out."),
        )
    place = repositories_folder() / digest[:20]
    if not place.is_dir():
        _unpack(real, place)
    return archives.content_root(place), {"archive": archive.name, "sha256": digest}


def _unpack(archive: Path, place: Path) -> None:
    partial = place.with_name(f".{place.name}.{clock.now().timestamp():.6f}")
    partial.mkdir(parents=True)
    bounds = archives.Bounds(MAX_ENTRIES, UNPACKED_BYTES, MAX_RATIO, RATIO_FREE_BYTES)
    try:
        with archive.open("rb") as handle:
            archives.unpack(handle, archive.stat().st_size, partial, bounds, lambda _count: None)
        partial.rename(place)
    except archives.ArchiveRefused as refused:
        raise InvalidInput(
            refused.reason, refused.sentence, field="source.archive", remedy=refused.remedy
        ) from refused
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _listed(actor: User | str, folder: Path) -> list[files.Listed]:
    listed = files.listing(folder, allowed_roots())
    code = [one.path for one in listed if one.is_code]
    if code and isinstance(actor, User) and not may(actor, Action.AUTHOR_CODE):
        raise NotAllowed(
            "code_needs_author",
            _("%(path)s runs when the model is loaded; bringing it in needs the role code-author.")
            % {"path": code[0]},
            field="source",
            remedy=_("Ask somebody who has that role."),
            facts={"files": code[:50]},
        )
    return listed


def _columns(folder: Path, listed: list[files.Listed]) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "files": [one.as_dict() for one in listed],
        "fingerprint": files.fingerprint(listed),
        "report": check_repository(folder).as_dict(),
        "checked_at": clock.now(),
    }


def _remove_unpacked(folder: Path) -> None:
    """Only below our own folder: what people have elsewhere stays."""
    root = repositories_folder().resolve()
    if not folder.is_relative_to(root) or folder == root:
        return
    shutil.rmtree(root / folder.relative_to(root).parts[0], ignore_errors=True)


def _taken(name: str) -> InvalidInput:
    return InvalidInput(
        "name_taken",
        _("There already is a model repository %(name)s.") % {"name": name},
        field="name",
        remedy=_("Choose another name, or check that one again."),
    )
