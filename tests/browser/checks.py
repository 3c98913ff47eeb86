"""The checks of a page, as questions to the browser; checks.js asks them."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

SCRIPT = Path(__file__).with_name("checks.js")
# Above this a page is felt to jump (web.dev calls 0.1 the limit of "good").
MOST_SHIFT = 0.02


def problems(page: Page) -> list[str]:
    """What is wrong with the page as it stands: overflow, contrast, names."""
    found: list[str] = page.evaluate("checks.problems()")
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
        focus = page.evaluate("checks.focus()")
        if focus and not focus["visible"]:
            hidden.append(focus["what"])
        if page.evaluate("(selector) => document.activeElement?.matches(selector) ?? false", selector):
            return hidden
    raise AssertionError(f"{selector} is not reached by {most} presses of Tab")
