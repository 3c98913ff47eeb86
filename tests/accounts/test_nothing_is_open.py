"""Every address, walked by nobody: only signing in and the health answers are open to the world."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.urls.resolvers import RoutePattern

from tests.people import client_of, person

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


@pytest.fixture(autouse=True)
def from_elsewhere(settings: Any) -> None:
    """The test client calls from loopback, where /metrics may be read as it stands; the world is elsewhere."""
    settings.INFLIGHT_METRICS_ON_LOOPBACK = False


# The installer is read before a joining host has anything; it is a file of the source and holds no secret.
OPEN = {"dashboard:sign_in", "dashboard:healthz", "dashboard:readyz", "fleet:installer"}
# What says "no such thing" to everybody before it asks who calls.
ANYBODYS_404 = {"api:unknown"}
REFUSED = {302, 401, 403}
# Read by programs with a token, never by a session; POST is not known there.
TOKEN_ONLY = {"prometheus", "fleet:source"}


def addresses() -> Iterator[tuple[str, str]]:
    """Name and example path of every route."""
    yield from _below(get_resolver().url_patterns, "/", "")


def _below(patterns: list[URLPattern | URLResolver], path: str, namespace: str) -> Iterator[tuple[str, str]]:
    for item in patterns:
        here = path + _example(item)
        if isinstance(item, URLResolver):
            inner = f"{namespace}{item.namespace}:" if item.namespace else namespace
            yield from _below(item.url_patterns, here, inner)
        else:
            yield f"{namespace}{item.name}", here


def _example(item: URLPattern | URLResolver) -> str:
    pattern = item.pattern
    if isinstance(pattern, RoutePattern):
        return re.sub(r"<[^>]+>", "1", str(pattern))
    return re.sub(r"\(\?P<\w+>[^)]*\)", "1", str(pattern)).strip("^$").replace(".*", "x")


def test_the_walk_sees_every_part() -> None:
    names = [name for name, _ in addresses()]
    assert len(names) > 150
    for part in (
        "dashboard:overview",
        "serving:deploy",
        "chat:playground",
        "admin:serving_deployment_do",
        "api:deploy",
    ):
        assert part in names
    assert not [path for _, path in addresses() if "<" in path or "(" in path]


@pytest.mark.parametrize("method", ["get", "post"])
def test_nobody_gets_anything(method: str) -> None:
    open_to_nobody: list[str] = []
    client = Client()
    for name, path in addresses():
        if name in OPEN:
            continue
        answer = getattr(client, method)(path)
        allowed = REFUSED | ({404} if name in ANYBODYS_404 else set())
        # A route of the API that does not know the method says so before it asks who calls.
        if answer.status_code not in allowed | (
            {405} if path.startswith("/api/") or name in TOKEN_ONLY else set()
        ):
            open_to_nobody.append(f"{method} {path} ({name}): {answer.status_code}")
        if answer.status_code == 302 and not answer.headers["Location"].startswith(
            ("/sign-in/", "/admin/login/")
        ):
            open_to_nobody.append(f"{method} {path} ({name}): leads to {answer.headers['Location']}")
    assert open_to_nobody == []


def test_an_account_without_a_role_gets_nothing_either() -> None:
    seen: list[str] = []
    client = client_of(person())
    for name, path in addresses():
        if name in OPEN or name in OF_ANY_ACCOUNT:
            continue
        answer = client.get(path)
        # The admin leads to its sign-in address, which refuses (test_roles).
        led_away = answer.status_code == 302 and answer.headers["Location"].startswith("/admin/login/")
        # A session means nothing to what asks for a token.
        refused = {403, 404, 405} | ({401} if name in TOKEN_ONLY else set())
        # The API reads what an address asks before it knows who asks; the answer names the parameters alone.
        refused |= {422} if path.startswith("/api/") else set()
        if answer.status_code not in refused and not led_away:
            seen.append(f"{path} ({name}): {answer.status_code}")
    assert seen == []


# What somebody who is signed in may do whatever their roles are.
OF_ANY_ACCOUNT = {
    "api:me",
    "api:openapi-json",
    "api:openapi-view",
    "dashboard:sign_out",
    "dashboard:words",
    "dashboard:palette",
    "admin:login",
    "admin:logout",
}


def test_the_palette_of_an_account_without_a_role_is_empty() -> None:
    assert client_of(person()).get("/palette.json").json() == {"items": []}


def test_the_installer_is_the_file_of_the_source() -> None:
    given = Client().get("/fleet/-/install.py").content
    assert given == (Path(__file__).parents[2] / "deploy/install_worker.py").read_bytes()


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/sign-in/"])
def test_what_is_open_tells_nothing(path: str) -> None:
    body = Client().get(path).content.decode()
    for word in ("Traceback", "INFLIGHT_", "sqlite", "/home/", "version"):
        assert word not in body
