"""A PostgreSQL server for one test run."""

from __future__ import annotations

from pathlib import Path

import dj_database_url
import psycopg
import pytest

from deploy.local import postgres
from deploy.local.errors import Problem

pytestmark = pytest.mark.integration


def test_server_answers_and_leaves_nothing(tmp_path: Path) -> None:
    with postgres.server(tmp_path / "log") as url:
        entry = dj_database_url.parse(url)
        folder = Path(entry["HOST"])
        with psycopg.connect(host=entry["HOST"], user=entry["USER"], dbname=entry["NAME"]) as connection:
            row = connection.execute("SHOW listen_addresses").fetchone()
        assert row == ("",)
        assert folder.is_dir()
    assert not folder.exists()


def test_two_servers_do_not_meet(tmp_path: Path) -> None:
    with postgres.server(tmp_path / "one") as first, postgres.server(tmp_path / "two") as second:
        assert first != second


def test_server_ends_when_the_block_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), postgres.server(tmp_path / "log") as url:
        raise RuntimeError
    assert not Path(dj_database_url.parse(url)["HOST"]).exists()


def test_missing_server_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "find_programs", lambda: None)
    with pytest.raises(Problem, match="not installed"), postgres.server(tmp_path / "log"):
        pass
