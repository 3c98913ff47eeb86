"""Hostile archives are refused before a byte lies where it should not; good ones appear whole."""

from __future__ import annotations

import gzip
import io
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apps.core.exceptions import InfrastructureError, InvalidInput, NotAllowed
from apps.registry import states
from apps.registry.hub import policy
from apps.registry.hub.folders import MANIFEST
from apps.registry.models import Checkpoint
from apps.registry.selectors import uploads_folder
from apps.registry.services import keep_upload, register_checkpoint
from tests.people import person
from workers.builders.llamacpp_steps.events import StepFailed
from workers.fetch_run import run_fetch
from workers.fetching.archive_unpack import Bounds, unpack
from workers.fetching.common import Meter

BOUNDS = Bounds(entries=50, total=10_000_000, ratio=20, ratio_free=100_000)
Fill = Callable[[Any], None]


def tar_of(fill: Callable[[tarfile.TarFile], None], mode: str = "w:gz") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode, format=tarfile.GNU_FORMAT) as tar:  # type: ignore[call-overload]
        fill(tar)
    return made.getvalue()


def zip_of(fill: Callable[[zipfile.ZipFile], None]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as packed:
        fill(packed)
    return made.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"x", link: str = "") -> Fill:
    def fill(tar: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        info.size = len(data) if kind == tarfile.REGTYPE else 0
        tar.addfile(info, io.BytesIO(data))

    return fill


def zipped(name: str, data: bytes = b"x", mode: int = 0) -> Fill:
    def fill(packed: zipfile.ZipFile) -> None:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        packed.writestr(info, data, zipfile.ZIP_DEFLATED)

    return fill


def both(*fills: Fill) -> Fill:
    def fill(archive: Any) -> None:
        for one in fills:
            one(archive)

    return fill


def lying(data: bytes) -> bytes:
    """A ZIP whose directory says that its large file has one byte."""
    size = struct.pack("<I", 5_000_000)
    assert data.count(size) == 2
    return data.replace(size, struct.pack("<I", 1))


def encrypted(data: bytes) -> bytes:
    """The flag of encryption set in the directory of a ZIP."""
    at = data.index(b"PK\x01\x02") + 8
    return data[:at] + b"\x01" + data[at + 1 :]


ZEROS = bytes(5_000_000)
HOSTILE: dict[str, tuple[bytes, str]] = {
    "tar upwards": (tar_of(member("../evil")), "archive_traversal"),
    "tar upwards inside": (tar_of(member("a/../../evil")), "archive_traversal"),
    "tar absolute": (tar_of(member("/tmp/evil")), "archive_traversal"),
    "tar symlink": (tar_of(member("a", tarfile.SYMTYPE, link="/etc/passwd")), "archive_link"),
    "tar symlink, then through it": (
        tar_of(both(member("a", tarfile.SYMTYPE, link="/tmp"), member("a/evil"))),
        "archive_link",
    ),
    "tar hard link": (tar_of(member("a", tarfile.LNKTYPE, link="/etc/passwd")), "archive_link"),
    "tar device": (tar_of(member("a", tarfile.CHRTYPE)), "archive_device"),
    "tar block device": (tar_of(member("a", tarfile.BLKTYPE)), "archive_device"),
    "tar pipe": (tar_of(member("a", tarfile.FIFOTYPE)), "archive_device"),
    "tar twice": (tar_of(both(member("a"), member("a"))), "archive_duplicate"),
    "tar twice by dots": (tar_of(both(member("a"), member("./a"))), "archive_duplicate"),
    "tar bomb": (tar_of(member("a", data=ZEROS)), "archive_bomb"),
    "tar of many": (tar_of(both(*(member(f"f{i}") for i in range(51)))), "archive_too_many_entries"),
    "tar of many folders": (
        tar_of(both(*(member(f"f{i}", tarfile.DIRTYPE) for i in range(51)))),
        "archive_too_many_entries",
    ),
    "tar deep": (tar_of(member("/".join("abcdefghijklmnopqrst"))), "archive_name"),
    "tar backslash": (tar_of(member("a\\..\\evil")), "archive_name"),
    "tar line break": (tar_of(member("a\nb")), "archive_name"),
    "tar our own name": (tar_of(member(f"x/{MANIFEST}")), "archive_name"),
    "tar cut off": (tar_of(member("a", data=bytes(range(256)) * 300))[:300], "archive_damaged"),
    "tar empty": (tar_of(member("a", tarfile.DIRTYPE)), "archive_empty"),
    "no archive": (b"This is a text file that is long enough for a header." * 20, "archive_damaged"),
    "gzip of no tar": (b"\x1f\x8b\x08" + bytes(200), "archive_damaged"),
    "zip upwards": (zip_of(zipped("../evil")), "archive_traversal"),
    "zip absolute": (zip_of(zipped("/evil")), "archive_traversal"),
    "zip drive": (zip_of(zipped("C:/evil")), "archive_traversal"),
    "zip symlink": (zip_of(zipped("a", b"/etc/passwd", stat.S_IFLNK | 0o777)), "archive_link"),
    "zip device": (zip_of(zipped("a", mode=stat.S_IFCHR | 0o600)), "archive_device"),
    "zip bomb": (zip_of(zipped("a", ZEROS)), "archive_bomb"),
    "zip that lies about its size": (lying(zip_of(zipped("a", ZEROS))), "archive_damaged"),
    "zip encrypted": (encrypted(zip_of(zipped("a"))), "archive_encrypted"),
    "zip of many": (zip_of(both(*(zipped(f"f{i}") for i in range(51)))), "archive_too_many_entries"),
    "zip cut off": (zip_of(zipped("a", bytes(range(256)) * 9))[:-30], "archive_damaged"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_refused(name: str, tmp_path: Path) -> None:
    data, reason = HOSTILE[name]
    inside = tmp_path / "place" / "inside"
    inside.mkdir(parents=True)
    with pytest.raises(StepFailed) as caught:
        unpack(io.BytesIO(data), len(data), inside, BOUNDS, Meter(len(data)))
    assert caught.value.reason == reason
    assert caught.value.sentence.endswith(".")
    assert caught.value.remedy
    assert [path for path in tmp_path.rglob("*") if not path.is_relative_to(inside.parent)] == []
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))
    assert sum(path.stat().st_size for path in inside.rglob("*") if path.is_file()) <= 3_000_000
    assert not Path("/tmp/evil").exists()


@pytest.mark.parametrize(
    "data",
    [
        tar_of(both(member("m", tarfile.DIRTYPE), member("m/a"), member("m/deep/b")), mode)
        for mode in ("w", "w:gz")
    ]
    + [zip_of(both(zipped("m/"), zipped("m/a"), zipped("m/deep/b")))],
    ids=["tar", "tar.gz", "zip"],
)
def test_good_archives(data: bytes, tmp_path: Path) -> None:
    assert unpack(io.BytesIO(data), len(data), tmp_path, BOUNDS, Meter(len(data))) == 2
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"m/a", "m/deep/b"}
    assert not any(path.stat().st_mode & 0o111 for path in tmp_path.rglob("*") if path.is_file())


@pytest.fixture
def fetched(transactional_db: None, sent: list[str]) -> Callable[[dict[str, Any]], Checkpoint]:
    """Register a source and run one attempt."""

    def run(source: dict[str, Any]) -> Checkpoint:
        row = register_checkpoint("test", "packed", source)
        assert (row.state, row.path) == (states.REGISTERED, "")
        run_fetch(row.pk, "load")
        row.refresh_from_db()
        return row

    return run


def test_an_uploaded_archive_becomes_a_checkpoint(
    fetched: Callable[[dict[str, Any]], Checkpoint], gguf_bytes: bytes
) -> None:
    packed = tar_of(both(member("model/tiny.gguf", data=gguf_bytes), member("model/README.md")))
    kept = keep_upload("test", "tiny.tar.gz", [packed[:1000], packed[1000:]], len(packed))
    row = fetched({"archive": str(kept)})
    assert (row.state, row.format, row.sentence) == (states.READY, "gguf", "")
    folder = Path(row.folder)
    assert sorted(path.name for path in folder.iterdir()) == [MANIFEST, "README.md", "tiny.gguf"]
    assert row.path == str(folder / "tiny.gguf")
    assert (folder / "tiny.gguf").read_bytes() == gguf_bytes
    assert not kept.exists(), "the upload is not needed any more"
    assert [path.name for path in folder.parent.glob(".archive*")] == []


def test_a_hostile_archive_leaves_a_refused_row_and_nothing_else(
    fetched: Callable[[dict[str, Any]], Checkpoint], home: Path
) -> None:
    data = tar_of(both(member("model/config.json", data=b"{}"), member("../../evil")))
    kept = keep_upload("test", "x.tgz", [data])
    row = fetched({"archive": str(kept)})
    assert (row.state, row.reason) == (states.REFUSED, "archive_traversal")
    assert list((home / "checkpoints").glob("*archive*")) == []
    assert not (home / "evil").exists()


def test_a_header_that_asks_for_memory_is_a_bomb(
    fetched: Callable[[dict[str, Any]], Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 900_000_000
    made = io.BytesIO()
    with gzip.GzipFile(fileobj=made, mode="wb", compresslevel=1) as packed:
        packed.write(info.tobuf(tarfile.GNU_FORMAT))
        for _block in range(400):
            packed.write(bytes(1_000_000))
    monkeypatch.setattr(policy, "UNPACK_MEMORY_BYTES", 300_000_000)
    kept = keep_upload("test", "x.tar.gz", [made.getvalue()])
    row = fetched({"archive": str(kept)})
    assert (row.state, row.reason) == (states.REFUSED, "archive_bomb")


def test_uploads_are_bounded_and_of_known_kinds(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match="no archive"):
        keep_upload("test", "x.rar", [b""])
    settings.INFLIGHT_UPLOAD_BYTES = 100
    for chunks, size in (([b"x" * 60, b"x" * 60], None), ([], 101)):
        with pytest.raises(InvalidInput) as caught:
            keep_upload("test", "x.zip", chunks, size)
        assert caught.value.code == "upload_too_large"
    monkeypatch.setattr("apps.registry.fetching.DISK_MARGIN_BYTES", 10**18)
    with pytest.raises(InfrastructureError):
        keep_upload("test", "x.zip", [b"x"])
    assert list(uploads_folder().iterdir()) == []
    with pytest.raises(NotAllowed, match="code-author"):
        keep_upload(person("operator"), "x.zip", [b"x"])


def test_archives_lie_inside_the_roots_and_need_the_role(db: None, sent: list[str], tmp_path: Path) -> None:
    outside = tmp_path / "x.zip"
    outside.write_bytes(b"PK")
    with pytest.raises(NotAllowed, match="code-author"):
        register_checkpoint(person("operator"), "x", {"archive": str(outside)})
    with pytest.raises(InvalidInput) as caught:
        register_checkpoint(person("operator", "code-author"), "x", {"archive": str(outside)})
    assert (caught.value.code, caught.value.field) == ("path_outside_roots", "source.archive")
