"""Backup and restore of an installation on PostgreSQL, through the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dj_database_url
import psycopg
import pytest

from deploy.local import postgres
from deploy.local.home import CHECKOUT

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with postgres.server(tmp_path_factory.mktemp("pg") / "log") as url:
        yield url


def database(server: str, name: str) -> str:
    """A fresh database on the server; returns its URL."""
    entry = dj_database_url.parse(server)
    with psycopg.connect(
        host=entry["HOST"], user=entry["USER"], dbname="postgres", autocommit=True
    ) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return server.rsplit("/", 1)[0] + f"/{name}"


def manage(home: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {
        key: value for key, value in os.environ.items() if not key.startswith(("INFLIGHT_", "DJANGO_"))
    }
    environ |= {"INFLIGHT_HOME": str(home), "DATABASE_URL": url}
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        check=False,
        cwd=CHECKOUT,
        env=environ,
        capture_output=True,
        text=True,
    )


def test_round_trip_and_refusals(server: str, tmp_path: Path) -> None:
    first, second, archive = database(server, "first"), database(server, "second"), tmp_path / "b.tar"
    assert manage(tmp_path / "home", first, "migrate", "--verbosity=0").returncode == 0
    assert manage(tmp_path / "home", first, "ensure_admin").returncode == 0
    done = manage(tmp_path / "home", first, "backup", str(archive))
    assert done.returncode == 0, done.stderr

    full = manage(tmp_path / "other", first, "restore", str(archive), "--home", str(tmp_path / "new"))
    assert full.returncode == 1
    assert "has tables already" in full.stderr
    sqlite = manage(tmp_path / "other", "", "restore", str(archive), "--home", str(tmp_path / "new"))
    assert sqlite.returncode == 1
    assert "postgresql" in sqlite.stderr
    assert not (tmp_path / "new").exists()

    done = manage(tmp_path / "other", second, "restore", str(archive), "--home", str(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "new/secret-key").read_text() == (tmp_path / "home/secret-key").read_text()
    entry = dj_database_url.parse(second)
    with psycopg.connect(host=entry["HOST"], user=entry["USER"], dbname="second") as connection:
        assert connection.execute("SELECT username FROM auth_user").fetchall() == [("admin",)]
