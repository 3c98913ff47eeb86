"""Copies a whole database into a file and back: SQLite by its backup call, PostgreSQL by pg_dump and pg_restore."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any, Literal

from django.apps import apps
from django.db import connections, models
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import F, Value
from django.db.models.functions import Concat, Substr
from django.utils.translation import gettext as _

from apps.core.backup.manifest import POSTGRESQL_MEMBER, SQLITE_MEMBER
from apps.core.exceptions import InfrastructureError, InvalidInput, NotPossibleNow

# Columns that hold an absolute path under the home; restoring into another home moves them along.
PATH_COLUMNS = frozenset({"path", "log_path", "home"})
DUMP_SECONDS = 3600


def engine(settings: dict[str, Any]) -> Literal["sqlite", "postgresql"]:
    """Which of the two supported databases a Django database entry is."""
    return "sqlite" if settings["ENGINE"].endswith("sqlite3") else "postgresql"


def dump(settings: dict[str, Any], folder: Path) -> Path:
    """Write a consistent copy of the database into `folder`, while others go on writing to it."""
    if engine(settings) == "sqlite":
        target = folder / SQLITE_MEMBER
        source = sqlite3.connect(
            f"{Path(settings['NAME']).absolute().as_uri()}?mode=ro", uri=True, timeout=20
        )
        copy = sqlite3.connect(target)
        try:
            source.backup(copy)
        finally:
            copy.close()
            source.close()
        return target
    target = folder / POSTGRESQL_MEMBER
    options = ["--format=custom", "--no-owner", "--no-privileges", f"--file={target}"]
    _postgresql_tool("pg_dump", settings, options)
    return target


def load(settings: dict[str, Any], dumped: Path) -> None:
    """Fill an empty database from a dump: the SQLite file is checked, PostgreSQL must have no tables."""
    if engine(settings) == "sqlite":
        check_sqlite(dumped)
        return
    with connections["default"].cursor() as cursor:
        tables = connections["default"].introspection.table_names(cursor)
    if tables:
        raise NotPossibleNow(
            "restore_database_not_empty",
            _("The database that DATABASE_URL names has tables already."),
            remedy=_("Create an empty database for the restored installation and name that one."),
            field="DATABASE_URL",
        )
    options = ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction"]
    _postgresql_tool("pg_restore", settings, [*options, f"--dbname={settings['NAME']}", str(dumped)])


def check_sqlite(path: Path) -> None:
    """Raise InvalidInput unless the file is a whole SQLite database."""
    try:
        database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            verdict = database.execute("PRAGMA quick_check").fetchone()[0]
        finally:
            database.close()
    except sqlite3.DatabaseError as error:
        verdict = str(error)
    if verdict != "ok":
        raise InvalidInput(
            "backup_database_damaged",
            _("The database in the archive is damaged: %(why)s.") % {"why": verdict},
            remedy=_("Use another backup."),
            field="archive",
        )


def applied_migrations(alias: str = "default") -> list[str]:
    """Names of all applied migrations, `app.name`, sorted."""
    return sorted(f"{app}.{name}" for app, name in MigrationRecorder(connections[alias]).applied_migrations())


def move_paths(alias: str, old_home: Path, new_home: Path) -> int:
    """Point path columns from under the old home to the new one; returns how many rows changed.

    Looks at the columns that the database has: a backup of an older version lacks some, and migrates later.
    """
    changed = 0
    for model in apps.get_models():
        present = _columns(alias, model._meta.db_table)
        for field in model._meta.local_concrete_fields:
            if not isinstance(field, models.CharField) or field.name not in PATH_COLUMNS & present:
                continue
            rows = model._base_manager.using(alias)
            beneath = rows.filter(**{f"{field.name}__startswith": f"{old_home}/"})
            tail = Substr(F(field.name), len(str(old_home)) + 1)
            changed += beneath.update(**{field.name: Concat(Value(str(new_home)), tail)})
            changed += rows.filter(**{field.name: str(old_home)}).update(**{field.name: str(new_home)})
    return changed


def _columns(alias: str, table: str) -> set[str]:
    """Column names of a table; none where the database has no such table."""
    connection = connections[alias]
    with connection.cursor() as cursor:
        if table not in connection.introspection.table_names(cursor):
            return set()
        return {column.name for column in connection.introspection.get_table_description(cursor, table)}


def _postgresql_tool(name: str, settings: dict[str, Any], options: list[str]) -> None:
    """Run one of PostgreSQL's programs; the password travels in the environment, not on the command line."""
    program = shutil.which(name)
    if program is None:
        raise InfrastructureError(
            "postgresql_tool_missing",
            _("The program %(name)s is not installed.") % {"name": name},
            remedy=_("Install PostgreSQL's client programs (Debian: apt-get install -y postgresql-client)."),
        )
    environ = dict(os.environ)
    for key, variable in (
        ("HOST", "PGHOST"),
        ("PORT", "PGPORT"),
        ("USER", "PGUSER"),
        ("PASSWORD", "PGPASSWORD"),
    ):
        if settings.get(key):
            environ[variable] = str(settings[key])
    if name == "pg_dump":
        options = [*options, f"--dbname={settings['NAME']}"]
    done = subprocess.run(
        [program, "--no-password", *options],
        check=False,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DUMP_SECONDS,
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise InfrastructureError(
            "postgresql_tool_failed",
            _("%(name)s failed: %(why)s.")
            % {"name": name, "why": (said[-1] if said else str(done.returncode)).rstrip(".")},
            remedy=_("Check DATABASE_URL, and that the programs are as new as the server."),
        )
