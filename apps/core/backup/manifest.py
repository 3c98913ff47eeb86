"""The archive's own description, and which member names may be in an archive at all."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal

from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from apps.core.exceptions import InvalidInput
from apps.core.secrets import KEY_FILE

MANIFEST = "manifest.json"
SQLITE_MEMBER = "db.sqlite3"
POSTGRESQL_MEMBER = "database.dump"
# A manifest names each file in about 200 bytes; one that is larger than this is no manifest of ours.
MANIFEST_BYTES = 64 * 1024 * 1024
TOP_FILES = frozenset({SQLITE_MEMBER, POSTGRESQL_MEMBER, "secret-key", "node-id", KEY_FILE})
TOP_FOLDERS = frozenset({"checkpoints", "engines"})


def check_member_name(name: str) -> str:
    """The name itself if it may be restored; raises ValueError for one that leaves the home or is not ours."""
    path = PurePosixPath(name)
    parts = path.parts
    if path.is_absolute() or not parts or any(part in {"..", "."} for part in name.split("/")):
        raise ValueError("it leads out of the folder")
    if str(path) != name or "\\" in name or re.search(r"[\x00-\x1f]", name):
        raise ValueError("it is not a plain relative path")
    allowed = name in TOP_FILES if len(parts) == 1 else parts[0] in TOP_FOLDERS
    if not allowed:
        raise ValueError("backups hold no such file")
    return name


class Member(BaseModel):
    """One file of the archive. `size` is in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        return check_member_name(name)


class Manifest(BaseModel):
    """What an archive holds. `home` is where it was taken; `made_at` is ISO 8601, UTC."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    made_at: str
    home: str
    node_id: str
    database: Literal["sqlite", "postgresql"]
    migrations: list[str]
    with_artefacts: bool
    members: list[Member]


def parse_manifest(raw: bytes) -> Manifest:
    """Read a manifest; raises InvalidInput naming the first thing that is wrong with it."""
    try:
        manifest = Manifest.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or _("the whole file")
        raise InvalidInput(
            "backup_manifest_invalid",
            _("The archive's manifest is not valid: %(where)s: %(what)s.")
            % {"where": where, "what": first["msg"].rstrip(".")},
            remedy=_("Use an archive that manage.py backup wrote with this version."),
            field="archive",
        ) from error
    names = [member.name for member in manifest.members]
    if len(names) != len(set(names)):
        raise InvalidInput(
            "backup_manifest_invalid",
            _("The archive's manifest names a file twice."),
            remedy=_("Use an archive that manage.py backup wrote."),
            field="archive",
        )
    return manifest
