"""Lists with no row, one row and a thousand rows: legible, still, and quick enough to use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page

from apps.accounts.roles import ADMINISTRATOR
from apps.engines.models import Build
from apps.registry.models import Checkpoint
from apps.serving.models import Deployment
from tests import objects, people
from tests.browser import checks
from tests.browser.conftest import Tab, cookie_of
from tests.browser.server import Server
from tests.browser.world import LONG

LISTS = ("/", "/checkpoints/", "/builds/", "/deployments/", "/metrics/", "/fleet/", "/playground/")
USABLE_MS = 3000


@pytest.fixture
def bare(context: BrowserContext, server: Server, transactional_db: None) -> Iterator[Page]:
    """A page of an administrator in an empty installation."""
    context.clear_cookies()
    context.add_cookies([cookie_of(people.person(ADMINISTRATOR, name="ada"), server)])  # type: ignore[list-item]
    tab = Tab(context.new_page())
    yield tab.page
    tab.close(server)
    tab.check()


def _look(page: Page) -> dict[str, list[str]]:
    found = {}
    for path in LISTS:
        page.goto(path)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("location.pathname") == path
        checks.assert_still(page)
        for width in (390, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            wrong = checks.problems(page)
            if wrong:
                found[f"{path} {width}"] = wrong
    return found


def test_no_rows(bare: Page) -> None:
    assert _look(bare) == {}
    bare.goto("/checkpoints/")
    bare.get_by_role("link", name="Register a checkpoint").click()
    bare.get_by_role("heading", name="Register a checkpoint").wait_for()


def test_one_row(bare: Page) -> None:
    objects.build(objects.build_profile(), number=1)
    objects.deployment(LONG)
    objects.node()
    assert _look(bare) == {}


def test_a_thousand_rows(bare: Page) -> None:
    build = objects.build(objects.build_profile(), "failed", number=1)
    deployment = objects.deployment("demo")
    Checkpoint.objects.bulk_create(
        Checkpoint(name=f"{number:04}-{LONG}"[:60], source={"path": "/x"}, state="ready")
        for number in range(1000)
    )
    Build.objects.bulk_create(
        Build(
            number=10 + number, state="failed", checkpoint=build.checkpoint, spec=build.spec, profile=build.profile,
            fingerprint=f"{number:064x}", sentence="The disk is full. " * 6,
        )
        for number in range(1000)
    )  # fmt: skip
    Deployment.objects.bulk_create(
        Deployment(
            name=f"{number:04}-{LONG}"[:60], state="failed", build_profile=deployment.build_profile,
            batching=deployment.batching, desired="running",
        )
        for number in range(1000)
    )  # fmt: skip
    assert _look(bare) == {}
    for path in LISTS:
        bare.goto(path)
        ready = bare.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
        assert ready < USABLE_MS, path


def test_filters_change_the_address_and_the_rows_in_place(bare: Page) -> None:
    profile = objects.build_profile()
    objects.build(profile, "failed", number=1)
    objects.build(profile, "succeeded", number=2)
    bare.goto("/builds/")
    bare.evaluate("window.same = true")
    bare.select_option("#filter-state", "failed")
    bare.wait_for_url("**/builds/?q=&state=failed&*")
    bare.locator("#rows tbody tr").nth(1).wait_for(state="detached")
    assert bare.locator("#rows tbody tr").count() == 1
    bare.fill("#filter-q", "nothing")
    bare.get_by_text("No build fits this filter.").wait_for()
    assert bare.evaluate("window.same")
    bare.reload()
    assert bare.input_value("#filter-q") == "nothing"
    assert bare.input_value("#filter-state") == "failed"
