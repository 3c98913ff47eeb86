"""A running home (`make up`) for benchmarks: its environment, Django over its database, a browser signed in to it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-precise-memory-info",
    # Collections that are asked for throw away compiled code, and its return looks like growth by megabytes.
    "--js-flags=--no-flush-bytecode",
)


class HomeProblem(RuntimeError):
    """The home cannot be used; the text says what to do."""


def enter(home: Path) -> str:
    """Take on the home's environment and set Django up; returns the address of its pages. Raises HomeProblem."""
    found = home / "run/environment"
    if not found.is_file():
        raise HomeProblem(f"{home} has no run/environment: start it with INFLIGHT_HOME={home} make up.")
    lines = (line.split("=", 1) for line in found.read_text(encoding="utf-8").splitlines() if "=" in line)
    os.environ.update({name: value for name, value in lines if not name.startswith("#")})
    os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings.dev"
    # Playwright runs an event loop in this thread; the few queries here are made between its calls.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    import django

    django.setup()
    return os.environ["INFLIGHT_WEB_URL"]


def session_cookie() -> str:
    """Session key of an administrator of this home."""
    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.auth.models import User
    from django.contrib.sessions.backends.db import SessionStore

    user = User.objects.filter(is_superuser=True, is_active=True).order_by("pk").first()
    if user is None:
        raise HomeProblem("The home has no administrator.")
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.set_expiry(3600)
    session.create()
    return str(session.session_key)


@contextlib.contextmanager
def browser_page(url: str, width: int = 1440, height: int = 900) -> Iterator[Page]:
    """A page of headless Chromium, signed in; closed at the end, its session too."""
    from django.contrib.sessions.models import Session
    from playwright.sync_api import sync_playwright

    program = os.environ.get("INFLIGHT_TEST_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    key = session_cookie()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
            context = browser.new_context(base_url=url, viewport={"width": width, "height": height})
            context.add_cookies([{"name": "sessionid", "value": key, "url": url}])
            yield context.new_page()
            browser.close()
    finally:
        Session.objects.filter(session_key=key).delete()
