"""Calling the REST API in tests."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client

SHAPE = {"code", "message", "field", "remedy", "facts", "findings"}


def send(client: Client, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """Send a request with a JSON body to a path below /api/v1."""
    content = b"" if body is None else json.dumps(body).encode()
    return client.generic(method, f"/api/v1{path}", content, content_type="application/json", headers=headers)


def ok(response: Any, status: int = 200) -> Any:
    """The JSON of an answer that went well."""
    assert response.status_code == status, response.content
    return response.json() if response.content else None


def refused(response: Any, status: int, code: str, field: str = "") -> dict[str, Any]:
    """The JSON of a refusal, checked for its shape."""
    body = response.json()
    assert response.status_code == status, body
    assert set(body) == SHAPE
    assert body["code"] == code
    assert body["field"] == field
    assert body["message"]
    return dict(body)
