"""The test database: migrated once for all processes that share pytest's cache folder, and emptied cheaply.

To migrate takes a process some seconds, and `make test` has about twenty of them: the first keeps a copy, under a
name made from all that the result depends on, and the others begin with it. Django's flush after each test that
commits would empty every table and make content types, permissions and groups anew; here only what a test filled is
emptied, and those rows are compared and put back where a test changed them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
import pytest
from django.conf import settings
from django.db import connections, transaction
from django.test import TransactionTestCase

ROOT = Path(__file__).resolve().parents[2]
# What migrating makes: code of models and migrations, and the packages that bring their own.
SOURCES = ("apps/**/*.py", "controlplane/**/*.py", "requirements/dev.lock")
# Rows of these are made after migrating and are the same for every test; parents first.
KEPT = ("django_content_type", "auth_permission", "auth_group", "auth_group_permissions")
# Where config.cache.mkdir("databases") lies in pytest's cache folder.
FOLDER = "d/databases"
THROWAWAY_SERVER = "tests.bringup.database_only"


def fingerprint() -> str:
    """Name of what migrating this source gives with these packages."""
    digest = hashlib.sha256(f"{sys.version} {django.__version__}".encode())
    for path in sorted(path for pattern in SOURCES for path in ROOT.glob(pattern)):
        content = path.read_bytes()
        digest.update(f"\0{path.relative_to(ROOT)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


class SqliteCopy:
    """A file in the folder."""

    def __init__(self, connection: Any, folder: Path, name: str) -> None:
        self._connection, self._file = connection, folder / f"{name}.sqlite3"

    def exists(self) -> bool:
        return self._file.is_file()

    def keep(self) -> None:
        """Keep the migrated test database; what earlier sources made goes."""
        fresh = self._file.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with self._connection.cursor() as cursor:
            cursor.execute("VACUUM INTO %s", [str(fresh)])
        for old in self._file.parent.glob("*.sqlite3"):
            old.unlink()
        fresh.replace(self._file)

    def give(self, name: str) -> None:
        """Begin the test database `name` with it."""
        for suffix in ("", "-wal", "-shm"):
            Path(f"{name}{suffix}").unlink(missing_ok=True)
        shutil.copyfile(self._file, name)


class PostgresqlCopy:
    """A database of the same server."""

    def __init__(self, connection: Any, folder: Path, name: str) -> None:
        self._connection, self._name = connection, f"inflight_{name}"

    def exists(self) -> bool:
        with self._connection._nodb_cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", [self._name])
            return cursor.fetchone() is not None

    def keep(self) -> None:
        """Keep the migrated test database."""
        made = self._connection.settings_dict["NAME"]
        self._connection.close()
        self._copy(made, f"{self._name}_new")
        with self._connection._nodb_cursor() as cursor:
            cursor.execute(f'ALTER DATABASE "{self._name}_new" RENAME TO "{self._name}"')

    def give(self, name: str) -> None:
        """Begin the test database `name` with it."""
        self._copy(self._name, name)

    def _copy(self, source: str, target: str) -> None:
        with self._connection._nodb_cursor() as cursor:
            cursor.execute(f'DROP DATABASE IF EXISTS "{target}"')
            cursor.execute(f'CREATE DATABASE "{target}" TEMPLATE "{source}"')


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _migrate(connection: Any, keep: bool = False) -> None:
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False, keepdb=keep)


def _end_others(connection: Any) -> None:
    """End the sessions of threads that live as long as the process: a database in use cannot be dropped."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


def create(connection: Any, folder: Path | None) -> None:
    """Make the test database of this process and connect to it; without a folder it is migrated."""
    if folder is None:
        _migrate(connection)
        return
    kind = SqliteCopy if connection.vendor == "sqlite" else PostgresqlCopy
    copy = kind(connection, folder, fingerprint())
    with _locked(folder):
        if not copy.exists():
            _migrate(connection)
            copy.keep()
            return
    name = connection.creation._get_test_db_name()
    connection.close()
    copy.give(name)
    settings.DATABASES[connection.alias]["NAME"] = connection.settings_dict["NAME"] = name
    connection.ensure_connection()


class Emptier:
    """Empties the database after a test that committed, to what it was after migrating, without rows of any app."""

    def __init__(self, alias: str = "default") -> None:
        self._alias = alias
        connection = connections[alias]
        quote = connection.ops.quote_name
        names = connection.introspection.django_table_names(only_existing=True, include_views=False)
        self._tables = {name: quote(name) for name in sorted(set(names) - set(KEPT))}
        filled = (
            f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM {quoted})" for name, quoted in self._tables.items()
        )
        self._filled = " UNION ALL ".join(filled)
        self._kept = {name: self._rows(name) for name in KEPT}

    @property
    def _connection(self) -> Any:
        """The connection of here and now: in a browser test it is another one than while the database was made."""
        return connections[self._alias]

    def _rows(self, table: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {self._connection.ops.quote_name(table)} ORDER BY id")
            return list(cursor.fetchall())

    def empty(self) -> None:
        """Remove what the test left; what another thread is about to commit is waited for, as by flush."""
        with transaction.atomic(using=self._alias), self._connection.cursor() as cursor:
            if self._connection.vendor == "postgresql":
                cursor.execute(f"LOCK TABLE {', '.join(self._tables.values())} IN SHARE ROW EXCLUSIVE MODE")
            cursor.execute(self._filled)
            for [name] in cursor.fetchall():
                cursor.execute(f"DELETE FROM {self._tables[name]}")
            changed = [name for name in KEPT if self._rows(name) != self._kept[name]]
            for name in reversed(changed):
                cursor.execute(f"DELETE FROM {self._connection.ops.quote_name(name)}")
            for name in changed:
                self._put_back(cursor, name)
        if changed:
            _forget_content_types()

    def _put_back(self, cursor: Any, name: str) -> None:
        rows = self._kept[name]
        if rows:
            values = ", ".join(["%s"] * len(rows[0]))
            cursor.executemany(f"INSERT INTO {self._connection.ops.quote_name(name)} VALUES ({values})", rows)


def _forget_content_types() -> None:
    from django.contrib.contenttypes.models import ContentType

    ContentType.objects.clear_cache()


def folder_of(config: pytest.Config) -> Path | None:
    """Where copies are kept; None where every process migrates.

    On PostgreSQL only for the server that `make test` starts and throws away: on one that stays they would heap up.
    """
    cache = getattr(config, "cache", None)
    vendor = connections["default"].vendor
    if cache is None or (vendor != "sqlite" and not config.pluginmanager.hasplugin(THROWAWAY_SERVER)):
        return None
    return Path(cache.mkdir("databases"))


def give_copy(config: pytest.Config, target: Path) -> bool:
    """Put the kept SQLite database at `target`; False where none is kept."""
    folder, connection = folder_of(config), connections["default"]
    if folder is None or connection.vendor != "sqlite":
        return False
    copy = SqliteCopy(connection, folder, fingerprint())
    if copy.exists():
        copy.give(str(target))
    return copy.exists()


@pytest.fixture(scope="session")
def django_db_setup(
    request: pytest.FixtureRequest,
    django_test_environment: None,
    django_db_blocker: Any,
    django_db_keepdb: bool,
    django_db_modify_db_settings: None,
) -> Iterator[None]:
    """The database of this process, in place of pytest-django's fixture of the same name."""
    connection = connections["default"]
    before = connection.settings_dict["NAME"]
    with django_db_blocker.unblock():
        if django_db_keepdb:
            _migrate(connection, keep=True)
        else:
            create(connection, folder_of(request.config))
        emptier = Emptier()
    flush = TransactionTestCase._fixture_teardown

    def teardown(case: Any) -> None:
        if case.reset_sequences or case.available_apps is not None or case.serialized_rollback:
            flush(case)
        else:
            emptier.empty()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", teardown)
        yield
    with django_db_blocker.unblock():
        _end_others(connection)
        connection.creation.destroy_test_db(before, verbosity=0, keepdb=django_db_keepdb)


def main(folder: Path) -> None:
    """Keep a migrated SQLite database under pytest's cache folder, where the processes of a run look for it."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    try:
        create(connections["default"], folder / FOLDER)
    finally:
        connections.close_all()
        shutil.rmtree(settings.INFLIGHT_HOME, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
