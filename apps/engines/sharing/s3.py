"""As much of S3 as a store of blobs needs: HEAD, GET and PUT of objects, signed with AWS Signature Version 4.

Addresses are path-style (endpoint/bucket/key), which MinIO and Ceph speak, too. The body is not part of the signature
(UNSIGNED-PAYLOAD): blobs are checked by their own SHA-256 when they are read.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol
from urllib.parse import quote, urlsplit

SECONDS = 60.0
UNSIGNED = "UNSIGNED-PAYLOAD"


class S3Failed(Exception):
    """The endpoint cannot be reached, or refused."""


class Readable(Protocol):
    """A body that http.client sends."""

    def read(self, size: int = -1) -> bytes:
        """The next bytes; none at the end."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket of an endpoint (https://host[:port]) with the key that opens it."""

    endpoint: str
    name: str
    region: str
    key_id: str
    secret: str

    def size(self, key: str) -> int | None:
        """Bytes of an object; None where there is none. Raises S3Failed."""
        with _Request(self, "HEAD", key) as answer:
            if answer.status == 404:
                return None
            _check(answer)
            length = answer.getheader("Content-Length") or ""
            return int(length) if length.isdecimal() else None

    def put(self, key: str, body: Readable, length: int) -> None:
        """Write an object of `length` bytes. Raises S3Failed."""
        with _Request(self, "PUT", key, body, length) as answer:
            _check(answer)
            answer.read()

    def read(self, key: str, chunk: int) -> Iterator[bytes]:
        """An object's content. Raises S3Failed."""
        with _Request(self, "GET", key) as answer:
            _check(answer)
            try:
                while data := answer.read(chunk):
                    yield data
            except (OSError, http.client.HTTPException) as error:
                raise S3Failed(f"{key} broke off: {error}") from error


def _check(answer: http.client.HTTPResponse) -> None:
    if answer.status >= 300:
        told = answer.read(300).decode("utf-8", "replace") if answer.status != 404 else ""
        raise S3Failed(f"the endpoint answered {answer.status} {answer.reason} {told}".strip())


class _Request:
    """One signed request, and its answer while the block lasts."""

    def __init__(
        self, bucket: Bucket, method: str, key: str, body: Readable | None = None, length: int = 0
    ) -> None:
        self._bucket, self._method, self._body, self._length = bucket, method, body, length
        self._path = quote(f"/{bucket.name}/{key}", safe="/-_.~")
        parts = urlsplit(bucket.endpoint)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise S3Failed(f"{bucket.endpoint!r} is no endpoint")
        self._host = parts.netloc.rpartition("@")[2]
        self._connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(self._host, timeout=SECONDS, context=ssl.create_default_context())
            if parts.scheme == "https"
            else http.client.HTTPConnection(self._host, timeout=SECONDS)
        )

    def __enter__(self) -> http.client.HTTPResponse:
        headers = signed(self._bucket, self._method, self._host, self._path, datetime.now(UTC))
        if self._method == "PUT":
            headers["Content-Length"] = str(self._length)
        try:
            self._connection.request(self._method, self._path, body=self._body, headers=headers)
            return self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise S3Failed(f"{self._host} does not answer: {error or type(error).__name__}") from error

    def __exit__(self, *exc: object) -> None:
        self._connection.close()


def signed(
    bucket: Bucket,
    method: str,
    host: str,
    path: str,
    now: datetime,
    payload: str = UNSIGNED,
    more: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Headers of a request, its Authorization among them (AWS Signature Version 4, service s3).

    `path` is quoted already; `more` are further headers to sign, in lower case.
    """
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    headers = {"host": host, "x-amz-content-sha256": payload, "x-amz-date": stamp, **(more or {})}
    names = ";".join(sorted(headers))
    listed = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = "\n".join([method, path, "", listed, names, payload])
    scope = f"{day}/{bucket.region}/s3/aws4_request"
    to_sign = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{bucket.secret}".encode()
    for part in (day, bucket.region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={bucket.key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return {**headers, "Authorization": authorization}
