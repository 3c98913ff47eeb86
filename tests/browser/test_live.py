"""Live updates: rows, progress, logs and samples arrive without a reload and without moving the page."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from apps.core import transitions
from apps.engines import states as build_states
from apps.engines.models import Build
from apps.serving.models import Deployment
from apps.telemetry import store
from tests.browser import checks
from tests.browser.conftest import Tab
from tests.browser.world import World
from tests.support.redis import RedisServer

PLOT = "document.querySelector('[data-chart=chart-tokens] .js-plotly-plot')"
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

    def finish() -> None:
        row = Build.objects.get(number=3)
        assert transitions.transition(row, build_states.SUCCEEDED, actor="gpu0", engine=engine, progress=1.0)

    aside(finish)
    expect(page.locator("#head")).to_contain_text("succeeded")
    expect(page.get_by_role("link", name="Deploy", exact=True)).to_be_visible()
    expect(page.locator("#result")).to_contain_text("Fingerprint")
    expect(page.locator("#work-count")).to_have_text("0")


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


def _sample(at: float, **values: float | None) -> dict[str, Any]:
    return {
        "at": at,
        "generated_tokens_per_second": 50.0,
        "ttft_p99_ms": 200.0,
        "requests_running": 1.0,
        **values,
    }


def _publish(redis: RedisServer, world: World, *samples: dict[str, Any]) -> None:
    """Keep and publish samples as telemetry does."""
    from asgiref.sync import async_to_sync
    from channels.layers import get_channel_layer

    key = world.deployment.pk
    with redis.client(3) as client:
        for sample in samples:
            client.xadd(
                store.deployment_key(key), {"sample": json.dumps(sample)}, id=f"{int(sample['at'] * 1000)}-*"
            )
    topic = f"metrics:{key}"
    message = {"type": "topic.samples", "topic": topic, "samples": list(samples)}
    layer: Any = get_channel_layer()
    async_to_sync(layer.group_send)(topic.replace(":", "."), message)


class TestCharts:
    """The live charts of a deployment."""

    @pytest.fixture
    def charts(self, page: Page, world: World, redis_session: RedisServer, aside: Aside) -> Page:
        """The page with 20 samples up to 30 s ago, and none since."""
        begin = time.time() - 50
        aside(lambda: _publish(redis_session, world, *(_sample(begin + n) for n in range(20))))
        page.goto("/deployments/demo/")
        page.wait_for_function(f"() => {PLOT}?.data[0].y.length > 0")
        return page

    def _values(self, page: Page) -> list[float | None]:
        found: list[float | None] = page.evaluate(f"{PLOT}.data[0].y")
        return found

    def test_without_telemetry_nothing_is_made_up(self, charts: Page) -> None:
        note = charts.locator("[data-chart=chart-tokens] [data-chart-note]")
        expect(note).to_contain_text("No samples since")
        before = self._values(charts)
        shown = charts.evaluate(f"{PLOT}.layout.xaxis.range[1]")
        charts.wait_for_function(
            f"(shown) => {PLOT}.layout.xaxis.range[1] > shown + 1500",
            arg=shown,
        )
        assert self._values(charts) == before
        assert charts.locator("[data-chart=chart-tokens] [data-value]").first.inner_text() == "\u2013"

    def test_samples_come_after_a_gap(
        self, charts: Page, world: World, redis_session: RedisServer, aside: Aside
    ) -> None:
        charts.evaluate("checks.forget()")
        aside(lambda: _publish(redis_session, world, _sample(time.time(), generated_tokens_per_second=77.0)))
        value = charts.locator("[data-chart=chart-tokens] [data-value]").first
        expect(value).to_have_text("77")
        assert self._values(charts)[-2:] == [None, 77]
        expect(charts.locator("[data-chart=chart-tokens] [data-chart-note]")).to_have_text("")
        checks.assert_still(charts)

    def test_an_absent_value_is_a_gap(
        self, charts: Page, world: World, redis_session: RedisServer, aside: Aside
    ) -> None:
        aside(lambda: _publish(redis_session, world, _sample(time.time(), generated_tokens_per_second=None)))
        charts.wait_for_function(
            "() => document.querySelector('[data-chart=chart-queue] [data-value]').textContent.trim() === '1'"
        )
        assert self._values(charts)[-1] is None

    def test_legend_table_and_download(self, charts: Page) -> None:
        card = charts.locator("[data-chart=chart-tokens]")
        card.get_by_role("button", name="generated").click()
        assert charts.evaluate(f"{PLOT}.data[0].visible") is False
        card.get_by_role("button", name="Show as a table").click()
        assert card.locator("tbody tr").count() == 20
        assert checks.problems(charts) == []
        with charts.expect_download() as download:
            card.get_by_role("button", name="Download as CSV").click()
        text = download.value.path().read_text()
        assert text.splitlines()[0] == "at,generated_tokens_per_second,prompt_tokens_per_second"
        assert len(text.splitlines()) == 21
        with charts.expect_download() as picture:
            card.get_by_role("button", name="Download as PNG").click()
        assert picture.value.path().read_bytes().startswith(b"\x89PNG")

    def test_a_hidden_page_draws_nothing_and_catches_up(
        self, charts: Page, world: World, redis_session: RedisServer, aside: Aside
    ) -> None:
        charts.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
        before = self._values(charts)
        aside(lambda: _publish(redis_session, world, _sample(time.time(), generated_tokens_per_second=88.0)))
        with pytest.raises(Exception, match="Timeout"):
            charts.wait_for_function("() => false", timeout=2500)
        assert self._values(charts) == before
        charts.evaluate("delete document.hidden")
        expect(charts.locator("[data-chart=chart-tokens] [data-value]").first).not_to_have_text(
            "\u2013", timeout=5000
        )
        assert self._values(charts)[-1] == 88


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
