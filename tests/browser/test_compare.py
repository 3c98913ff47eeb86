"""Beside the chat and the compare page: token view, copy as, two engines side by side, a shared link."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from apps.chat import services, sources
from apps.chat.compared_models import Comparison, SharedLink
from apps.chat.models import Turn
from tests.browser import checks
from tests.browser.conftest import Tab
from tests.browser.world import World
from tests.chat.fakes import Script
from tests.chat.rows import serving_deployment


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch, world: World) -> dict[str, Script]:
    """Two engines that say nearly the same, one slower than the other."""
    serving_deployment("second")
    scripts = {
        "demo": Script(words=("Paris", " is", " a", " big", " city", "."), pause=0.01),
        "second": Script(words=("Paris", " is", " a", " small", " city", "."), pause=0.04),
    }
    monkeypatch.setattr(
        sources, "prepare", lambda turn: scripts[turn.conversation.deployment.name].answering()
    )
    return scripts


def _both_sizes(page: Page) -> list[str]:
    """What is wrong on a phone in the dark and on a desk by day."""
    found = []
    for width, theme in ((390, "dark"), (1440, "light")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        found += checks.problems(page) + checks.axe(page)
    return found


def test_two_engines_are_compared_and_shared(tab: Tab, engines: dict[str, Script]) -> None:
    page = tab.page
    page.goto("/playground/compare/")
    assert _both_sizes(page) == []
    page.get_by_label("Side 1").select_option("demo")
    page.get_by_label("Side 2", exact=True).select_option("second")
    page.get_by_label("One question a line").first.fill("What is Paris?\nAnd again?")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/playground/compare/*/?run")
    verdict = page.locator(".compare-verdict")
    expect(verdict).to_contain_text("second is slower than demo")
    expect(verdict).to_contain_text("0 of 2 answers are the same")
    cells = page.locator("[data-question='1'] [data-side]")
    expect(cells.nth(0).locator("[data-answer]")).to_have_text("Paris is a big city.")
    expect(cells.nth(1).locator("ins")).to_have_text("small")
    expect(cells.nth(1).locator("del")).to_be_hidden()
    page.get_by_label("Show also what the first side has").check()
    expect(cells.nth(1).locator("del")).to_have_text("big")
    assert page.locator("#compared tbody tr").count() == 2
    expect(page.get_by_role("button", name="Once more")).to_be_visible()
    assert _both_sizes(page) == []
    assert Turn.objects.count() == 4

    page.get_by_role("button", name="Share, export, rename, delete").click()
    page.get_by_role("button", name="Share by link").click()
    page.get_by_role("link", name="/playground/shared/").click()
    expect(page.get_by_text("ada shares this")).to_be_visible()
    expect(page.locator(".compare-verdict")).to_contain_text("slower")
    assert page.locator("[data-run]").count() == 0
    assert SharedLink.objects.get().comparison == Comparison.objects.get()

    # Stopped in the middle, and gone on with: what was not whole is asked anew, in its place.
    engines["second"].endless = True
    page.goto(f"/playground/compare/{Comparison.objects.get().pk}/")
    page.get_by_role("button", name="Once more").click()
    expect(page.locator("[data-question='0'] [data-side='1'] [data-answer]")).to_contain_text(
        "small city.Paris"
    )
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Go on")).to_be_visible()
    assert engines["second"].cancelled
    engines["second"].endless = False
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("button", name="Once more")).to_be_visible()
    expect(page.locator(".compare-verdict")).to_contain_text("0 of 2")


def test_tokens_are_told_one_by_one_and_a_request_is_copied(
    tab: Tab, engines: dict[str, Script], world: World
) -> None:
    page = tab.page
    row = services.create_conversation(User.objects.get(username="ada"), world.deployment)
    page.goto(f"/playground/{row.pk}/")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    page.fill("#prompt", "What is Paris?")
    page.keyboard.press("Enter")
    turn = page.locator("main [data-turn]").last
    expect(turn).to_have_attribute("data-state", "done")
    strip = turn.get_by_role("slider", name="Tokens over time")
    strip.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    tip = turn.locator("[data-tokens-tip]")
    expect(tip).to_contain_text("no. 5")
    expect(tip.locator("code")).to_have_text(" city")
    expect(strip).to_have_attribute("aria-valuenow", "5")
    turn.get_by_text("Token timings").click()
    expect(turn.locator(".tokens-table tbody tr")).to_have_count(6)
    expect(turn.locator("[data-figure=itl_p99_ms]")).not_to_have_text("\u2013")
    expect(turn.locator("[data-served]")).to_have_text("i-test, revision 3")
    assert _both_sizes(page) == []
    turn.get_by_role("button", name="Copy this request").click()
    dialog = page.get_by_role("dialog", name="Copy this request")
    expect(dialog.locator("code")).to_contain_text('"content": "What is Paris?"')
    assert _both_sizes(page) == []
    page.keyboard.press("Escape")
    # The same after a reload, out of what was kept.
    page.reload()
    turn = page.locator("main [data-turn]").last
    turn.get_by_text("Token timings").click()
    expect(turn.locator(".tokens-table tbody tr")).to_have_count(6)
    expect(page.get_by_label("Background load")).to_have_attribute("max", "32")
