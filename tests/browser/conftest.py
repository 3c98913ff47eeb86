"""One server and one browser for all tests of this package; rows, session and page of each test's own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.test import Client
from django.test.utils import override_settings
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from apps.accounts.roles import ADMINISTRATOR
from controlplane.settings import base
from tests import people
from tests.browser import checks
from tests.browser.server import Server
from tests.browser.world import World, make_world
from tests.support.redis import RedisServer

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Waits end as soon as what they wait for is there; the length is for a machine that does much else.
WAIT_MS = 20_000
Result = TypeVar("Result")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this package needs Chromium."""
    for item in items:
        if "tests/browser/" in item.path.as_posix():
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="package")
def server(redis_session: RedisServer) -> Iterator[Server]:
    """The pages, with live updates over a real Redis."""
    layer = {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [redis_session.url(1)], "prefix": "browser"},
    }
    with (
        override_settings(
            REDIS_URL=redis_session.url(3),
            CHANNEL_LAYERS={"default": layer},
            WHITENOISE_USE_FINDERS=True,
            # Files stay as they are while tests run: a browser asks for each once, and it is not looked for again.
            WHITENOISE_AUTOREFRESH=False,
            WHITENOISE_MAX_AGE=3600,
            CONTENT_SECURITY_POLICY=base.CONTENT_SECURITY_POLICY,
        ),
        Server() as running,
    ):
        yield running


@pytest.fixture(scope="package")
def browser(server: Server) -> Iterator[Browser]:
    """Headless Chromium. Its event loop lives in this thread, so Django's guard for such threads is lifted."""
    found = os.environ.get("INFLIGHT_TEST_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    with sync_playwright() as playwright:
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
        chromium = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield chromium
        chromium.close()
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture(scope="package")
def context(browser: Browser, server: Server) -> Iterator[BrowserContext]:
    """One profile; tests empty it."""
    made = browser.new_context(base_url=server.url, viewport={"width": 1440, "height": 900})
    made.set_default_timeout(WAIT_MS)
    expect.set_options(timeout=WAIT_MS)
    made.add_init_script(path=checks.SCRIPT)
    yield made
    made.close()


@pytest.fixture
def world(transactional_db: None, redis_session: RedisServer) -> World:
    """Rows for every page, with long names."""
    with redis_session.client() as client:
        client.flushall()
    return make_world()


def cookie_of(user: User, server: Server) -> dict[str, str]:
    """Session cookie of a person."""
    client = Client()
    client.force_login(user)
    session = client.session
    assert isinstance(session, SessionStore)
    return {"name": "sessionid", "value": str(session.session_key), "url": server.url}


class Tab:
    """A page with what went wrong in it. Every error of the console fails the test that made the tab."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        self.forgiven: tuple[str, ...] = ()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"page error: {error}"))

    def _console(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.problems.append(f"{message.type}: {message.text}")

    def close(self, server: Server) -> None:
        """Leave all pages, so that nothing of them is under way any more, and wait until the server is done."""
        server.retire({each["value"] for each in self.page.context.cookies() if each["name"] == "sessionid"})
        for page in self.page.context.pages:
            page.goto("about:blank")
            page.close()
        server.wait_idle()

    def check(self) -> None:
        """Fail for what went wrong, but for the texts in `forgiven`."""
        left = [each for each in self.problems if not any(words in each for words in self.forgiven)]
        assert left == []


@pytest.fixture
def tab(context: BrowserContext, server: Server, world: World) -> Iterator[Tab]:
    """A page of a signed-in administrator."""
    context.clear_cookies()
    context.add_cookies([cookie_of(people.person(ADMINISTRATOR, name="ada"), server)])  # type: ignore[list-item]
    made = Tab(context.new_page())
    yield made
    made.close(server)
    made.check()


@pytest.fixture
def page(tab: Tab) -> Page:
    """The page of `tab`."""
    return tab.page


@pytest.fixture(scope="package")
def aside() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Run something in a thread without an event loop, as publishers need."""
    with ThreadPoolExecutor(1) as pool:

        def run(work: Callable[[], Any]) -> Any:
            return pool.submit(work).result(timeout=30)

        yield run
