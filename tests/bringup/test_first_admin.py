"""The administrator that a new installation begins with, and `manage.py prepare`."""

from __future__ import annotations

import io
import stat
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from apps.accounts.first_admin import ensure_first_admin
from apps.core import preparation

pytestmark = pytest.mark.django_db


def test_admin_is_created_once_with_a_password_that_only_the_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "home/admin-password"
    password = ensure_first_admin(path)
    assert password is not None
    assert len(password) >= 20
    assert path.read_text().strip() == password
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    admin = User.objects.get(username="admin")
    assert admin.is_superuser
    assert admin.check_password(password)
    assert ensure_first_admin(path) is None
    assert path.read_text().strip() == password


def test_existing_admin_keeps_its_password_even_without_the_file(tmp_path: Path) -> None:
    User.objects.create_superuser("admin", password="chosen by a person")
    assert ensure_first_admin(tmp_path / "admin-password") is None
    assert not (tmp_path / "admin-password").exists()
    assert User.objects.get(username="admin").check_password("chosen by a person")


def test_file_left_by_a_broken_off_run_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "admin-password"
    path.write_text("of a run that created no user")
    assert ensure_first_admin(path) == path.read_text().strip()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_command_prints_the_password_only_when_it_made_it(tmp_path: Path, settings: object) -> None:
    settings.INFLIGHT_HOME = tmp_path  # type: ignore[attr-defined]
    first, second = io.StringIO(), io.StringIO()
    call_command("ensure_admin", stdout=first)
    call_command("ensure_admin", stdout=second)
    assert (tmp_path / "admin-password").read_text().strip() in first.getvalue()
    assert second.getvalue() == ""


def test_static_files_are_collected_when_their_sources_changed(tmp_path: Path, settings: object) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.css").write_text("a{}")
    settings.STATICFILES_DIRS = [source]  # type: ignore[attr-defined]
    settings.STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]  # type: ignore[attr-defined]
    settings.STATIC_ROOT = tmp_path / "static"  # type: ignore[attr-defined]
    from django.contrib.staticfiles.finders import get_finder

    get_finder.cache_clear()
    try:
        assert preparation.collect_static()
        assert (tmp_path / "static/a.css").exists()
        assert not preparation.collect_static()
        (source / "b.css").write_text("b{}")
        assert preparation.collect_static()
        assert (tmp_path / "static/b.css").exists()
    finally:
        get_finder.cache_clear()


def test_migrated_database_lacks_nothing() -> None:
    assert preparation.pending_migrations() == 0
    assert preparation.migrate() == 0
