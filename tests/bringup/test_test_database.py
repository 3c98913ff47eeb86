"""The tests' own database: kept once, given to others, and emptied without migrating again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db import connection

from tests import objects
from tests.support import database
from tests.support.database import Emptier, SqliteCopy, fingerprint


def test_what_was_committed_goes_and_what_migrating_made_is_put_back(transactional_db: None) -> None:
    emptier = Emptier()
    before = [list(model.objects.order_by("pk").values()) for model in (ContentType, Permission, Group)]
    user = User.objects.create_user("x")
    user.groups.add(Group.objects.get(name="viewer"))
    objects.deployment()
    ContentType.objects.get_for_model(User).delete()
    Group.objects.filter(name="operator").update(name="other")
    emptier.empty()
    assert not User.objects.exists()
    assert [
        list(model.objects.order_by("pk").values()) for model in (ContentType, Permission, Group)
    ] == before
    assert ContentType.objects.get_for_model(User).model == "user"
    with connection.cursor() as cursor:
        cursor.execute(emptier._filled)
        assert cursor.fetchall() == []


@pytest.mark.one_database
def test_a_kept_database_begins_another_and_replaces_what_older_source_made(
    transactional_db: None, tmp_path: Path
) -> None:
    (tmp_path / "older.sqlite3").write_bytes(b"")
    kept = SqliteCopy(connection, tmp_path, "newer")
    assert not kept.exists()
    kept.keep()
    assert kept.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["newer.sqlite3"]
    target = tmp_path / "test.sqlite3"
    target.with_name("test.sqlite3-wal").write_bytes(b"of an earlier one")
    kept.give(str(target))
    assert not target.with_name("test.sqlite3-wal").exists()
    with sqlite3.connect(target) as other:
        [(applied,)] = other.execute("SELECT count(*) FROM django_migrations").fetchall()
        [(groups,)] = other.execute("SELECT count(*) FROM auth_group").fetchall()
    assert applied > 30
    assert groups == Group.objects.count()


def test_other_source_has_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "ROOT", tmp_path)
    names = [fingerprint()]
    for path, text in (
        ("apps/core/models.py", "a"),
        ("apps/core/models.py", "b"),
        ("apps/core/migrations/0002.py", ""),
        ("requirements/dev.lock", "django==5"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        names.append(fingerprint())
    assert len(set(names)) == len(names)
