"""The typed readers of the environment name what is wrong."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from controlplane.settings import database, env, queues


def test_environment_file() -> None:
    text = "# made by make up\n\nINFLIGHT_REDIS_URL = unix:///run/redis.sock\nDATABASE_URL=postgres://u:p@h/d?x=y\n"
    assert env.parse_environment(text, "file") == {
        "INFLIGHT_REDIS_URL": "unix:///run/redis.sock",
        "DATABASE_URL": "postgres://u:p@h/d?x=y",
    }


@pytest.mark.parametrize("line", ["no separator", "=value", "two words=1", "9lives=1"])
def test_broken_environment_file(line: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="file, line 2: expected KEY=value"):
        env.parse_environment(f"A=1\n{line}\n", "file")


def test_flags_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X", "Yes")
    assert env.flag("X") is True
    monkeypatch.setenv("X", "perhaps")
    with pytest.raises(ImproperlyConfigured, match="X: expected true or false"):
        env.flag("X")
    monkeypatch.setenv("X", "12")
    assert env.integer("X", 1) == 12
    monkeypatch.setenv("X", "12a")
    with pytest.raises(ImproperlyConfigured, match="X: expected a whole number"):
        env.integer("X", 1)
    monkeypatch.setenv("X", "a, b,,c")
    assert env.words("X", []) == ["a", "b", "c"]
    monkeypatch.setenv("X", "")
    assert env.words("X", ["d"]) == ["d"]


def test_secret_key_is_made_once_and_kept_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INFLIGHT_SECRET_KEY")
    monkeypatch.setenv("INFLIGHT_HOME", str(tmp_path / "home"))
    first = env.secret_key()
    assert len(first) > 40
    assert env.secret_key() == first
    assert stat.S_IMODE((tmp_path / "home/secret-key").stat().st_mode) == 0o600


def test_redis_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "INFLIGHT_REDIS_URL", "unix:///run/r.sock")
    assert queues.redis_url(3) == "unix:///run/r.sock?db=3"
    assert queues.redis_url(0, celery=True) == "redis+socket:///run/r.sock?virtual_host=0"
    monkeypatch.setattr(queues, "INFLIGHT_REDIS_URL", "redis://127.0.0.1:6379/")
    assert queues.redis_url(2) == "redis://127.0.0.1:6379/2"


def test_sqlite_is_opened_for_several_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    options = database.configured()["OPTIONS"]
    assert options["transaction_mode"] == "IMMEDIATE"
    assert options["timeout"] >= 10
    assert "journal_mode=WAL" in options["init_command"]
    monkeypatch.setenv("DATABASE_URL", "postgres://user:pw@127.0.0.1:5433/inflight")
    assert database.configured()["ENGINE"].endswith("postgresql")
