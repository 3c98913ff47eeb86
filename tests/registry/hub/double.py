"""A hub on loopback that speaks what the hub's library really asks for, and a store of large files beside it.

`GET /api/models/REPO/revision/REV?blobs=True`, `HEAD|GET /REPO/resolve/COMMIT/FILE`; files under LFS are redirected
to the store, which answers ranges. Both act on the requests that come: tokens, ranges, revisions.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

WAIT_SECONDS = 300.0


@dataclass
class Repo:
    """A repository: files by name, large ones under LFS, revisions by name."""

    files: dict[str, bytes]
    lfs: set[str] = field(default_factory=set)
    gated: bool = False
    private: bool = False

    def __post_init__(self) -> None:
        self.lfs |= {name for name in self.files if name.endswith((".gguf", ".safetensors", ".bin"))}
        self.revisions = {"main": self.commit_of(self.files)}
        self.commits = {self.revisions["main"]: dict(self.files)}

    @staticmethod
    def commit_of(files: dict[str, bytes]) -> str:
        """A commit that depends on the content."""
        return hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()

    def push(self, **files: bytes) -> str:
        """A new commit on main; returns it."""
        self.files = {**self.files, **files}
        commit = self.commit_of(self.files)
        self.revisions["main"], self.commits[commit] = commit, dict(self.files)
        return commit


@dataclass
class Asked:
    """A request that came."""

    server: str
    method: str
    path: str
    headers: dict[str, str]


class Hub:
    """Both servers, and what they shall do wrong."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.token = ""
        self.asked: list[Asked] = []
        # (status, headers) to answer the next requests for the listing with.
        self.stumbles: list[tuple[int, dict[str, str]]] = []
        # File -> bytes after which its next answers stop: the connection is closed, or held until `release`.
        self.break_after: dict[str, list[int]] = {}
        self.hold_after: dict[str, int] = {}
        self.release = threading.Event()
        self.corrupt: dict[str, int] = {}
        self.ignore_ranges = False
        self.listing: bytes | None = None
        self.url = self.store_url = ""

    def ranges(self, name: str) -> list[str]:
        """Range headers of the requests for the content of a file, in their order ("" for the whole)."""
        return [
            item.headers.get("range", "")
            for item in self.asked
            if item.method == "GET" and item.path.endswith(f"/{name}") and "/api/" not in item.path
        ]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub
    kind: str

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: pytest shows the output of tests."""

    def note(self) -> str:
        path = unquote(urlsplit(self.path).path)
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.hub.asked.append(Asked(self.kind, self.command, path, headers))
        return path

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def content(self, name: str, data: bytes, **headers: str) -> None:
        """A file or the range of it that was asked for; what shall go wrong goes wrong here."""
        if self.hub.corrupt.get(name, 0) > 0 and self.command == "GET":
            self.hub.corrupt[name] -= 1
            data = bytes(len(data))
        start, status = 0, 200
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked and not self.hub.ignore_ranges:
            start, status = int(asked[1]), 206
            headers["Content_Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        part = data[start:]
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if self.command == "HEAD":
            return
        breaks = self.hub.break_after.get(name)
        if breaks:
            self.wfile.write(part[: breaks.pop(0)])
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
            return
        hold = self.hub.hold_after.get(name)
        if hold is not None and start < hold:
            self.wfile.write(part[: hold - start])
            self.wfile.flush()
            self.hub.release.wait(WAIT_SECONDS)
            part = part[hold - start :]
        self.wfile.write(part)


class _HubHandler(_Handler):
    kind = "hub"

    def do_GET(self) -> None:
        path = self.note()
        listing = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        found = listing or file
        if listing and self.hub.stumbles:
            status, headers = self.hub.stumbles.pop(0)
            return self.answer(status, b"", **headers)
        if found is None or not self._may(found[1]):
            return None if found else self.answer(404)
        repo = self.hub.repos[found[1]]
        commit = repo.revisions.get(found[2], found[2])
        files = repo.commits.get(commit)
        if files is None:
            return self.answer(404, X_Error_Code="RevisionNotFound")
        return self._list(repo, commit, files) if listing else self._file(repo, commit, files, found[3])

    do_HEAD = do_GET

    def _may(self, name: str) -> bool:
        repo = self.hub.repos.get(name)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token != self.hub.token:
            self.answer(401, X_Error_Message="Invalid credentials in Authorization header")
        elif repo is None or (repo.private and not token):
            self.answer(401 if not token else 404, X_Error_Code="RepoNotFound")
        elif repo.gated and not token and "/resolve/" in self.path:
            self.answer(401, X_Error_Code="GatedRepo")
        else:
            return True
        return False

    def _list(self, repo: Repo, commit: str, files: dict[str, bytes]) -> None:
        if self.hub.listing is not None:
            return self.answer(200, self.hub.listing)
        siblings = []
        for name, data in files.items():
            item: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": blob_of(data)}
            if name in repo.lfs:
                item["lfs"] = {
                    "sha256": hashlib.sha256(data).hexdigest(),
                    "size": len(data),
                    "pointerSize": 130,
                }
            siblings.append(item)
        body = json.dumps({"id": "x/y", "sha": commit, "siblings": siblings}).encode()
        return self.answer(200, body, Content_Type="application/json")

    def _file(self, repo: Repo, commit: str, files: dict[str, bytes], name: str) -> None:
        if name not in files:
            return self.answer(404, X_Error_Code="EntryNotFound")
        data = files[name]
        if name not in repo.lfs:
            return self.content(name, data, ETag=f'"{blob_of(data)}"', X_Repo_Commit=commit)
        sha256 = hashlib.sha256(data).hexdigest()
        return self.answer(
            302,
            Location=f"{self.hub.store_url}/{sha256}/{name}?signature=abc",
            ETag=f'"{sha256}"',
            X_Linked_ETag=f'"{sha256}"',
            X_Linked_Size=str(len(data)),
            X_Repo_Commit=commit,
        )


class _StoreHandler(_Handler):
    kind = "store"

    def do_GET(self) -> None:
        path = self.note()
        wanted, _, name = path[1:].partition("/")
        for repo in self.hub.repos.values():
            for files in repo.commits.values():
                if name in files and hashlib.sha256(files[name]).hexdigest() == wanted:
                    return self.content(name, files[name], Accept_Ranges="bytes")
        return self.answer(404)

    do_HEAD = do_GET


def blob_of(data: bytes) -> str:
    """Git's id of a blob."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@contextmanager
def serve() -> Iterator[Hub]:
    """Both servers on free ports of loopback."""
    hub = Hub()
    servers = []
    for base in (_HubHandler, _StoreHandler):
        handler = type("Handler", (base,), {"hub": hub})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        servers.append(server)
    hub.url = f"http://127.0.0.1:{servers[0].server_port}"
    # Another host's name, as truly: the library keeps the token on the hub's own.
    hub.store_url = f"http://localhost:{servers[1].server_port}"
    try:
        yield hub
    finally:
        hub.release.set()
        for server in servers:
            server.shutdown()
            server.server_close()
