"""Calls to a server on the loopback address: one connection each, nothing kept alive, a timeout on all of it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Reply:
    """Status and body of an answer."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON, null where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @property
    def error(self) -> str:
        """Triton's error text, or the body as it is."""
        found = self.json()
        if isinstance(found, dict) and "error" in found:
            return str(found["error"]).strip()
        return self.body[:500].decode(errors="replace").strip()


class NoAnswer(Exception):
    """The server refused the connection, closed it, or did not answer in time (`timed_out`)."""

    def __init__(self, detail: str, timed_out: bool) -> None:
        super().__init__(detail)
        self.timed_out = timed_out


def call(
    method: str,
    port: int,
    path: str,
    seconds: float,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """One request to 127.0.0.1. Raises NoAnswer. `seconds` bounds each wait for bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        data = json.dumps(body).encode() if body is not None else None
        # Idle connections would use up the server's exit timeout.
        connection.request(method, path, data, {"Connection": "close", **(headers or {})})
        answer = connection.getresponse()
        return Reply(answer.status, answer.read())
    except TimeoutError as error:
        raise NoAnswer(f"no answer within {seconds:g} s", timed_out=True) from error
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(str(error) or type(error).__name__, timed_out=False) from error
    finally:
        connection.close()
