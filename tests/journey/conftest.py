"""The whole of Inflight as `make up` starts it: own home, real Redis, Celery, Triton and LLM; and a browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, sync_playwright

from tests.browser.conftest import FLAGS
from tests.support.stack import DOWN_SECONDS, Stack, running_stack

__all__ = ["DOWN_SECONDS", "Stack", "page", "stack"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest comes first, so that nobody waits for it at the end."""
    items.sort(key=lambda item: "tests/journey/" not in item.path.as_posix())


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """Everything, started by `make up DETACH=1`; ended by `make down`."""
    with running_stack() as running:
        yield running


@pytest.fixture
def page(stack: Stack) -> Iterator[Page]:
    """A browser at the sign-in page."""
    found = os.environ.get("INFLIGHT_TEST_BROWSER") or shutil.which("chromium") or "/usr/bin/chromium"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=FLAGS)
        page = chromium.new_page(base_url=stack.url, viewport={"width": 1440, "height": 900})
        page.set_default_timeout(20_000)
        yield page
        chromium.close()
