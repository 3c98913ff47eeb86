"""Charts in a real browser: live samples, gaps, one chart a frame, bounded figures, zoom, pause, table, downloads."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from apps.telemetry import store
from tests.browser import checks
from tests.browser.world import World
from tests.support.redis import RedisServer

PLOT = "document.querySelector('[data-chart=chart-tokens] .js-plotly-plot')"
CARD = "[data-chart=chart-tokens]"
MODULES = "/static/js/charts"
Aside = Callable[[Callable[[], Any]], Any]


def _sample(at: float, **values: float | None) -> dict[str, Any]:
    return {
        "at": at,
        "generated_tokens_per_second": 50.0,
        "prompt_tokens_per_second": 20.0,
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


def _values(page: Page) -> list[float | None]:
    """What the first trace shows; null is a gap."""
    found: list[float | None] = page.evaluate(
        f"Array.from({PLOT}.data[0].y, (value) => Number.isNaN(value) ? null : value)"
    )
    return found


@pytest.fixture
def charts(page: Page, world: World, redis_session: RedisServer, aside: Aside) -> Page:
    """The page with a minute of samples up to 60 s ago, and none since; the chart of tokens is in sight."""
    begin = (time.time() - 120) // 3 * 3
    aside(lambda: _publish(redis_session, world, *(_sample(begin + n) for n in range(60))))
    page.goto("/deployments/demo/")
    page.locator(CARD).scroll_into_view_if_needed()
    page.wait_for_function(f"() => {PLOT}?.data[0].y.length > 0")
    return page


def test_without_telemetry_nothing_is_made_up(charts: Page) -> None:
    note = charts.locator(f"{CARD} [data-chart-note]")
    expect(note).to_contain_text("No samples since")
    before = _values(charts)
    assert before == [50.0] * 20
    shown = charts.evaluate(f"{PLOT}.layout.xaxis.range[1]")
    charts.wait_for_function(f"(shown) => {PLOT}.layout.xaxis.range[1] > shown + 1500", arg=shown)
    assert _values(charts) == before
    assert charts.locator(f"{CARD} [data-value]").first.inner_text() == "\u2013"


def test_samples_come_after_a_gap(
    charts: Page, world: World, redis_session: RedisServer, aside: Aside
) -> None:
    charts.evaluate("checks.forget()")
    aside(lambda: _publish(redis_session, world, _sample(time.time(), generated_tokens_per_second=77.0)))
    value = charts.locator(f"{CARD} [data-value]").first
    expect(value).to_have_text("77")
    assert _values(charts)[-2:] == [None, 77]
    expect(charts.locator(f"{CARD} [data-chart-note]")).to_have_text("")
    checks.assert_still(charts)


def test_an_absent_value_is_a_gap(
    charts: Page, world: World, redis_session: RedisServer, aside: Aside
) -> None:
    aside(lambda: _publish(redis_session, world, _sample(time.time(), generated_tokens_per_second=None)))
    expect(charts.locator(f"{CARD} [data-value]").nth(1)).to_have_text("20")
    assert _values(charts)[-1] is None
    assert charts.locator(f"{CARD} [data-value]").first.inner_text() == "\u2013"


def test_legend_table_and_downloads(charts: Page) -> None:
    card = charts.locator(CARD)
    card.get_by_role("button", name="generated").click()
    charts.wait_for_function(f"() => {PLOT}.data[0].visible === false")
    card.get_by_role("button", name="Show as a table").click()
    assert card.locator("tbody tr").count() == 20
    assert card.locator("tbody tr").first.locator("td").all_inner_texts()[1:] == ["50", "20"]
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
    charts: Page, world: World, redis_session: RedisServer, aside: Aside
) -> None:
    charts.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
    draws = f"async () => (await import('{MODULES}/scheduler.js')).scheduler.draws"
    # What was asked for before the page was hidden is still drawn: half a second of frames without anything.
    before = charts.evaluate(
        f"async () => {{ const {{ scheduler }} = await import('{MODULES}/scheduler.js'); let calm = 0;"
        "while (calm < 30) { await new Promise(requestAnimationFrame); calm = scheduler.waiting ? 0 : calm + 1; }"
        "return scheduler.draws; }"
    )
    charts.evaluate(
        "import('/static/js/realtime/socket.js').then(({live}) => live.subscribe("
        f"'metrics:{world.deployment.pk}', {{samples: () => {{ window.arrived = true; }} }}))"
    )
    aside(lambda: _publish(redis_session, world, _sample(time.time(), generated_tokens_per_second=88.0)))
    charts.wait_for_function("() => window.arrived")
    assert charts.evaluate(draws) == before
    charts.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    expect(charts.locator(f"{CARD} [data-value]").first).to_have_text("88")
    assert _values(charts)[-1] == 88


def test_pause_holds_the_picture_and_loses_nothing(
    charts: Page, world: World, redis_session: RedisServer, aside: Aside
) -> None:
    charts.get_by_role("button", name="Pause").click()
    expect(charts.get_by_role("button", name="Go on")).to_have_attribute("aria-pressed", "true")
    # What had come before the pause may still be drawn, one chart a frame.
    charts.evaluate("async () => { for (let n = 0; n < 30; n++) await new Promise(requestAnimationFrame); }")
    before = _values(charts)
    aside(lambda: _publish(redis_session, world, _sample(time.time(), generated_tokens_per_second=99.0)))
    charts.evaluate("async () => { for (let n = 0; n < 30; n++) await new Promise(requestAnimationFrame); }")
    assert _values(charts) == before
    charts.get_by_role("button", name="Go on").click()
    charts.wait_for_function(f"() => {PLOT}.data[0].y.at(-1) === 99")


def test_zoom_is_shared_and_stands_in_the_address(charts: Page) -> None:
    other = PLOT.replace("tokens", "ttft")
    span = "{0}.layout.xaxis.range[1] - {0}.layout.xaxis.range[0]".format
    charts.get_by_role("button", name="Zoom in").press("Enter")
    charts.wait_for_url("**/deployments/demo/?from=*&to=*")
    charts.wait_for_function(f"() => Math.abs({span(PLOT)} - 450000) < 2000")
    shown = charts.evaluate(f"{PLOT}.layout.xaxis.range[0]")
    # A chart that was out of sight takes the same range when it comes into sight.
    charts.locator("[data-chart=chart-ttft]").scroll_into_view_if_needed()
    charts.wait_for_function(f"(shown) => {other}.layout.xaxis.range[0] === shown", arg=shown)
    charts.get_by_role("button", name="Whole range").click()
    charts.wait_for_url("**/deployments/demo/")
    charts.wait_for_function(f"() => Math.abs({span(other)} - 900000) < 10")


def test_a_range_that_is_over_shows_its_own_figures(
    page: Page, world: World, redis_session: RedisServer, aside: Aside
) -> None:
    begin = (time.time() - 300) // 10 * 10
    aside(lambda: _publish(redis_session, world, *(_sample(begin + n) for n in range(60))))
    page.goto(f"/deployments/demo/?from={begin + 20:.0f}&to={begin + 40:.0f}")
    page.locator(CARD).scroll_into_view_if_needed()
    page.wait_for_function(f"() => {PLOT}?.data[0].y.length >= 18")
    assert set(_values(page)) == {50.0}
    assert page.get_by_role("button", name="Pause").count() == 0
    expect(page.locator(".own-range")).to_have_attribute("open", "")


def test_an_earlier_period_and_what_tokens_cost(
    page: Page, world: World, redis_session: RedisServer, aside: Aside
) -> None:
    from apps.fleet.models import Gpu
    from apps.telemetry.domain.rollup import Bucket, pack
    from apps.telemetry.storage.models import Rollup

    now = time.time() // 10 * 10
    bucket = Bucket()
    for _second in range(10):
        bucket.add_sample(_sample(0.0, generated_tokens_per_second=25.0))
    stored = {"scope": 1, "scope_id": world.deployment.pk, "step": 10, "data": pack(bucket)}
    # The server holds 40 of the slot's 100 shares: 3.60 an hour.
    Gpu.objects.update(device="gpu", price_per_hour=9, total_share=100)

    def fill() -> None:
        Rollup.objects.bulk_create(Rollup(at=int(now) - 1500 + n, **stored) for n in range(0, 300, 10))
        live = (_sample(now - 120 + n, gpu_power_watts=25.0) for n in range(60))
        _publish(redis_session, world, *live)

    aside(fill)
    page.goto("/deployments/demo/?compare=before")
    page.locator(CARD).scroll_into_view_if_needed()
    page.wait_for_function(f"() => {PLOT}?.data.length === 4 && {PLOT}.data[2].y.length > 20")
    earlier = page.evaluate(f"Array.from({PLOT}.data[2].y).filter((value) => !Number.isNaN(value))")
    assert set(earlier) == {25.0}
    assert page.evaluate(f"{PLOT}.data[2].name").endswith("earlier")
    assert set(_values(page)) - {None} == {50.0}
    for chart, value in (("efficiency", 2.0), ("cost", 20.0)):
        page.locator(f"[data-chart=chart-{chart}]").scroll_into_view_if_needed()
        plot = PLOT.replace("chart-tokens", f"chart-{chart}")
        page.wait_for_function(f"() => {plot}?.data[0].y.length > 0")
        found = page.evaluate(f"Array.from({plot}.data[0].y).filter((value) => !Number.isNaN(value))")
        assert found
        assert all(abs(each - value) < 1e-6 for each in found)


def test_a_range_nobody_can_read_says_so_and_what_to_do(tab: Any, world: World) -> None:
    tab.forgiven = ("422",)
    tab.page.goto("/deployments/demo/?from=yesterday")
    expect(tab.page.locator("main")).to_contain_text("Write it as 2026-11-30T14:05")


# Where everything stands that moves with time, and the box of each line (px). Plotly splits a line at gaps.
PICTURE = f"""() => {{
  const found = [];
  for (const node of {PLOT}.querySelectorAll(".xtick text, .gridlayer .xgrid, .shapelayer path")) {{
    const {{ left, width }} = node.getBoundingClientRect();
    found.push(left + width / 2);
  }}
  for (const trace of {PLOT}.querySelectorAll(".scatterlayer .trace")) {{
    const paths = [...trace.querySelectorAll(".js-line")];
    const boxes = paths.map((path) => path.getBBox()).filter(({{ width }}) => width);
    found.push(Math.min(...boxes.map(({{ x }}) => x)), Math.max(...boxes.map(({{ x, width }}) => x + width)),
      Math.min(...boxes.map(({{ y }}) => y)), Math.max(...boxes.map(({{ y, height }}) => y + height)));
  }}
  return found;
}}"""


def test_between_draws_of_plotly_the_picture_moves_on_as_plotly_would_draw_it(
    charts: Page, world: World, redis_session: RedisServer, aside: Aside
) -> None:
    from apps.core import audit

    revision = world.deployment.active_revision
    assert revision is not None
    aside(lambda: audit.record("ctl", "revision.active", revision, to_state="active"))
    charts.reload()
    charts.locator(CARD).scroll_into_view_if_needed()
    charts.wait_for_function(f"() => {PLOT}?.layout.shapes?.length === 1")
    charts.evaluate(
        f"() => {{ window.wholes = 0; {PLOT}.on('plotly_react', () => {{ window.wholes += 1; }}); }}"
    )
    # After a gap, so that Plotly's lines are of two paths; the last of them is made by the third sample.
    for back in (9, 6, 3, 0):
        value = 51.5 + back / 3
        aside(
            lambda b=back, v=value: _publish(
                redis_session, world, _sample(time.time() - b, generated_tokens_per_second=v)
            )
        )
    charts.wait_for_function(f"() => {PLOT}.data[0].y.at(-1) === 51.5")
    moved = f"() => {PLOT}.querySelector('.xaxislayer-above').getAttribute('transform')?.includes('(-')"
    charts.wait_for_function(moved)
    charts.get_by_role("button", name="Pause").click()
    charts.evaluate("async () => { for (let n = 0; n < 30; n++) await new Promise(requestAnimationFrame); }")
    lightly, wholes = charts.evaluate(PICTURE), charts.evaluate("wholes")
    # A pointer over the chart needs Plotly's own picture.
    charts.evaluate(f"() => {{ {PLOT}.dispatchEvent(new PointerEvent('pointerenter')); }}")
    charts.wait_for_function("(before) => wholes > before", arg=wholes)
    by_plotly = charts.evaluate(PICTURE)
    assert not charts.evaluate(moved)
    assert len(lightly) == len(by_plotly) > 10
    assert max(abs(one - other) for one, other in zip(lightly, by_plotly, strict=True)) < 1.0


SCHEDULED = """async () => {
  const { Scheduler } = await import("/static/js/charts/scheduler.js");
  const frames = [];
  const scheduler = new Scheduler((job) => frames.push(job));
  const drawn = [];
  const jobs = ["a", "b", "c"].map((name) => ({ draw: () => drawn.push(name) > 1 }));
  for (const job of [...jobs, jobs[0]]) scheduler.ask(job);
  scheduler.drop(jobs[1]);
  const seen = [];
  for (let at = 1; frames.length; at += 1) {
    frames.shift()(at);
    seen.push(drawn.join(""));
  }
  const failing = { draw: () => { throw new Error("broken"); } };
  scheduler.ask(failing);
  scheduler.ask(jobs[2]);
  try { frames.shift()(9); } catch { /* the browser reports it */ }
  frames.shift()(10);
  const { roundRange } = await import("/static/js/charts/scale.js");
  const extents = [[0, 0], [0, 1], [0, 100], [0, 9.9], [0, 1e-4], [-3, 0], [-3, 40]];
  const ranges = extents.map(([least, most]) => roundRange(least, most));
  return {
    seen, drawn: drawn.join(""), draws: scheduler.draws, waiting: scheduler.waiting,
    whole: Array.from(scheduler.whole.subarray(0, 4)).join(""), ranges,
  };
}"""


def test_one_chart_a_frame_and_a_broken_one_stops_no_other(page: Page) -> None:
    page.goto("/")
    found = page.evaluate(SCHEDULED)
    ranges = found.pop("ranges")
    assert found == {"seen": ["a", "ac"], "drawn": "acc", "draws": 4, "waiting": 0, "whole": "0101"}
    # Round, with a little room above the highest figure; zero is always on the axis.
    assert [[round(end, 9) for end in each] for each in ranges] == [
        [0, 1],
        [0, 1.2],
        [0, 120],
        [0, 12],
        [0, 0.00012],
        [-4, 0],
        [-4, 50],
    ]


BOUNDED = """async () => {
  const { Series } = await import("/static/js/charts/series.js");
  const frame = { step: 3, live_from: 0, at: [], columns: { a: [], q: [] }, kinds: { q: "highest" } };
  const series = new Series(frame, 900);
  const sizes = new Set();
  for (let n = 0; n < 40000; n += 1) {
    series.add([{ at: 1e9 + n / 6, a: n % 2, q: n % 7 }]);
    sizes.add(series.rows.at.length);
  }
  const before = series.rows.length;
  series.add([{ at: 1e9, a: 5 }]);
  const [first, end] = series.rows.within(series.newest - 900, series.newest);
  const last = series.rows.length - 2;
  series.add([{ at: series.newest + 60, a: null, q: 1 }]);
  const tail = [1, 2].map((back) => series.value({ key: "a", per: "", scale: 1 }, series.rows.length - back));
  return {
    sizes: [...sizes], shown: end - first, ignored: series.rows.length - 2 === before,
    mean: series.value({ key: "a", per: "", scale: 100 }, last),
    highest: series.value({ key: "q", per: "", scale: 1 }, last),
    tail: tail.map(String), quotient: String(series.value({ key: "q", per: "a", scale: 1 }, series.rows.length - 1)),
  };
}"""


def test_figures_are_bounded_and_follow_the_servers_rules(page: Page) -> None:
    page.goto("/deployments/demo/")
    found = page.evaluate(BOUNDED)
    # Twice the 300 steps of 15 minutes and the spare rows, whatever comes in.
    assert found["sizes"] == [648]
    assert 300 <= found["shown"] <= 302
    assert found["ignored"]
    assert (found["mean"], found["highest"]) == (50, 6)
    # A minute without a sample is a row of nothing; an absent value and a quotient by it are nothing too.
    assert found["tail"] == ["NaN", "NaN"]
    assert found["quotient"] == "NaN"


CLOCK = """async () => {
  const { View } = await import("/static/js/charts/view.js");
  // The browser is 100 s ahead, and the page took long to come.
  const view = new View({ now: Date.now() / 1000 - 107, window: 900 });
  view.skew = 107;
  view.heard(Date.now() / 1000 - 100);
  view.heard(Date.now() / 1000 - 103);
  const ahead = view.skew;
  view.pause();
  const [from, to] = view.range();
  view.step(0.5, 0);
  const zoomed = view.range()[1] - view.range()[0];
  view.show(null);
  const { axisTime, tickValues } = await import("/static/js/charts/time.js");
  const ticks = [[900, 500], [900, 90], [3600 * 24, 500], [86400 * 7, 500], [10, 500]].map(([span, width]) => {
    const values = tickValues(from, from + span, width, 12);
    const pixels = values.map((at) => ((at - axisTime(from)) / (span * 1000)) * width);
    const inside = pixels.every((at) => at >= 0 && at <= width - 24);
    return [values.length > 0 && values.length <= 6, inside, (values[1] - values[0]) / 1000 || 0];
  });
  return {
    ahead: Math.round(ahead), window: to - from, zoomed, moving: view.moving, again: view.range()[1] === to, ticks,
  };
}"""


def test_the_axis_ends_at_the_servers_now_however_long_the_page_took(page: Page) -> None:
    page.goto("/")
    assert page.evaluate(CLOCK) == {
        "ahead": 100,
        "window": 900,
        "zoomed": 450,
        "moving": False,
        "again": True,
        # Enough labels, none across an edge, at round times.
        "ticks": [
            [True, True, 300],
            [True, True, 0],
            [True, True, 21600],
            [True, True, 172800],
            [True, True, 2],
        ],
    }


def test_marks_of_roll_outs_stand_on_every_time_axis(charts: Page, world: World, aside: Aside) -> None:
    from apps.core import audit

    revision = world.deployment.active_revision
    assert revision is not None
    aside(lambda: audit.record("ctl", "revision.active", revision, to_state="active"))
    charts.reload()
    charts.locator(CARD).scroll_into_view_if_needed()
    charts.wait_for_function(f"() => {PLOT}?.layout.shapes?.length === 1")
    assert charts.evaluate(f"{PLOT}.layout.shapes[0].label.text") == "r2"
    charts.locator("#marks summary").click()
    expect(charts.locator("#marks")).to_contain_text("Revision 2 serves.")
