"""Live updates: rows, progress, logs and samples arrive without a reload and without moving the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from apps.core import transitions
from apps.engines import states as build_states
from apps.engines.models import Build
from apps.serving.models import Deployment
from tests.browser import checks
from tests.browser.conftest import Tab
from tests.browser.world import World
from tests.support.redis import RedisServer

Aside = Callable[[Callable[[], Any]], Any]


def _settled(page: Page) -> None:
    """The live socket is open and its first look is over."""
    page.wait_for_load_state("networkidle")
    page.evaluate("checks.forget()")


def test_progress_moves_without_moving_the_page(page: Page, world: World, aside: Aside) -> None:
    page.goto("/builds/3/")
    _settled(page)
    page.evaluate("window.same = document.querySelector('#head h1')")
    aside(lambda: transitions.amend(Build.objects.get(number=3), progress=0.9, eta_seconds=5.0))
    expect(page.locator("main [role=progressbar]")).to_have_attribute("aria-valuenow", "90")
    expect(page.locator("#progress")).to_contain_text("5.0\u202fs left")
    assert page.evaluate("window.same === document.querySelector('#head h1')")
    checks.assert_still(page)


def test_the_end_of_a_build_shows_its_engine_and_what_to_do(page: Page, world: World, aside: Aside) -> None:
    page.goto("/builds/3/")
    _settled(page)
    engine = world.done.engine
    # A load test runs besides.
    running = int(page.locator("#work-count").inner_text())

    def finish() -> None:
        row = Build.objects.get(number=3)
        assert transitions.transition(row, build_states.SUCCEEDED, actor="gpu0", engine=engine, progress=1.0)

    aside(finish)
    expect(page.locator("#head")).to_contain_text("succeeded")
    expect(page.get_by_role("link", name="Deploy", exact=True)).to_be_visible()
    expect(page.locator("#result")).to_contain_text("Fingerprint")
    expect(page.locator("#work-count")).to_have_text(str(running - 1))


def test_a_failure_reaches_the_overview(page: Page, world: World, aside: Aside) -> None:
    page.goto("/")
    _settled(page)

    def fail() -> None:
        row = Deployment.objects.get(name="demo")
        sentence = "Its server ended with exit code 137."
        assert transitions.transition(
            row, "failed", actor="ctl", reason="oom", sentence=sentence, remedy="Wait."
        )

    aside(fail)
    first = page.locator("#attention li").first
    expect(first).to_contain_text("Its server ended with exit code 137.")
    expect(first.get_by_role("button", name="Deploy again")).to_be_visible()


def test_focus_stays_where_it_is_when_rows_change(page: Page, world: World, aside: Aside) -> None:
    page.goto("/builds/")
    _settled(page)
    link = page.locator("#rows a", has_text="#3 ")
    link.focus()
    aside(lambda: transitions.amend(Build.objects.get(number=3), progress=0.77))
    expect(page.locator("#rows [role=progressbar]")).to_have_attribute("aria-valuenow", "77")
    expect(link).to_be_focused()


def test_log_lines_are_appended_and_followed(page: Page, world: World) -> None:
    page.goto("/builds/3/")
    note = page.locator("[data-log-note]")
    expect(note).to_have_text("400 lines")
    with Path(world.running.log_path).open("a", encoding="utf-8") as file:
        file.write("info a new line\n")
    expect(note).to_have_text("401 lines")
    expect(page.locator(".log-row").last).to_contain_text("a new line")
    page.locator("[data-log-view]").hover()
    page.mouse.wheel(0, -2000)
    expect(page.locator("[data-log-tail]")).to_have_attribute("aria-pressed", "false")
    with Path(world.running.log_path).open("a", encoding="utf-8") as file:
        file.write("info another line\n")
    expect(note).to_have_text("402 lines")
    assert "another line" not in page.locator(".log-rows").inner_text()


def test_with_redis_gone_a_banner_says_so_and_the_page_still_looks(
    tab: Tab, world: World, redis_session: RedisServer
) -> None:
    tab.forgiven = ("WebSocket", "ws://", "status of 5", "net::")
    tab.page.goto("/builds/3/")
    _settled(tab.page)
    redis_session.stop()
    try:
        tab.page.goto("/builds/3/")
        banner = tab.page.locator("[data-live-banner]")
        expect(banner).to_be_visible(timeout=15000)
        expect(banner).to_contain_text("Redis does not answer")
        expect(tab.page.locator("#head")).to_contain_text("running")
        assert checks.problems(tab.page) == []
    finally:
        redis_session.start()
    expect(banner).to_be_hidden(timeout=40000)
