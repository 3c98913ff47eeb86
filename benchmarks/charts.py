"""What the live charts cost in the browser, and how long an event takes from the engine to the pixel.

    INFLIGHT_HOME=HOME make up DETACH=1
    .venv/bin/python -m benchmarks.charts frames growth event --home HOME

`frames` and `growth` make a stopped deployment of their own and publish samples for it as telemetry does; `event`
asks the deployment that serves. Everything is measured by the page's own clock and the browser's timeline.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis.exceptions

from benchmarks import draws, heap, home, load

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from apps.serving.models import Deployment

NAME = "charts-benchmark"
WINDOW = 900
# The charts that must be in sight at once, and what the issue asks of each.
CHARTS = 8
EVENT_P95, GROWTH = 1.5, 0.05

OBSERVE = """() => {
  window.bench = { tasks: [], shift: 0 };
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) bench.tasks.push([entry.startTime, entry.duration]);
  }).observe({ type: "longtask", buffered: true });
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) bench.shift += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
}"""
FIND = """async () => {
  const loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
  const url = loaded.find((name) => name.includes("charts/scheduler"));
  window.scheduler = (await import(url)).scheduler;
}"""
IN_SIGHT = """() => [...document.querySelectorAll("[data-chart] .js-plotly-plot")].filter((plot) => {
  const { top, bottom } = plot.getBoundingClientRect();
  return bottom > -120 && top < innerHeight + 120;
}).map((plot) => [plot.data.length, plot.data[0]?.y?.length ?? 0])"""


@contextlib.contextmanager
def scratch_deployment() -> Iterator[Deployment]:
    """A stopped deployment that nothing but this benchmark writes samples of."""
    from apps.engines.models import BuildProfile
    from apps.serving.models import BatchingProfile, Deployment
    from apps.serving.services import delete_deployment, save_deployment
    from apps.telemetry import store

    profile, batching = BuildProfile.objects.first(), BatchingProfile.objects.first()
    if profile is None or batching is None:
        raise home.HomeProblem("The home has no build profile or no batching profile: it is not ready yet.")
    row = Deployment.objects.filter(name=NAME).first() or save_deployment(
        "benchmark", {"name": NAME, "build_profile": profile, "batching": batching}
    )
    try:
        yield row
    finally:
        from apps.realtime.redis_clients import sync_client

        sync_client().delete(store.deployment_key(row.pk))
        delete_deployment("benchmark", row)


def sample(at: float) -> dict[str, float]:
    """A sample that tells every key, so that no chart is spared."""
    from apps.telemetry.domain.vocabulary import NAMES

    wave = 1 + math.sin(at / 17) / 3 + random.random() / 10
    return {"at": at, **{name: round(wave * (index % 7 + 1) * 10, 4) for index, name in enumerate(NAMES)}}


def fill(key: int) -> None:
    """The last WINDOW seconds of samples, as telemetry keeps them."""
    from apps.realtime.redis_clients import sync_client
    from apps.telemetry import store

    now = time.time()
    pipeline = sync_client().pipeline(transaction=False)
    pipeline.delete(store.deployment_key(key))
    for second in range(WINDOW, 0, -1):
        at = now - second
        pipeline.xadd(store.deployment_key(key), {"sample": json.dumps(sample(at))}, id=f"{int(at * 1000)}-0")
    pipeline.execute()


class Pump(threading.Thread):
    """Publishes `rate` samples a second of one deployment until it is stopped, and keeps one a second."""

    def __init__(self, key: int, rate: float) -> None:
        super().__init__(daemon=True)
        self.key, self.rate, self.sent = key, rate, 0
        self._stop_now = threading.Event()

    def run(self) -> None:
        """Publish."""
        asyncio.run(self._publish())

    async def _publish(self) -> None:
        from channels.layers import get_channel_layer

        layer: Any = get_channel_layer()
        topic = f"metrics:{self.key}"
        begun = time.monotonic()
        while not self._stop_now.is_set():
            message = {"type": "topic.samples", "topic": topic, "samples": [sample(time.time())]}
            # A machine that is busy for seconds must not end ten minutes of measuring.
            with contextlib.suppress(redis.exceptions.TimeoutError):
                await layer.group_send(topic.replace(":", "."), message)
            self.sent += 1
            await asyncio.sleep(max(0.0, begun + self.sent / self.rate - time.monotonic()))

    def stop(self) -> None:
        """End it, and wait until it has ended. Raises HomeProblem where it ended by itself: too little was sent."""
        if not self.is_alive():
            raise home.HomeProblem(
                f"Publishing samples broke off after {self.sent}: look at the lines above."
            )
        self._stop_now.set()
        self.join(10)


def open_charts(page: Page, name: str) -> None:
    """The Live tab, drawn as far as it is in sight."""
    page.add_init_script(f"({OBSERVE})()")
    page.goto(f"/deployments/{name}/")
    page.wait_for_function("() => document.querySelectorAll('.js-plotly-plot').length >= 4")
    page.evaluate(FIND)
    page.wait_for_function("() => scheduler.waiting === 0")


def frames(url: str, seconds: float) -> dict[str, Any]:
    """Cost of a draw, charts in a frame, long tasks: while loading and while samples come once a second.

    `live`: as a person looks at it, where Plotly draws when its picture does more than move on; `whole`: Plotly draws
    each time.
    """
    with scratch_deployment() as row, home.browser_page(url) as page:
        fill(row.pk)
        pump = Pump(row.pk, 1.0)
        pump.start()
        open_charts(page, NAME)
        page.evaluate("document.querySelector('#group-traffic').scrollIntoView()")
        page.wait_for_timeout(3000)
        loaded, in_sight = page.evaluate(draws.READ), page.evaluate(IN_SIGHT)
        live = draws.costs(page, seconds)
        page.evaluate(draws.POINT)
        page.wait_for_timeout(3000)
        whole = draws.costs(page, seconds)
        shift = page.evaluate(draws.READ)["shift"]
        pump.stop()
    return {
        "seconds": seconds,
        "charts": len(in_sight),
        "lines": sum(lines for lines, _points in in_sight),
        "points": max((points for _lines, points in in_sight), default=0),
        "live": live,
        "whole": whole,
        "load_task_max": max((d for at, d in loaded["tasks"] if at <= loaded["now"]), default=0.0),
        "shift": shift,
    }


def growth(url: str, seconds: float, rate: float) -> dict[str, Any]:
    """Heap after collection: once the page is warm, then each minute while samples come at `rate` a second."""
    with scratch_deployment() as row, home.browser_page(url) as page:
        fill(row.pk)
        pump = Pump(row.pk, rate)
        pump.start()
        open_charts(page, NAME)
        client = page.context.new_cdp_session(page)
        client.send("HeapProfiler.enable")
        page.wait_for_timeout(60_000)
        heaps = [heap.living(page, client)]
        kinds = [heap.machine_code(page, client)]
        end = time.monotonic() + seconds
        while time.monotonic() < end - 1:
            page.wait_for_timeout(min(60.0, end - time.monotonic()) * 1000)
            heaps.append(heap.living(page, client))
            print(
                f"  heap {heaps[-1]['heap'] / 1e6:.2f} MB, {heaps[-1]['nodes']} nodes",
                file=sys.stderr,
                flush=True,
            )
        kinds.append(heap.machine_code(page, client))
        pump.stop()
        drawn = page.evaluate("scheduler.draws")
    first, last = heaps[0]["heap"], heaps[-1]["heap"]
    code = kinds[-1] - kinds[0]
    return {"seconds": seconds, "rate": rate, "samples": pump.sent, "draws": drawn, "heaps": heaps, "code": kinds,
            "growth": last / first - 1, "growth_of_code": code / first,
            "growth_of_page": (last - first - code) / first}  # fmt: skip


RUNNING = """(up) => new Promise((resolve) => {
  const plot = document.querySelector("[data-chart=chart-queue] .js-plotly-plot");
  const look = () => {
    const y = plot.data[0].y;
    if ((y[y.length - 1] > 0) === up) requestAnimationFrame(() => resolve(Date.now() / 1000));
    else requestAnimationFrame(look);
  };
  look();
})"""


def event(url: str, name: str, trials: int) -> dict[str, Any]:
    """Seconds from sending a request to the frame that shows it running in the chart of the queue."""
    found: list[float] = []
    with home.browser_page(url) as page:
        open_charts(page, name)
        page.evaluate("document.querySelector('#group-saturation').scrollIntoView()")
        page.wait_for_function("() => document.querySelector('[data-chart=chart-queue] .js-plotly-plot')")
        for _trial in range(trials):
            page.evaluate(RUNNING, False)
            # Somewhere in the second, so that the scraper's rhythm is met at every phase.
            time.sleep(random.random())
            request = threading.Thread(target=_ask, args=(name,), daemon=True)
            _ask_ready(name)
            sent = time.time()
            request.start()
            found.append(page.evaluate(RUNNING, True) - sent)
            request.join(60)
    found.sort()
    return {
        "trials": trials,
        "p50": statistics.median(found),
        "p95": found[min(len(found) - 1, math.ceil(len(found) * 0.95) - 1)],
        "max": found[-1],
    }


def _options(name: str) -> dict[str, Any]:
    from apps.chat.management.commands.chat import Command

    question = "Tell a long story about a fox and a river."
    asked = [question, "--deployment", name, "--max-tokens", "160"]
    return vars(Command().create_parser("manage.py", "chat").parse_args(asked))


def _ask_ready(name: str) -> None:
    """Import and look up what a request needs, so that only the request is timed."""
    from apps.chat.management.commands.chat import prepare

    _ask.prepared = prepare(_options(name))  # type: ignore[attr-defined]


def _ask(name: str) -> None:
    from apps.streaming import answers

    source, request = _ask.prepared  # type: ignore[attr-defined]
    asyncio.run(answers.answer(source, request, None))


def report(found: dict[str, dict[str, Any]]) -> str:
    """Markdown table of what was measured beside what is wanted."""
    rows: list[tuple[str, str, str]] = []
    if "frames" in found:
        f = found["frames"]
        sight = f"{f['charts']}, {f['lines']}, {f['points']}"
        rows.append(("charts in sight, their lines, points of a line", f"{CHARTS} x 300", sight))
        rows += draws.rows(f["live"], f["seconds"], "while live")
        rows += draws.rows(f["whole"], f["seconds"], "with a pointer over each chart")
        rows += [
            ("longest task while the page loads (ms)", "", f"{f['load_task_max']:.0f}"),
            ("layout shift, loading and live", "0", f"{f['shift']:.4f}"),
        ]
    if "growth" in found:
        g = found["growth"]
        heaps = ", ".join(f"{each['heap'] / 1e6:.2f}" for each in g["heaps"])
        came = f"{g['samples']} samples at {g['rate']:.0f} a second in {g['seconds'] / 60:.0f} min"
        what = f"heap after collection (MB), {came}"
        rows += [
            (what, f"within {GROWTH:.0%}", f"{heaps}: {g['growth']:+.1%}"),
            ("of that, machine code that V8 makes of hot functions", "", f"{g['growth_of_code']:+.1%}"),
            ("of that, everything that the page keeps", "", f"{g['growth_of_page']:+.1%}"),
        ]
    if "event" in found:
        e = found["event"]
        what = f"request sent to pixel, {e['trials']} requests (s: p50, p95, max)"
        rows.append((what, f"p95 at most {EVENT_P95}", f"{e['p50']:.2f}, {e['p95']:.2f}, {e['max']:.2f}"))
    return "\n".join(
        f"| {' | '.join(row)} |" for row in [("in the browser", "wanted", "found"), ("---",) * 3, *rows]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is named and print the table; exits 1 where something is not as wanted."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.charts", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument("what", nargs="+", choices=["frames", "growth", "event"])
    parser.add_argument("--home", type=Path, required=True, help="a home that is up")
    parser.add_argument("--url", help="where its pages are (default: as the home says)")
    parser.add_argument("--deployment", default="demo", help="what `event` asks (default: demo)")
    parser.add_argument("--seconds", type=float, default=60, help="of frames (default: 60)")
    parser.add_argument("--minutes", type=float, default=10, help="of growth (default: 10)")
    parser.add_argument("--rate", type=float, default=6, help="samples a second of growth (default: 6)")
    parser.add_argument("--trials", type=int, default=40, help="requests of event (default: 40)")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    given = parser.parse_args(arguments)
    try:
        url = given.url or home.enter(given.home)
        if given.url:
            home.enter(given.home)
    except home.HomeProblem as problem:
        print(problem, file=sys.stderr)
        return 1
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "frames": lambda: frames(url, given.seconds),
        "growth": lambda: growth(url, given.minutes * 60, given.rate),
        "event": lambda: event(url, given.deployment, given.trials),
    }
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(given.what):
        before = load.read()
        try:
            found[name] = measures[name]()
        except home.HomeProblem as problem:
            print(problem, file=sys.stderr)
            return 1
        # At once: what was measured outlasts a failure of what comes after it.
        print(report({name: found[name]}))
        busy = load.others(before, load.read())
        print(f"\nOther programs used {busy:.0%} of the machine (the home's own among them).\n", flush=True)
    if given.json:
        given.json.write_text(json.dumps(found, indent=2), encoding="utf-8")
    return 0 if holds(found) else 1


def holds(found: dict[str, dict[str, Any]]) -> bool:
    """Whether everything that was measured is as wanted."""
    good = True
    if "frames" in found:
        good &= draws.hold(found["frames"]["live"]) and draws.hold(found["frames"]["whole"])
    if "growth" in found:
        good &= abs(found["growth"]["growth"]) <= GROWTH
    if "event" in found:
        good &= found["event"]["p95"] <= EVENT_P95
    return good


if __name__ == "__main__":
    sys.exit(main())
