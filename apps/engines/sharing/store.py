"""Where blobs are kept: `INFLIGHT_STORE` is a folder or s3://bucket/prefix."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import urlsplit

from django.conf import settings
from django.utils.translation import gettext as _

from apps.core.exceptions import InfrastructureError, InvalidInput
from apps.engines.sharing.s3 import Bucket, S3Failed

CHUNK = 1024 * 1024
# A single PUT of S3 holds at most 5 GB; an object is kept in pieces of this size.
PIECE = 1024 * 1024 * 1024


class StoreFailed(InfrastructureError):
    """The store cannot be reached or does not hold what is asked for."""


class Store(Protocol):
    """Blobs by SHA-256 (hexadecimal). Blocking. Every method raises StoreFailed."""

    def has(self, digest: str, size: int) -> bool:
        """Whether the blob is there, at this size."""

    def put(self, digest: str, path: Path, size: int) -> None:
        """Keep a file's content; a second time it changes nothing."""

    def read(self, digest: str, size: int) -> Iterator[bytes]:
        """The content, piece by piece; unchecked."""


class FolderStore:
    """A folder that all hosts see under a path of their own (NFS and the like)."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def has(self, digest: str, size: int) -> bool:
        """See Store."""
        try:
            return self._path(digest).stat().st_size == size
        except OSError:
            return False

    def put(self, digest: str, path: Path, size: int) -> None:
        """See Store; the file appears whole or not at all."""
        place = self._path(digest)
        temporary = place.with_name(f".{place.name}.{os.uname().nodename}.{os.getpid()}")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb") as source, temporary.open("wb") as target:
                while chunk := source.read(CHUNK):
                    target.write(chunk)
                target.flush()
                os.fsync(target.fileno())
            temporary.replace(place)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise _failed(str(error)) from error

    def read(self, digest: str, size: int) -> Iterator[bytes]:
        """See Store."""
        try:
            with self._path(digest).open("rb") as file:
                while chunk := file.read(CHUNK):
                    yield chunk
        except OSError as error:
            raise _failed(str(error)) from error

    def _path(self, digest: str) -> Path:
        return self._root / "blobs" / digest[:2] / digest


class S3Store:
    """An S3 bucket, or what speaks like one (MinIO, Ceph)."""

    def __init__(self, bucket: Bucket, prefix: str) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def has(self, digest: str, size: int) -> bool:
        """See Store: the last piece is put last."""
        last = max(0, (size - 1) // PIECE)
        try:
            return self._bucket.size(self._key(digest, last)) == size - last * PIECE
        except S3Failed as error:
            raise _failed(str(error)) from error

    def put(self, digest: str, path: Path, size: int) -> None:
        """See Store."""
        try:
            with path.open("rb") as file:
                for number in range(max(1, -(-size // PIECE))):
                    length = min(PIECE, size - number * PIECE)
                    self._bucket.put(self._key(digest, number), _Part(file, length), length)
        except (OSError, S3Failed) as error:
            raise _failed(str(error)) from error

    def read(self, digest: str, size: int) -> Iterator[bytes]:
        """See Store."""
        try:
            for number in range(max(1, -(-size // PIECE))):
                yield from self._bucket.read(self._key(digest, number), CHUNK)
        except S3Failed as error:
            raise _failed(str(error)) from error

    def _key(self, digest: str, number: int) -> str:
        return f"{self._prefix}blobs/{digest[:2]}/{digest}.{number:04d}"


class _Part:
    """The next `length` bytes of a file, as http.client reads a body."""

    def __init__(self, file: IO[bytes], length: int) -> None:
        self._file = file
        self._left = length

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(min(self._left, size if size > 0 else CHUNK))
        self._left -= len(data)
        return data


def configured() -> Store | None:
    """The store of INFLIGHT_STORE, or None without one. Raises InvalidInput for what is neither folder nor s3://."""
    given = settings.INFLIGHT_STORE
    if not given:
        return None
    parts = urlsplit(given)
    if parts.scheme == "s3" and parts.netloc:
        endpoint = (
            settings.INFLIGHT_STORE_ENDPOINT or f"https://s3.{settings.INFLIGHT_STORE_REGION}.amazonaws.com"
        )
        bucket = Bucket(
            endpoint=endpoint,
            name=parts.netloc,
            region=settings.INFLIGHT_STORE_REGION,
            key_id=settings.INFLIGHT_STORE_KEY_ID,
            secret=settings.INFLIGHT_STORE_SECRET,
        )
        return S3Store(bucket, parts.path)
    if not given.startswith("/"):
        raise InvalidInput(
            "store_unreadable",
            _("INFLIGHT_STORE is neither an absolute path nor s3://bucket/prefix."),
            field="INFLIGHT_STORE",
            remedy=_("Name a folder that all hosts see, or a bucket."),
        )
    return FolderStore(Path(given))


def _failed(why: str) -> StoreFailed:
    return StoreFailed(
        "store_failed",
        _("The store of engines failed: %(why)s.") % {"why": why[:300]},
        field="INFLIGHT_STORE",
        remedy=_("See whether this host reaches it, and whether it may read and write there."),
    )
