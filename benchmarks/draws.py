"""What the draws of the live charts cost: by the page's own clock, and in CPU time out of the browser's trace."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

# What the issue asks of a chart and of any task.
DRAW_MS, TASK_MS = 16.0, 50.0

READ = """() => {
  const kept = Math.min(scheduler.draws, scheduler.took.length);
  return { draws: scheduler.draws, took: Array.from(scheduler.took.subarray(0, kept)),
           frames: Array.from(scheduler.frames.subarray(0, kept)),
           whole: Array.from(scheduler.whole.subarray(0, kept)), tasks: bench.tasks, shift: bench.shift,
           now: performance.now() };
}"""
# A pointer over every chart: Plotly draws each of them whole, every time.
POINT = """() => {
  for (const plot of document.querySelectorAll("[data-plot]")) plot.dispatchEvent(new PointerEvent("pointerenter"));
}"""


def costs(page: Page, seconds: float) -> dict[str, Any]:
    """What the draws of the next `seconds` cost."""
    before = page.evaluate(READ)
    browser = page.context.browser
    assert browser is not None
    browser.start_tracing(page=page, categories=["devtools.timeline", "toplevel"])
    page.wait_for_timeout(seconds * 1000)
    found = page.evaluate(READ)
    cpu = cpu_times(json.loads(browser.stop_tracing())["traceEvents"])
    new = min(found["draws"] - before["draws"], len(found["took"]))
    order = [(found["draws"] - back) % len(found["took"]) for back in range(1, new + 1)]
    took = sorted(found["took"][place] for place in order)
    starts = [found["frames"][place] for place in order]
    tasks = [duration for at, duration in found["tasks"] if at > before["now"]]
    return {
        "draws": new,
        "by_plotly": sum(found["whole"][place] for place in order),
        "draw_p50": statistics.median(took),
        "draw_p95": took[int(len(took) * 0.95)],
        "draw_max": took[-1],
        **cpu,
        "charts_a_frame": max((starts.count(each) for each in set(starts)), default=0),
        "tasks": len(tasks),
        "task_max": max(tasks, default=0.0),
    }


def cpu_times(events: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Milliseconds of CPU that the page's thread spent in a frame and in its longest task, out of a browser trace.

    The clock on the wall also counts the time in which the machine ran something else.
    """
    frames_ = [each for each in events if each.get("name") == "FireAnimationFrame" and "tdur" in each]
    took = sorted(each["tdur"] / 1000 for each in frames_)
    threads = {(each["pid"], each["tid"]) for each in frames_}
    tasks = [
        each.get("tdur", 0) / 1000
        for each in events
        if "RunTask" in each.get("name", "") and (each["pid"], each["tid"]) in threads
    ]
    return {
        "cpu_p50": statistics.median(took),
        "cpu_p95": took[int(len(took) * 0.95)],
        "cpu_max": took[-1],
        "cpu_task_max": max(tasks, default=0.0),
        "cpu_tasks": sum(1 for each in tasks if each > TASK_MS),
    }


def rows(drawn: dict[str, Any], seconds: float, when: str) -> list[tuple[str, str, str]]:
    """Lines of the table of `costs`."""
    d, most = drawn, f"at most {DRAW_MS:.0f}"
    took = f"{d['draw_p50']:.1f}, {d['draw_p95']:.1f}, {d['draw_max']:.1f}"
    spent = f"{d['cpu_p50']:.1f}, {d['cpu_p95']:.1f}, {d['cpu_max']:.1f}"
    what = (
        f"one of {d['draws']} draws in {seconds:.0f} s {when}, {d['by_plotly']} by Plotly (ms: p50, p95, max)"
    )
    return [
        (what, most, took),
        ("the same in CPU time of the page's thread", most, spent),
        ("charts drawn in one frame, at most", "1", str(d["charts_a_frame"])),
        (f"tasks over {TASK_MS:.0f} ms: number, longest", "0", f"{d['tasks']}, {d['task_max']:.0f}"),
        ("the same in CPU time", "0", f"{d['cpu_tasks']}, {d['cpu_task_max']:.0f}"),
    ]


def hold(drawn: dict[str, Any]) -> bool:
    """Whether draws are as quick and as far apart as wanted."""
    return bool(drawn["cpu_p95"] <= DRAW_MS and drawn["charts_a_frame"] <= 1 and drawn["cpu_tasks"] == 0)
