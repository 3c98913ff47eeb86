"""The store of engines: what goes in comes out, and nothing else does."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from apps.core.exceptions import InvalidInput
from apps.engines.models import Engine
from apps.engines.sharing import s3, store, transfer
from apps.engines.sharing.s3 import Bucket
from apps.engines.sharing.store import FolderStore, S3Store, Store, StoreFailed
from apps.fleet.models import Node

CONTENT = {"model.gguf": b"weights" * 1000, "tokenizer/vocab.json": b"{}", "empty": b""}


def _manifest(files: dict[str, bytes] = CONTENT) -> dict[str, Any]:
    rows = [
        {"name": name, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    ]
    return {"fingerprint": "f" * 64, "files": rows}


def _written(folder: Path) -> Path:
    for name, data in CONTENT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def _engine(manifest: dict[str, Any]) -> Engine:
    return Engine(
        fingerprint="f" * 64, path="/elsewhere/engines/fff", manifest=manifest, node=Node(node_id="n-other")
    )


class _Objects(BaseHTTPRequestHandler):
    def _object(self) -> bytes | None:
        owner: Any = self.server
        owner.signed.append(self.headers.get("Authorization", ""))
        found: bytes | None = owner.objects.get(self.path)
        return found

    def do_HEAD(self) -> None:
        self._answer(self._object(), body=False)

    def do_GET(self) -> None:
        self._answer(self._object(), body=True)

    def do_PUT(self) -> None:
        self._object()
        owner: Any = self.server
        owner.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"", body=True)

    def _answer(self, data: bytes | None, *, body: bool) -> None:
        self.send_response(200 if data is not None else 404)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        if body and data:
            self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def bucket() -> Iterator[tuple[S3Store, Any]]:
    """An S3 store before a server that keeps objects by path."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Objects)
    server.objects, server.signed = {}, []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    given = Bucket(f"http://127.0.0.1:{server.server_port}", "engines", "eu-1", "AKID", "secret")
    yield S3Store(given, "/prod/"), server
    server.shutdown()
    thread.join(5)
    server.server_close()


@pytest.fixture(params=["folder", "s3"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each kind of store."""
    if request.param == "folder":
        return FolderStore(tmp_path / "store")
    found: tuple[S3Store, Any] = request.getfixturevalue("bucket")
    return found[0]


@pytest.fixture(autouse=True)
def _home(settings: Any, tmp_path: Path) -> None:
    settings.INFLIGHT_HOME = str(tmp_path / "home")
    settings.INFLIGHT_STORE = ""


def test_an_engine_goes_from_host_to_host(any_store: Store, tmp_path: Path) -> None:
    built, manifest = _written(tmp_path / "built"), _manifest()
    sent = transfer.push(built, manifest, any_store)
    assert sent == sum(map(len, CONTENT.values()))
    assert transfer.push(built, manifest, any_store) == 0
    engine = _engine(manifest)
    heard: list[int] = []
    place = transfer.pull(engine, any_store, heard.append)
    assert place == tmp_path / "home/engines" / ("f" * 64)
    assert {name: (place / name).read_bytes() for name in CONTENT} == CONTENT
    assert transfer.is_whole(place, engine)
    assert sum(heard) == sent
    assert not list(place.parent.glob(".*"))


def test_what_is_damaged_in_the_store_gets_no_name(any_store: Store, tmp_path: Path) -> None:
    manifest = _manifest()
    transfer.push(_written(tmp_path / "built"), manifest, any_store)
    evil = tmp_path / "evil"
    evil.write_bytes(b"WEIGHTS" * 1000)
    any_store.put(manifest["files"][0]["sha256"], evil, evil.stat().st_size)
    with pytest.raises(StoreFailed) as caught:
        transfer.pull(_engine(manifest), any_store)
    assert caught.value.code == "store_damaged"
    assert not transfer.local_folder(_engine(manifest)).exists()
    assert not list((tmp_path / "home/engines").iterdir())


def test_what_is_missing_says_so(any_store: Store) -> None:
    with pytest.raises(StoreFailed) as caught:
        transfer.pull(_engine(_manifest()), any_store)
    assert caught.value.code == "store_failed"
    with pytest.raises(StoreFailed) as without:
        transfer.pull(_engine(_manifest()))
    assert (without.value.code, without.value.field) == ("store_missing", "INFLIGHT_STORE")


def test_a_file_that_changed_since_it_was_built_is_not_shared(any_store: Store, tmp_path: Path) -> None:
    built = _written(tmp_path / "built")
    (built / "model.gguf").write_bytes(b"other")
    with pytest.raises(StoreFailed) as caught:
        transfer.push(built, _manifest(), any_store)
    assert caught.value.code == "engine_changed"


@pytest.mark.parametrize(
    "file",
    [
        {"name": "../x", "size_bytes": 1, "sha256": "a" * 64},
        {"name": "/etc/x", "size_bytes": 1, "sha256": "a" * 64},
        {"name": "", "size_bytes": 1, "sha256": "a" * 64},
        {"name": "x", "size_bytes": "1", "sha256": "a" * 64},
        {"name": "x", "size_bytes": 1, "sha256": "../a"},
        {"name": "x", "size_bytes": 1},
    ],
)
def test_a_manifest_that_names_what_it_must_not_is_refused(file: dict[str, Any]) -> None:
    refused: list[dict[str, Any]] = [{"files": [file]}, {"files": []}, {}]
    for manifest in refused:
        with pytest.raises(StoreFailed) as caught:
            transfer.files_of(manifest)
        assert caught.value.code == "engine_unlisted"


def test_large_files_are_kept_in_pieces(
    bucket: tuple[S3Store, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PIECE", 1000)
    kept, server = bucket
    manifest = _manifest()
    transfer.push(_written(tmp_path / "built"), manifest, kept)
    digest = manifest["files"][0]["sha256"]
    pieces = [path for path in server.objects if digest in path]
    assert sorted(pieces)[0] == f"/engines/prod/blobs/{digest[:2]}/{digest}.0000"
    assert len(pieces) == 7
    assert transfer.is_whole(transfer.pull(_engine(manifest), kept), _engine(manifest))
    assert all(each.startswith("AWS4-HMAC-SHA256 Credential=AKID/") for each in server.signed)
    del server.objects[sorted(pieces)[-1]]
    assert not kept.has(digest, 7000)


def test_the_signature_is_amazons() -> None:
    """The GET of the S3 documentation's "Signature Calculations for the Authorization Header"."""
    given = Bucket(
        "https://s3.amazonaws.com", "examplebucket", "us-east-1", "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    )  # fmt: skip
    headers = s3.signed(
        given,
        "GET",
        "examplebucket.s3.amazonaws.com",
        "/test.txt",
        datetime(2013, 5, 24, tzinfo=UTC),
        payload=hashlib.sha256(b"").hexdigest(),
        more={"range": "bytes=0-9"},
    )
    assert headers["Authorization"].endswith(
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


@pytest.mark.parametrize(
    ("given", "kind"),
    [("", None), ("/mnt/store", FolderStore), ("s3://bucket/prefix", S3Store), ("s3://bucket", S3Store)],
)
def test_the_setting_names_a_folder_or_a_bucket(settings: Any, given: str, kind: type | None) -> None:
    settings.INFLIGHT_STORE = given
    found = store.configured()
    assert found is None if kind is None else isinstance(found, kind)


@pytest.mark.parametrize("given", ["store", "http://x", "s3://", "./x"])
def test_another_setting_is_refused(settings: Any, given: str) -> None:
    settings.INFLIGHT_STORE = given
    with pytest.raises(InvalidInput) as caught:
        store.configured()
    assert caught.value.field == "INFLIGHT_STORE"


def test_an_engine_without_its_manifest_is_not_whole(tmp_path: Path) -> None:
    folder, engine = _written(tmp_path / "x"), _engine(_manifest())
    assert not transfer.is_whole(folder, engine)
    (folder / "manifest.json").write_text(json.dumps({"fingerprint": "f" * 64}), encoding="utf-8")
    assert transfer.is_whole(folder, engine)
    (folder / "model.gguf").write_bytes(b"short")
    assert not transfer.is_whole(folder, engine)
