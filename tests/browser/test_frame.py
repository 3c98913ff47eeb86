"""What surrounds every page: palette, keyboard, confirm dialog, toasts, theme, rail, copy, log view, forms."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from apps.engines.models import Build
from apps.serving.models import Deployment
from tests.browser import checks
from tests.browser.conftest import Tab
from tests.browser.world import World


def test_the_palette_goes_to_objects(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox", name="Go to or do")
    expect(box).to_be_focused()
    expect(page.get_by_role("option").first).to_contain_text("Overview")
    assert checks.problems(page) == []
    page.keyboard.type("demo")
    expect(page.get_by_role("option").first).to_contain_text("demo")
    page.keyboard.press("Enter")
    page.wait_for_url("**/deployments/demo/")


def test_the_palette_acts_after_asking(page: Page, world: World) -> None:
    page.goto("/")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("demo")
    page.get_by_role("option", name=re.compile("Stop demo")).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Stop demo?")
    assert checks.problems(page) == []
    dialog.get_by_role("button", name="Keep it").click()
    assert Deployment.objects.get(name="demo").desired == "running"
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("demo")
    page.get_by_role("option", name=re.compile("Stop demo")).click()
    dialog.get_by_role("button", name="Stop").click()
    page.get_by_text("demo is being stopped.").wait_for()
    assert Deployment.objects.get(name="demo").desired == "stopped"


def test_letters_go_to_places_and_list_themselves(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    assert checks.problems(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("b")
    page.wait_for_url("**/builds/")
    page.keyboard.press("/")
    expect(page.locator("#filter-q")).to_be_focused()
    page.keyboard.type("g d?")
    assert page.input_value("#filter-q") == "g d?"


def test_deleting_asks_for_the_name(page: Page, world: World) -> None:
    Deployment.objects.filter(name="demo").update(state="stopped", desired="stopped")
    world.deployment.instances.all().delete()
    page.goto("/deployments/demo/")
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog", name="Delete deployment demo?")
    yes = dialog.get_by_role("button", name="Delete")
    expect(yes).to_be_disabled()
    expect(dialog.get_by_label("Type demo to confirm")).to_be_focused()
    page.keyboard.type("dem")
    page.keyboard.press("Enter")
    expect(yes).to_be_disabled()
    page.keyboard.type("o")
    assert checks.problems(page) == []
    page.keyboard.press("Enter")
    page.get_by_text("Deployment demo is deleted.").wait_for()
    assert not Deployment.objects.filter(name="demo").exists()


def test_cancelling_a_build_stays_on_the_page_with_a_toast(page: Page, world: World) -> None:
    page.goto("/builds/3/")
    page.evaluate("window.same = true")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the build").click()
    page.get_by_text("Build #3 is being cancelled.").wait_for()
    page.get_by_text("cancelling", exact=True).wait_for()
    assert page.evaluate("window.same")
    assert Build.objects.get(number=3).cancel_requested_at is not None


def test_a_refused_action_is_a_toast_that_stays(tab: Tab, world: World) -> None:
    tab.forgiven = ("409 (Conflict)", "Error Code 409")
    tab.page.goto("/builds/3/")
    tab.page.wait_for_load_state("networkidle")
    Build.objects.filter(number=3).update(state="succeeded")
    tab.page.get_by_role("button", name="Cancel").click()
    tab.page.get_by_role("dialog").get_by_role("button", name="Cancel the build").click()
    toast = tab.page.locator(".toast-bad")
    expect(toast).to_contain_text("Build #3 has ended: succeeded.")
    expect(toast).to_contain_text("There is nothing to cancel.")
    assert checks.problems(tab.page) == []
    toast.get_by_role("button", name="Close").click()
    expect(toast).to_have_count(0)


def test_the_theme_is_kept_and_there_before_the_first_paint(page: Page) -> None:
    page.emulate_media(color_scheme="light")
    page.goto("/")
    page.get_by_role("button", name="Light or dark").click()
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.goto("/builds/", wait_until="commit")
    page.wait_for_function("document.body !== null")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == dark
    page.evaluate("localStorage.clear()")


def test_the_rail_folds_and_stays_folded(page: Page) -> None:
    page.goto("/")
    wide = page.locator(".rail").bounding_box()
    page.get_by_role("button", name=re.compile("Fold")).click()
    page.reload()
    narrow = page.locator(".rail").bounding_box()
    assert wide
    assert narrow
    assert narrow["width"] < 60 < wide["width"]
    assert checks.problems(page) == []
    page.evaluate("localStorage.clear()")


def test_the_bottom_bar_of_a_phone_reaches_every_place(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/")
    page.get_by_role("button", name="More").click()
    page.locator("#menu-more").get_by_role("link", name="Fleet").click()
    page.wait_for_url("**/fleet/")
    page.set_viewport_size({"width": 1440, "height": 900})


def test_the_log_view_searches_filters_and_jumps(page: Page, world: World) -> None:
    page.goto("/builds/2/")
    log = page.locator("[data-log]")
    expect(log.locator("[data-log-note]")).to_have_text("400 lines")
    assert log.locator(".log-row").count() < 120
    expect(log.locator(".log-row").last).to_contain_text("blk.399")
    log.get_by_role("button", name="First error").click()
    expect(log.locator(".log-error")).to_contain_text("No space left on device")
    expect(log.locator("[data-log-tail]")).to_have_attribute("aria-pressed", "false")
    log.get_by_label("Search the log").fill("blk.7.")
    expect(log.locator("[data-log-note]")).to_have_text("0 of 1 found")
    page.keyboard.press("Enter")
    expect(log.locator(".is-current")).to_contain_text("blk.7.")
    log.get_by_label("Levels").select_option("error")
    expect(log.locator(".log-row")).to_have_count(1)
    # Evidence leads to its line, whatever is filtered.
    page.locator("[data-log-line='121']").click()
    expect(log.locator(".is-evidence")).to_contain_text("No space left on device")
    expect(page).to_have_url(re.compile("#log-121$"))
    assert checks.problems(page) == []


def test_a_form_checks_while_it_is_typed(page: Page) -> None:
    page.goto("/checkpoints/-/new/")
    page.fill("#id_name", "Not A Name")
    page.locator("#check").get_by_text("cannot be a name").wait_for()
    page.get_by_role("radio", name="Demo").check()
    page.get_by_label("Demo checkpoint", exact=True).fill("tiny")
    page.fill("#id_name", "second")
    page.get_by_text("can be registered").wait_for()
    assert checks.problems(page) == []


def test_a_refused_form_says_it_at_the_field(tab: Tab) -> None:
    tab.forgiven = ("422 (Unprocessable",)
    page = tab.page
    page.goto("/builds/new/")
    page.get_by_label("Name of the profile").fill("Bad Name")
    page.select_option("#id_checkpoint", "tiny")
    page.select_option("#id_quantization", "Q5_0")
    page.get_by_role("button", name="Start the build").click()
    field = page.get_by_label("Name of the profile")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#id_name-error")).to_contain_text("cannot be a name")
    assert page.input_value("#id_quantization") == "Q5_0"
    assert checks.problems(page) == []
