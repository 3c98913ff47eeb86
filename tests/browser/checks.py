"""The checks of a page, as questions to the browser; checks.js asks them."""

from __future__ import annotations

import functools
from importlib.resources import files
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

SCRIPT = Path(__file__).with_name("checks.js")
# Phone, tablet, desktop, and a desktop at 200%.
SIZES = ((390, 844), (768, 1024), (1440, 900), (720, 450))
THEMES = ("light", "dark")
# Above this a page is felt to jump (web.dev calls 0.1 the limit of "good").
MOST_SHIFT = 0.02
_AXE_RUN = """async (rules) => {
  const found = await axe.run(document, { resultTypes: ['violations'], rules });
  return found.violations.filter((one) => ['serious', 'critical'].includes(one.impact)).map((one) => ({
    id: one.id, impact: one.impact, help: one.help,
    nodes: one.nodes.slice(0, 3).map((node) => `${node.target.join(' ')} ${node.html.slice(0, 160)}`),
  }));
}"""


def problems(page: Page) -> list[str]:
    """What is wrong with the page as it stands: overflow, contrast, names."""
    found: list[str] = page.evaluate("checks.problems()")
    return found


def at_every_size(page: Page) -> dict[str, list[str]]:
    """What is wrong with the page, by width and theme; it is left dark, at the last size."""
    found: dict[str, list[str]] = {}
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            if wrong := problems(page):
                found[f"{width} {theme}"] = wrong
    return found


def assert_still(page: Page) -> None:
    """Nothing moved since the page began, or since `checks.forget()`."""
    found = page.evaluate("checks.shifts()")
    assert found["sum"] < MOST_SHIFT, found


def tab_to(page: Page, selector: str, most: int = 60) -> list[str]:
    """Press Tab until the element is focused; returns what of the way had no visible focus. Fails after `most`."""
    hidden: list[str] = []
    for _press in range(most):
        page.keyboard.press("Tab")
        focus = page.evaluate("(selector) => checks.focus(selector)", selector)
        if focus and not focus["visible"]:
            hidden.append(focus["what"])
        if focus and focus["reached"]:
            return hidden
    raise AssertionError(f"{selector} is not reached by {most} presses of Tab")


def axe(page: Page, *rules_off: str) -> list[str]:
    """Serious and critical faults that axe-core finds in the page as it stands, each with the first places."""
    if not page.evaluate("typeof window.axe === 'object'"):
        # By the debugger's protocol, which the page's own policy does not hold up.
        page.evaluate(_axe_source())
    found: list[dict[str, Any]] = page.evaluate(_AXE_RUN, {rule: {"enabled": False} for rule in rules_off})
    return [f"{one['impact']} {one['id']}: {one['help']}: {one['nodes']}" for one in found]


@functools.cache
def _axe_source() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
