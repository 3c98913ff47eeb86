"""Backups: a round trip into an empty home, and every way in which an archive can be wrong."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sqlite3
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from pytest_django.plugin import DjangoDbBlocker

from apps.core.backup.archive import write_backup
from apps.core.backup.manifest import check_member_name
from apps.core.backup.restore import ALIAS, restore_backup
from apps.core.exceptions import InflightError, InfrastructureError, InvalidInput, NotPossibleNow
from apps.fleet.models import Node
from controlplane.settings.database import sqlite
from tests.support.database import give_copy

SOURCE = "backup_source"


@pytest.fixture(scope="session")
def migrated(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, django_db_blocker: DjangoDbBlocker
) -> Path:
    """A SQLite database with the newest schema, made once."""
    path = tmp_path_factory.mktemp("migrated") / "db.sqlite3"
    if give_copy(pytestconfig, path):
        return path
    with django_db_blocker.unblock(), pointed_at(path):
        call_command("migrate", database=SOURCE, verbosity=0)
    return path


class pointed_at:
    """Point the alias of the source at a file while the block runs."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        default = connections.databases["default"]
        connections.databases[SOURCE] = default | sqlite(str(self._path))

    def __exit__(self, *error: object) -> None:
        connections[SOURCE].close()
        del connections[SOURCE]
        del connections.databases[SOURCE]


@pytest.fixture
def home(tmp_path: Path, migrated: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[Path]:
    """An installation with an engine, a checkpoint and rows that point at them."""
    root = tmp_path / "home"
    (root / "engines/abc").mkdir(parents=True)
    (root / "engines/abc/manifest.json").write_text('{"builder": "llamacpp"}')
    (root / "engines/abc/model.gguf").write_bytes(b"weights" * 1000)
    (root / "engines/.half-made").mkdir()
    (root / "engines/.half-made/manifest.json").write_text("{}")
    (root / "checkpoints/x").mkdir(parents=True)
    (root / "checkpoints/x/model.gguf").write_bytes(b"source")
    (root / "checkpoints/x/link").symlink_to("/etc/passwd")
    shutil.copy(migrated, root / "db.sqlite3")
    with django_db_blocker.unblock(), pointed_at(root / "db.sqlite3"):
        Node.objects.using(SOURCE).create(node_id="n-aaaaaa", hostname="host", home=str(root))
        yield root


def back_up(home: Path, target: Path, with_artefacts: bool = False) -> Path:
    return write_backup(target, home, "n-aaaaaa", with_artefacts, alias=SOURCE).path


def names(archive: Path) -> list[str]:
    with tarfile.open(archive) as opened:
        return opened.getnames()


def nodes(home: Path) -> list[tuple[str, str]]:
    database = sqlite3.connect(home / "db.sqlite3")
    try:
        return database.execute("SELECT node_id, home FROM fleet_node").fetchall()
    finally:
        database.close()


def test_round_trip_into_an_empty_home(home: Path, tmp_path: Path) -> None:
    archive = back_up(home, tmp_path / "b.tar", with_artefacts=True)
    facts = restore_backup(archive, tmp_path / "new")
    new = tmp_path / "new"
    assert nodes(new) == [("n-aaaaaa", str(new))]
    assert (new / "engines/abc/model.gguf").read_bytes() == (home / "engines/abc/model.gguf").read_bytes()
    assert (new / "node-id").read_text() == "n-aaaaaa"
    assert stat.S_IMODE((new / "secret-key").stat().st_mode) == 0o600
    assert facts.moved_rows == 1
    assert not list(new.glob(".*"))
    assert ALIAS not in connections.databases


def test_the_key_of_kept_secrets_comes_along(home: Path, tmp_path: Path) -> None:
    (home / "secrets.key").write_text("kept", encoding="ascii")
    restore_backup(back_up(home, tmp_path / "b.tar"), tmp_path / "new")
    restored = tmp_path / "new" / "secrets.key"
    assert restored.read_text() == "kept"
    assert stat.S_IMODE(restored.stat().st_mode) == 0o600


def test_backup_holds_manifests_and_the_files_only_when_asked(home: Path, tmp_path: Path) -> None:
    small = names(back_up(home, tmp_path / "small.tar"))
    large = names(back_up(home, tmp_path / "large.tar", with_artefacts=True))
    assert set(small) == {"db.sqlite3", "secret-key", "node-id", "engines/abc/manifest.json", "manifest.json"}
    assert set(large) - set(small) == {"engines/abc/model.gguf", "checkpoints/x/model.gguf"}


def test_backup_is_private_and_never_overwrites(home: Path, tmp_path: Path) -> None:
    archive = back_up(home, tmp_path / "b.tar")
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    before = archive.read_bytes()
    with pytest.raises(NotPossibleNow, match="exists already"):
        back_up(home, archive)
    assert archive.read_bytes() == before


def test_backup_that_cannot_be_written_leaves_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "addfile", full)
    with pytest.raises(InfrastructureError, match="No space left"):
        back_up(home, tmp_path / "b.tar")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]
    assert not list(home.glob(".backup-*"))


def test_backup_sees_one_state_of_a_database_that_is_written_to(home: Path, tmp_path: Path) -> None:
    writer = sqlite3.connect(home / "db.sqlite3", isolation_level=None)
    try:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE fleet_node SET hostname = 'half'")
        archive = back_up(home, tmp_path / "b.tar")
        writer.execute("ROLLBACK")
    finally:
        writer.close()
    restore_backup(archive, tmp_path / "new")
    database = sqlite3.connect(tmp_path / "new/db.sqlite3")
    assert database.execute("SELECT hostname FROM fleet_node").fetchall() == [("host",)]
    database.close()


def test_new_node_does_not_take_over_the_id(home: Path, tmp_path: Path) -> None:
    restore_backup(back_up(home, tmp_path / "b.tar"), tmp_path / "new", new_node=True)
    assert not (tmp_path / "new/node-id").exists()


def test_original_that_runs_on_this_host_is_not_doubled(home: Path, tmp_path: Path) -> None:
    archive = back_up(home, tmp_path / "b.tar")
    (home / "run").mkdir()
    (home / "run/supervisord.pid").write_text("1")
    with pytest.raises(NotPossibleNow, match="runs on this host"):
        restore_backup(archive, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    restore_backup(archive, tmp_path / "new", new_node=True)


@pytest.mark.parametrize("kind", ["folder with a file", "file", "link"])
def test_home_that_is_not_empty_is_refused_and_left_alone(home: Path, tmp_path: Path, kind: str) -> None:
    archive, target = back_up(home, tmp_path / "b.tar"), tmp_path / "target"
    if kind == "file":
        target.write_text("mine")
    elif kind == "link":
        (tmp_path / "real").mkdir()
        target.symlink_to(tmp_path / "real")
    else:
        target.mkdir()
        (target / "mine").write_text("mine")
    with pytest.raises(NotPossibleNow):
        restore_backup(archive, target)
    kept = target / "mine" if target.is_dir() and not target.is_symlink() else target
    assert kind == "link" or kept.read_text() == "mine"
    assert not target.is_dir() or not list(target.glob(".restoring*"))


def test_home_that_holds_only_the_key_that_settings_made_is_empty(home: Path, tmp_path: Path) -> None:
    archive, target = back_up(home, tmp_path / "b.tar"), tmp_path / "target"
    target.mkdir()
    (target / "secret-key").write_text("fresh")
    restore_backup(archive, target)
    assert (target / "secret-key").read_text() != "fresh"


def rewritten(archive: Path, change: Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]) -> Path:
    """A copy of an archive whose members were changed."""
    with tarfile.open(archive) as opened:
        members = [(info, (opened.extractfile(info) or io.BytesIO()).read()) for info in opened.getmembers()]
    change(members)
    target = archive.with_name("changed.tar")
    with tarfile.open(target, "w") as copy:
        for info, content in members:
            info.size = len(content)
            copy.addfile(info, io.BytesIO(content))
    return target


def member(
    name: str, content: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info, content if kind == tarfile.REGTYPE else b""


def vouched(members: list[tuple[tarfile.TarInfo, bytes]], name: str, content: bytes) -> None:
    """Add a member and name it in the manifest, as an attacker would."""
    index = next(i for i, (info, _) in enumerate(members) if info.name == "manifest.json")
    manifest = json.loads(members[index][1])
    digest = hashlib.sha256(content).hexdigest()
    manifest["members"].append({"name": name, "size": len(content), "sha256": digest})
    members[index] = member("manifest.json", json.dumps(manifest).encode())
    members.append(member(name, content))


def drop(name: str) -> Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]:
    return lambda members: members.__setitem__(
        slice(None), [entry for entry in members if entry[0].name != name]
    )


def replace(name: str, content: bytes) -> Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]:
    def change(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        for index, (info, _) in enumerate(members):
            if info.name == name:
                members[index] = member(name, content)

    return change


def flip(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    info, content = members[0]
    members[0] = (info, content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.parametrize(
    "change",
    [
        flip,
        drop("manifest.json"),
        drop("db.sqlite3"),
        drop("secret-key"),
        replace("manifest.json", b"{}"),
        replace("manifest.json", b"not json"),
        replace("manifest.json", b'{"format": 2}'),
        replace("secret-key", b"short"),
        lambda members: members.append(member("stranger")),
        lambda members: members.append(member("../outside")),
        lambda members: members.append(member("/etc/outside")),
        lambda members: members.append(member("engines/../../outside")),
        lambda members: members.append(member("engines/link", kind=tarfile.SYMTYPE, link="/etc")),
        lambda members: members.append(member("engines/hard", kind=tarfile.LNKTYPE, link="secret-key")),
        lambda members: members.append(member("engines/pipe", kind=tarfile.FIFOTYPE)),
        lambda members: members.append(member("engines/device", kind=tarfile.CHRTYPE)),
        lambda members: members.append(members[0]),
        lambda members: vouched(members, "../outside", b"x"),
        lambda members: vouched(members, "/tmp/outside", b"x"),
        lambda members: vouched(members, "run/environment", b"INFLIGHT_TRITON_BIN=/tmp/evil"),
        lambda members: vouched(members, "engines//x", b"x"),
    ],
)
def test_broken_or_hostile_archive_is_refused_and_leaves_nothing(
    home: Path, tmp_path: Path, change: Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]
) -> None:
    archive = rewritten(back_up(home, tmp_path / "b.tar"), change)
    with pytest.raises(InvalidInput) as caught:
        restore_backup(archive, tmp_path / "deep/new")
    assert caught.value.remedy
    assert not (tmp_path / "deep/new").exists()
    assert not (tmp_path / "outside").exists()
    assert not (tmp_path / "deep/outside").exists()


def test_damaged_database_with_a_right_checksum_is_refused(home: Path, tmp_path: Path) -> None:
    def change(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        drop("db.sqlite3")(members)
        index = next(i for i, (info, _) in enumerate(members) if info.name == "manifest.json")
        manifest = json.loads(members[index][1])
        manifest["members"] = [entry for entry in manifest["members"] if entry["name"] != "db.sqlite3"]
        members[index] = member("manifest.json", json.dumps(manifest).encode())
        vouched(members, "db.sqlite3", b"SQLite format 3\x00" + b"\xff" * 5000)

    with pytest.raises(InvalidInput, match="damaged"):
        restore_backup(rewritten(back_up(home, tmp_path / "b.tar"), change), tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.98])
def test_truncated_archive_is_refused(home: Path, tmp_path: Path, share: float) -> None:
    archive = back_up(home, tmp_path / "b.tar")
    content = archive.read_bytes().rstrip(b"\0")
    archive.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(InvalidInput):
        restore_backup(archive, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"\x1f\x8b\x08garbage", b"PK\x03\x04", b"\0" * 2048])
def test_file_that_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "b.tar").write_bytes(content)
    with pytest.raises(InvalidInput):
        restore_backup(tmp_path / "b.tar", tmp_path / "new")


def test_missing_archive_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.tar", tmp_path):
        with pytest.raises(InflightError):
            restore_backup(path, tmp_path / "new")


def test_disk_too_small_is_said_before_anything_is_written(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = back_up(home, tmp_path / "b.tar")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 0))
    with pytest.raises(InfrastructureError, match="too little space"):
        restore_backup(archive, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["db.sqlite3", "secret-key", "engines/a/b.json", "checkpoints/ü x/y"])
def test_names_of_backups_are_allowed(name: str) -> None:
    assert check_member_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "/",
        "a",
        "run/x",
        "engines/..",
        "engines/./x",
        "engines\\x",
        "engines/a\nb",
        "engines",
        "./node-id",
    ],
)
def test_other_names_are_not(name: str) -> None:
    with pytest.raises(ValueError):
        check_member_name(name)


def test_command_line_says_what_happened(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="There is no file"):
        call_command("restore", str(tmp_path / "none.tar"), "--home", str(tmp_path / "new"))
