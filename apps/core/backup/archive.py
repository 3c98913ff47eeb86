"""Writes a backup."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import connections
from django.utils.translation import gettext as _

from apps.core.backup import database
from apps.core.backup.manifest import MANIFEST, TOP_FOLDERS, Manifest, Member, check_member_name
from apps.core.clock import now
from apps.core.exceptions import InfrastructureError, NotPossibleNow
from apps.core.secrets import KEY_FILE

ARTEFACT_MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class BackupFacts:
    """What was written. `size` is the archive's, in bytes."""

    path: Path
    size: int
    files: int


class _Hashing(io.RawIOBase):
    """A file that is hashed as it is read."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.size = os.fstat(self._file.fileno()).st_size
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Read on, and hash what was read."""
        part = self._file.read(size)
        self.digest.update(part)
        return part

    def close(self) -> None:
        """Close the file too."""
        self._file.close()
        super().close()


def write_backup(
    target: Path, home: Path, node_id: str, with_artefacts: bool, alias: str = "default"
) -> BackupFacts:
    """Write a backup of the installation at `home` to `target` (mode 600), atomically.

    Raises NotPossibleNow where the file exists already, InfrastructureError where it cannot be written.
    """
    if target.exists():
        raise NotPossibleNow(
            "backup_exists",
            _("%(path)s exists already.") % {"path": target},
            remedy=_("Name a new file."),
            field="file",
        )
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as raw:
            with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
                members = _add_all(archive, home, node_id, with_artefacts, alias)
            raw.flush()
            os.fsync(raw.fileno())
        temporary.rename(target)
    except OSError as error:
        raise InfrastructureError(
            "backup_not_written",
            _("The backup could not be written: %(why)s.") % {"why": error.strerror or error},
            remedy=_("Free space or choose another folder, then try again."),
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return BackupFacts(target, target.stat().st_size, len(members))


def _add_all(
    archive: tarfile.TarFile, home: Path, node_id: str, with_artefacts: bool, alias: str
) -> list[Member]:
    """Add every file, then the manifest that names them."""
    entry = connections[alias].settings_dict
    members = []
    with tempfile.TemporaryDirectory(dir=home, prefix=".backup-") as folder:
        dumped = database.dump(entry, Path(folder))
        members.append(_add_file(archive, dumped.name, dumped))
    kept = home / KEY_FILE
    secrets_key = kept.read_text(encoding="ascii") if kept.is_file() else ""
    for name, text in (("secret-key", settings.SECRET_KEY), ("node-id", node_id), (KEY_FILE, secrets_key)):
        if text:
            content = text.encode()
            _add_bytes(archive, name, content)
            members.append(Member(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest()))
    for path in _artefacts(home, with_artefacts):
        members.append(_add_file(archive, check_member_name(path.relative_to(home).as_posix()), path))
    manifest = Manifest(
        made_at=now().isoformat(timespec="seconds"),
        home=str(home),
        node_id=node_id,
        database=database.engine(entry),
        migrations=database.applied_migrations(alias),
        with_artefacts=with_artefacts,
        members=members,
    )
    _add_bytes(archive, MANIFEST, manifest.model_dump_json(indent=1).encode())
    return members


def _artefacts(home: Path, everything: bool) -> Iterator[Path]:
    """Files under checkpoints/ and engines/: all, or the manifests alone; what is half-made (hidden) is left out."""
    for folder in sorted(TOP_FOLDERS):
        for path in sorted((home / folder).rglob("*")):
            wanted = everything or path.name == ARTEFACT_MANIFEST
            hidden = any(part.startswith(".") for part in path.relative_to(home).parts)
            if wanted and not hidden and path.is_file() and not path.is_symlink():
                yield path


def _add_file(archive: tarfile.TarFile, name: str, path: Path) -> Member:
    reader = _Hashing(path)
    try:
        archive.addfile(_info(name, reader.size), reader)
    finally:
        reader.close()
    return Member(name=name, size=reader.size, sha256=reader.digest.hexdigest())


def _add_bytes(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    archive.addfile(_info(name, len(content)), io.BytesIO(content))


def _info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o600
    info.mtime = int(now().timestamp())
    return info
