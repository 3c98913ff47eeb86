"""The planner in a browser: sliders price at once, the address follows, and the plan is carried into a build."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.conf import settings
from playwright.sync_api import Page, expect

from apps.registry.models import Checkpoint
from apps.registry.services import register_checkpoint
from tests.browser import checks
from tests.browser.conftest import Tab
from tests.browser.world import LONG
from tests.pages.test_planner import LLAMA_8B
from tests.support.llama import write_llama

FITS = "?checkpoint={name}&gpu=h100-sxm&max_batch_size=64&max_seq_len=8192"
TIGHT = "?checkpoint={name}&gpu=a2&max_seq_len=8192"
REFUSED = "?checkpoint={name}&gpu=h100-sxm&tp=3"


@pytest.fixture
def llama(tab: Tab) -> Checkpoint:
    """Llama-3-8B's configuration under the longest of names."""
    name = f"llama-{LONG[6:]}"
    folder = Path(settings.INFLIGHT_HOME) / "checkpoints" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(LLAMA_8B))
    write_llama(Path(settings.INFLIGHT_HOME) / "checkpoints" / "whole" / "tiny.gguf")
    register_checkpoint("test", "whole", {"demo": "whole"})
    return register_checkpoint("test", name, {"path": str(folder)})


def _verdict(page: Page) -> str:
    return page.locator("#plan h2").first.inner_text()


@pytest.mark.parametrize("query", [FITS, TIGHT, REFUSED], ids=["fits", "does-not-fit", "refused"])
def test_every_width_and_theme(tab: Tab, llama: Checkpoint, query: str) -> None:
    page = tab.page
    page.goto("/planner/" + query.format(name=llama.name))
    page.wait_for_load_state("networkidle")
    checks.assert_still(page)
    for details in page.locator("main details").all():
        details.evaluate("(element) => { element.open = true; }")
    assert checks.at_every_size(page) == {}


def test_sliders_price_again_and_the_address_holds_the_plan(tab: Tab, llama: Checkpoint) -> None:
    page = tab.page
    page.goto("/planner/" + FITS.format(name=llama.name))
    assert "fits" in _verdict(page)
    page.get_by_text("Every term, with its formula and source").click()
    slider = page.locator('[data-slider="max_seq_len"]')
    slider.focus()
    for _press in range(12):
        page.keyboard.press("ArrowRight")
    longest = page.locator("[name=max_seq_len]").input_value()
    assert int(longest) > 8192
    page.wait_for_url(f"**max_seq_len={longest}*")
    expect(page.locator("#plan")).to_contain_text("max_num_tokens is the limit")
    # What was open stays open while the plan is drawn again.
    expect(page.locator("#plan details[open]")).to_contain_text("6,979,321,856 weights")
    page.locator("#p-gpu").select_option("a2")
    expect(page.locator("#plan h2").first).to_contain_text("does not fit")
    page.locator("#p-weights").select_option("q4_0")
    expect(page.locator("#plan h2").first).to_contain_text("fits")
    # The address alone draws the same page.
    words = page.locator("#plan .memory-legend").inner_text()
    page.reload()
    assert page.locator("#plan .memory-legend").inner_text() == words
    assert page.locator("#p-weights").input_value() == "q4_0"
    assert page.locator("[name=max_seq_len]").input_value() == longest
    # What cannot be planned says why, and the next choice is priced again.
    page.locator("#p-checkpoint").select_option("tiny")
    expect(page.locator("[data-refused]")).to_be_visible()
    page.locator("#p-checkpoint").select_option("whole")
    page.locator("#p-gpu").select_option("l4")
    expect(page.locator("[data-fits=yes]")).to_be_visible()
    page.locator("[data-carry]").click()
    page.wait_for_url("**/builds/new/**")
    assert page.locator("[name=checkpoint]").input_value() == "whole"
    assert page.locator("[name=quantization]").input_value() == "Q4_0"


def test_the_keyboard_reaches_the_checkpoints_plan(tab: Tab, llama: Checkpoint) -> None:
    page = tab.page
    page.goto(f"/checkpoints/{llama.name}/")
    page.get_by_role("link", name="Plan", exact=True).press("Enter")
    page.wait_for_url("**/planner/**")
    assert page.locator("#p-checkpoint").input_value() == llama.name
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert checks.tab_to(page, "[data-slider=max_batch_size]") == []
    for _press in range(5):
        page.keyboard.press("ArrowRight")
    page.wait_for_url("**max_batch_size=*")
