"""Restores a backup into an empty home. All of it is checked in a hidden folder first; a failure leaves nothing."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import connections
from django.utils.translation import gettext as _

from apps.core.backup import database
from apps.core.backup.manifest import (
    MANIFEST,
    MANIFEST_BYTES,
    POSTGRESQL_MEMBER,
    SQLITE_MEMBER,
    Manifest,
    Member,
    check_member_name,
    parse_manifest,
)
from apps.core.exceptions import InfrastructureError, InvalidInput, NotPossibleNow

ALIAS = "restored"
CHUNK = 1024 * 1024
# Settings make this file wherever INFLIGHT_HOME points, before the command itself runs.
MADE_BY_SETTINGS = frozenset({"secret-key"})


@dataclass(frozen=True, slots=True)
class RestoreFacts:
    """What was restored. `moved_rows` is how many rows pointed into the old home."""

    home: Path
    files: int
    moved_rows: int
    node_id: str
    made_at: str


def restore_backup(source: Path, home: Path, new_node: bool = False) -> RestoreFacts:
    """Restore `source` into `home`, which must be empty or not exist.

    Verifies the size and SHA-256 of each member, and that each name stays inside the home. Raises InvalidInput for
    a damaged or foreign archive, NotPossibleNow for a home (or a PostgreSQL database) that is not empty.
    """
    _refuse_full_home(home)
    made = not home.exists()
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    staging = home / f".restoring-{os.getpid()}"
    try:
        with _opened(source) as archive:
            manifest = _read_manifest(archive)
            _refuse_running_home(manifest, home, new_node)
            _refuse_other_database(manifest)
            _refuse_little_space(manifest, home)
            staging.mkdir(mode=0o700)
            _extract(archive, manifest, staging)
        moved = _restore_database(manifest, staging, home)
        if new_node:
            (staging / "node-id").unlink(missing_ok=True)
        _move_in(staging, home)
    except BaseException:
        shutil.rmtree(home if made else staging, ignore_errors=True)
        raise
    node_id = "" if new_node else manifest.node_id
    return RestoreFacts(home, len(manifest.members), moved, node_id, manifest.made_at)


def _refuse_full_home(home: Path) -> None:
    if home.is_symlink() or (home.exists() and not home.is_dir()):
        what = _("%(home)s is not a folder.")
    elif home.is_dir() and {entry.name for entry in home.iterdir()} - MADE_BY_SETTINGS:
        what = _("%(home)s is not empty.")
    else:
        return
    raise NotPossibleNow(
        "restore_home_not_empty",
        what % {"home": home},
        remedy=_("Name a folder that is empty or does not exist yet."),
        field="home",
    )


def _refuse_running_home(manifest: Manifest, home: Path, new_node: bool) -> None:
    """Two homes with one node id on one host would both manage the same servers."""
    running = Path(manifest.home) / "run" / "supervisord.pid"
    if not new_node and manifest.home != str(home) and running.exists():
        raise NotPossibleNow(
            "restore_original_running",
            _("The installation that was backed up runs on this host, in %(home)s.")
            % {"home": manifest.home},
            remedy=_("Stop it first (make down), or restore as a new node with --new-node."),
        )


def _refuse_other_database(manifest: Manifest) -> None:
    wanted = database.engine(connections["default"].settings_dict)
    if manifest.database != wanted:
        raise InvalidInput(
            "backup_other_database",
            _("The backup is of a %(theirs)s database, this installation is set to %(ours)s.")
            % {"theirs": manifest.database, "ours": wanted},
            remedy=_("Set DATABASE_URL to an empty PostgreSQL database, or unset it for SQLite."),
            field="archive",
        )


def _refuse_little_space(manifest: Manifest, home: Path) -> None:
    needed = sum(member.size for member in manifest.members)
    if shutil.disk_usage(home).free < needed:
        raise InfrastructureError(
            "disk_full",
            _("%(home)s has too little space: the backup needs %(bytes)d bytes.")
            % {"home": home, "bytes": needed},
            remedy=_("Free space, or restore to another disk."),
        )


@contextmanager
def _opened(source: Path) -> Iterator[tarfile.TarFile]:
    """The archive; whatever tarfile dislikes about it becomes a sentence."""
    try:
        with tarfile.open(source, mode="r:") as archive:
            yield archive
    except FileNotFoundError as error:
        raise InvalidInput(
            "backup_missing",
            _("There is no file %(path)s.") % {"path": source},
            remedy=_("Name a file that manage.py backup wrote."),
            field="file",
        ) from error
    except (tarfile.TarError, EOFError, IsADirectoryError, ValueError) as error:
        raise _damaged(str(error)) from error


def _damaged(why: str) -> InvalidInput:
    return InvalidInput(
        "backup_damaged",
        _("The archive is damaged or none: %(why)s.") % {"why": why.rstrip(".")},
        remedy=_("Use another backup; nothing was restored."),
        field="archive",
    )


def _read_manifest(archive: tarfile.TarFile) -> Manifest:
    found = [info for info in archive.getmembers() if info.name == MANIFEST]
    if len(found) != 1 or not found[0].isreg() or found[0].size > MANIFEST_BYTES:
        raise _damaged(_("it has no manifest"))
    file = archive.extractfile(found[0])
    return parse_manifest(file.read() if file else b"")


def _extract(archive: tarfile.TarFile, manifest: Manifest, staging: Path) -> None:
    """Write every member below `staging`, checking as it goes; names that nobody vouches for are refused."""
    known = {member.name: member for member in manifest.members}
    seen: set[str] = set()
    for info in archive.getmembers():
        if info.name == MANIFEST:
            continue
        try:
            name = check_member_name(info.name)
        except ValueError as error:
            raise _damaged(_("member %(name)r: %(why)s") % {"name": info.name, "why": error}) from error
        member = known.get(name)
        if not info.isreg() or member is None or name in seen or info.size != member.size:
            raise _damaged(_("member %(name)r is not what the manifest says") % {"name": name})
        seen.add(name)
        _extract_one(archive, info, member, staging)
    missing = sorted(set(known) - seen)
    if missing:
        raise _damaged(_("member %(name)r is missing") % {"name": missing[0]})


def _extract_one(archive: tarfile.TarFile, info: tarfile.TarInfo, member: Member, staging: Path) -> None:
    target = staging / member.name
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    source = archive.extractfile(info)
    if source is None:
        raise _damaged(_("member %(name)r cannot be read") % {"name": member.name})
    digest = hashlib.sha256()
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy:
        while part := source.read(CHUNK):
            digest.update(part)
            copy.write(part)
    if not secrets.compare_digest(digest.hexdigest(), member.sha256):
        raise _damaged(
            _("member %(name)r has another SHA-256 than the manifest says") % {"name": member.name}
        )


def _restore_database(manifest: Manifest, staging: Path, home: Path) -> int:
    """Check and fill the database, then point its paths to the new home."""
    entry: dict[str, Any] = connections["default"].settings_dict
    name = SQLITE_MEMBER if manifest.database == "sqlite" else POSTGRESQL_MEMBER
    dumped = staging / name
    if not dumped.is_file():
        raise _damaged(_("it holds no database"))
    database.load(entry, dumped)
    if manifest.database == "postgresql":
        dumped.unlink()
        return database.move_paths("default", Path(manifest.home), home)
    connections.databases[ALIAS] = connections.databases["default"] | {"NAME": str(dumped)}
    try:
        return database.move_paths(ALIAS, Path(manifest.home), home)
    finally:
        connections[ALIAS].close()
        del connections[ALIAS]
        del connections.databases[ALIAS]


def _move_in(staging: Path, home: Path) -> None:
    """The last step, renames only: the database comes last, so a home with a database is a whole one."""
    for entry in sorted(staging.iterdir(), key=lambda path: path.name == SQLITE_MEMBER):
        entry.rename(home / entry.name)
    staging.rmdir()
