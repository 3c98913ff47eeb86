"""Second step: fetch every file, go on where an earlier attempt was, check size and hash, publish by one rename."""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

import httpx
from huggingface_hub import get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from apps.registry.hub.folders import partial_of
from apps.registry.hub.selection import RepoFile
from workers.builders.llamacpp_steps.events import StepFailed, run, say, send
from workers.fetching.common import CHUNK, Meter, alone, publish, read_plan, require_room, whole
from workers.fetching.hub_client import Hub, explained, hub_of

PART = ".part"
# Broken connections in a row that brought no byte, before the step gives up; the row is then tried again later.
FRUITLESS = 4


class _Stopped(Exception):
    """Another file failed; this one need not go on."""


class Hashed:
    """A file that grows: what is written is hashed and counted. As much of a file object as the library uses."""

    def __init__(self, file: BinaryIO, wanted: RepoFile, meter: Meter, stop: threading.Event) -> None:
        self._file, self._wanted, self._meter, self._stop = file, wanted, meter, stop
        self._begin()

    def _begin(self) -> None:
        self.size = 0
        self._digest = hashlib.sha256() if self._wanted.sha256 else hashlib.sha1(usedforsecurity=False)
        if not self._wanted.sha256:
            # What git hashes for a blob.
            self._digest.update(b"blob %d\0" % self._wanted.size)

    def resume(self) -> None:
        """Take in what an earlier attempt left; more than the whole file is none of it."""
        if os.fstat(self._file.fileno()).st_size > self._wanted.size:
            self._file.truncate(0)
        self._file.seek(0)
        while chunk := self._file.read(CHUNK):
            self._count(chunk)

    def write(self, chunk: bytes) -> int:
        """Append."""
        if self._stop.is_set():
            raise _Stopped
        if self.size + len(chunk) > self._wanted.size:
            raise StepFailed(
                "size_mismatch",
                f"{self._wanted.name} is larger than the hub's listing says.",
                "Try again; if it repeats, the mirror serves another file.",
            )
        rest = memoryview(chunk)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._count(chunk)
        return len(chunk)

    def tell(self) -> int:
        """Bytes so far."""
        return self.size

    def seek(self, offset: int) -> int:
        """Only to the beginning: the server ignored where we wanted to go on."""
        if offset:
            raise ValueError("a growing file is begun anew, or goes on")
        return self._file.seek(0)

    def truncate(self) -> int:
        """Begin anew."""
        self._meter.add(-self.size)
        self._begin()
        return self._file.truncate(0)

    def _count(self, chunk: bytes) -> None:
        self._digest.update(chunk)
        self.size += len(chunk)
        self._meter.add(len(chunk))

    def is_right(self) -> bool:
        """Whether size and hash are those of the listing; a mirror may list no hash."""
        expected = self._wanted.sha256 or self._wanted.blob
        return self.size == self._wanted.size and expected in ("", self._digest.hexdigest())


class Fetch:
    """All files of one checkpoint."""

    def __init__(self, hub: Hub, commit: str, partial: Path, files: list[RepoFile]) -> None:
        self.hub, self.commit, self.partial, self.files = hub, commit, partial, files
        self.meter = Meter(sum(file.size for file in files))
        self.stop = threading.Event()

    def run(self, parallel: int) -> None:
        """Fetch what is not here. Raises the first failure, once no file moves any more."""
        failure: BaseException | None = None
        # The large ones first, so that the last does not run alone.
        waiting = sorted(self.files, key=lambda file: -file.size)
        with ThreadPoolExecutor(parallel, thread_name_prefix="fetch") as pool:
            for done in as_completed([pool.submit(self._file, file) for file in waiting]):
                error = done.exception()
                if error is not None and not isinstance(error, _Stopped) and failure is None:
                    failure = error
                    self.stop.set()
        if failure is not None:
            raise failure

    def missing(self) -> int:
        """Bytes that are not here yet."""
        here = 0
        for file in self.files:
            for path in (self.partial / file.local, self._part(file)):
                if path.is_file():
                    here += min(path.stat().st_size, file.size)
                    break
        return sum(file.size for file in self.files) - here

    def _part(self, file: RepoFile) -> Path:
        return self.partial / f"{file.local}{PART}"

    def _file(self, file: RepoFile) -> None:
        if self.stop.is_set():
            raise _Stopped
        final, part = self.partial / file.local, self._part(file)
        if final.is_file() and final.stat().st_size == file.size:
            # Only a file that was checked has this name.
            self.meter.add(file.size)
            return
        part.parent.mkdir(parents=True, exist_ok=True)
        for _again in range(2):
            if self._fill(file, part):
                part.rename(final)
                say(f"{file.name}: whole and right")
                return
            say(f"{file.name}: what came is not what the hub lists; it is fetched anew")
            part.unlink()
            self.meter.add(-file.size)
        raise StepFailed(
            "checksum_mismatch",
            f"{file.name} came twice with another content than the hub lists.",
            "Something between here and the hub changes files: check proxy and mirror, then try again.",
        )

    def _fill(self, file: RepoFile, part: Path) -> bool:
        with part.open("r+b" if part.exists() else "w+b", buffering=0) as raw:
            grown = Hashed(cast(BinaryIO, raw), file, self.meter, self.stop)
            grown.resume()
            if grown.size:
                say(f"{file.name}: goes on at {grown.size:,} of {file.size:,} bytes")
            fruitless = 0
            while grown.size < file.size:
                before = grown.size
                try:
                    self._get(file, grown)
                except (httpx.HTTPError, OSError) as error:
                    fruitless = 0 if grown.size > before else fruitless + 1
                    if not _may_go_on(error, grown.size > before):
                        raise
                    if fruitless > FRUITLESS:
                        raise _interrupted(file, error) from error
                    say(f"{file.name}: {type(error).__name__} at {grown.size:,} bytes; it goes on")
            os.fsync(raw.fileno())
            return grown.is_right()

    def _get(self, file: RepoFile, grown: Hashed) -> None:
        """One request for the rest of a file; the hub is asked each time, because its addresses run out."""
        url = hf_hub_url(self.hub.repo, file.name, revision=self.commit, endpoint=self.hub.endpoint)
        found = get_hf_file_metadata(
            url, token=self.hub.credentials, timeout=30, endpoint=self.hub.endpoint, retry_on_errors=True
        )
        headers: dict[str, Any] = build_hf_headers(token=self.hub.credentials)
        headers["Accept-Encoding"] = "identity"
        if urlsplit(found.location).netloc != urlsplit(url).netloc:
            # A store of files, with an address that is signed already: our token is not for it.
            headers.pop("authorization", None)
        http_get(
            found.location,
            cast(BinaryIO, grown),
            resume_size=grown.size,
            headers=headers,
            expected_size=file.size,
            displayed_filename=file.local,
        )


def _interrupted(file: RepoFile, error: Exception) -> StepFailed:
    return StepFailed(
        "network_interrupted",
        f"The connection broke again and again at {file.name} ({type(error).__name__}).",
        "It is tried again by itself and goes on where it was; see whether this machine's network is well.",
    )


def _may_go_on(error: Exception, gained: bool) -> bool:
    """Broken connections, and an address that ran out or a server that stumbled after it had sent something."""
    if isinstance(error, HfHubHTTPError):
        return gained and error.response.status_code in (403, 500, 502, 503, 504)
    return isinstance(error, httpx.TransportError) or "Consistency check failed" in str(error)


def main() -> None:
    """Command line of the step."""
    plan = read_plan(__doc__)
    hub = hub_of(plan)
    files = [RepoFile(**file) for file in plan["chosen"]]
    place = Path(plan["folder"])
    if whole(place, [(file.local, file.size) for file in files]):
        say("The same files are here already.")
        send("result", facts={"reused": True})
        return
    partial = partial_of(place)
    partial.mkdir(parents=True, exist_ok=True)
    with alone(partial):
        fetch = Fetch(hub, plan["commit"], partial, files)
        require_room(partial, fetch.missing(), plan["margin_bytes"])
        with explained(hub), fetch.meter:
            fetch.run(plan["parallel"])
        publish(partial, place, {key: plan[key] for key in ("repo", "commit", "endpoint", "chosen")})
    say(f"Published {place}")


if __name__ == "__main__":
    run(main)
