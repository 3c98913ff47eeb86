"""From a moved slider of the planner to the plan that is drawn again, in headless Chromium.

    .venv/bin/python -m benchmarks.planner_page --home HOME

Needs a running home (`make up`). Each slider is moved many times, one change after the other; the time runs from the
input event to the frame after the new plan stands in the page.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import load
from benchmarks.home import HomeProblem, browser_page, enter

AIM_MS = 50.0
# Moves one slider and resolves with the milliseconds until the frame in which the new plan is shown.
CHANGE = """([name, share]) => new Promise((resolve) => {
  const slider = document.querySelector(`[data-slider="${name}"]`);
  const plan = document.getElementById("plan");
  slider.value = String(share);
  const begun = performance.now();
  plan.addEventListener("htmx:afterSettle", () =>
    requestAnimationFrame(() => resolve(performance.now() - begun)), { once: true });
  slider.dispatchEvent(new Event("input", { bubbles: true }));
})"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Exit 0 where the median is within the aim, 1 where it is not or nothing could be measured."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.planner_page", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--home", type=Path, default=Path("var"))
    parser.add_argument("--changes", type=int, default=40, help="of each slider")
    options = parser.parse_args(arguments)
    try:
        url = enter(options.home)
        before = load.read()
        found = measure(url, options.changes)
        others = load.others(before, load.read())
    except HomeProblem as problem:
        print(problem, file=sys.stderr)
        return 1
    print("| slider | changes | p50 | p95 | max |\n|---|---|---|---|---|")
    everything = [value for values in found.values() for value in values]
    for name, values in {**found, "all": everything}.items():
        last = statistics.quantiles(values, n=20)[-1]
        print(
            f"| {name} | {len(values)} | {statistics.median(values):.0f} ms | {last:.0f} ms | {max(values):.0f} ms |"
        )
    print(f"\nPrograms other than browser, benchmark and their children used {others:.0%} of the machine.")
    return int(statistics.median(everything) > AIM_MS)


def measure(url: str, changes: int) -> dict[str, list[float]]:
    """Milliseconds of each change, by slider."""
    with browser_page(url) as page:
        page.goto("/planner/")
        names = page.evaluate(
            "() => [...document.querySelectorAll('[data-slider]')].map((s) => s.dataset.slider)"
        )
        found: dict[str, list[float]] = {}
        for name in names:
            # Between a third and two thirds of its way, never the same place twice in a row.
            places = [350 + (number * 37) % 300 for number in range(changes + 3)]
            taken = [float(page.evaluate(CHANGE, [name, place])) for place in places]
            # The first ones fill caches on both sides.
            found[name] = taken[3:]
    return found


if __name__ == "__main__":
    sys.exit(main())
