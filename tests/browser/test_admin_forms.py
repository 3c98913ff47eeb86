"""The admin in a real browser: previews follow what is typed, under its own policy, in both themes and widths."""

from __future__ import annotations

import pytest
from django.urls import reverse
from playwright.sync_api import BrowserContext, Page, expect

from apps.serving.models import BatchingProfile
from apps.serving.services import save_batching_profile
from tests.browser import checks
from tests.browser.conftest import Tab
from tests.browser.world import World

FORMS = (
    "registry_checkpoint",
    "engines_buildprofile",
    "serving_batchingprofile",
    "serving_deployment",
    "engines_build",
    "serving_instance",
)


def first_change_form(name: str, world: World) -> str:
    rows = {
        "registry_checkpoint": world.checkpoint,
        "engines_buildprofile": world.deployment.build_profile,
        "serving_batchingprofile": world.deployment.batching,
        "serving_deployment": world.deployment,
        "engines_build": world.failed,
        "serving_instance": world.instance,
    }
    return reverse(f"admin:{name}_change", args=[rows[name].pk])


def test_a_preview_follows_what_is_typed(page: Page, world: World) -> None:
    page.goto(first_change_form("serving_batchingprofile", world))
    preview = page.locator(".inf-preview-body")
    size = page.locator("#id_max_batch_size")
    size.fill("7")
    expect(preview).to_contain_text("7168")
    size.fill("999")
    expect(preview).to_contain_text("Saving would be refused")
    size.fill("3")
    page.locator("#id_strategy").select_option("none")
    expect(page.locator("#idle-max_batch_size")).to_have_text("Strategy none runs one request at a time.")
    page.locator("#id_engine").select_option("trtllm")
    expect(page.locator("#idle-preferred_batch_sizes")).to_contain_text("batches them in flight")
    expect(page.locator("#idle-max_batch_size")).to_be_empty()
    expect(preview).to_contain_text("A prompt longer than 8,192 tokens will be refused")
    page.locator("#id_engine").select_option("llamacpp")
    page.get_by_role("button", name="Save", exact=True).click()
    asked = page.locator("#confirm-change")
    expect(asked).to_contain_text("until Deploy is pressed")
    assert BatchingProfile.objects.get(pk=world.deployment.batching.pk).max_batch_size not in {3, 7}


def test_the_fields_of_a_source_follow_its_kind(page: Page, world: World) -> None:
    page.goto(reverse("admin:registry_checkpoint_add"))
    expect(page.locator("#id_source_demo")).to_be_visible()
    page.locator("#id_source_kind").select_option("path")
    expect(page.locator("#id_source_path")).to_be_visible()
    expect(page.locator("#id_source_demo")).to_be_hidden()
    page.locator("#id_source_path").fill("/etc/passwd")
    expect(page.locator(".inf-preview-body")).to_contain_text("lies outside the folders")


def test_a_button_asks_before_it_stops_something(page: Page, world: World) -> None:
    asked: list[str] = []

    def answer(dialog: object) -> None:
        asked.append(dialog.message)  # type: ignore[attr-defined]
        dialog.dismiss()  # type: ignore[attr-defined]

    page.on("dialog", answer)
    page.goto(first_change_form("serving_deployment", world))
    page.get_by_role("button", name="Stop").click()
    assert asked == ["New requests are refused, those in flight finish, then the servers exit."]
    world.deployment.refresh_from_db()
    assert world.deployment.desired == "running"


def _is_ours(problem: str) -> bool:
    """Whether a page's own content is meant: the frame around it, with its arrows and headings, is Unfold's."""
    return "material-symbols" not in problem and problem not in ("not one h1", "not one main")


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1440, "light")])
def test_nothing_is_wider_than_the_window(page: Page, world: World, width: int, theme: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    wide, wrong = [], {}
    profile = world.deployment.batching
    save_batching_profile("test", {"max_queue_size": 9}, profile)
    versions = [
        reverse("admin:serving_batchingprofile_versions", args=[profile.pk]),
        reverse("admin:serving_batchingprofile_roll_back", args=[profile.pk, 1]),
    ]
    lists = [reverse(f"admin:{name}_changelist") for name in ("serving_deployment", "core_auditentry")]
    for address in [*lists, *versions, *(first_change_form(name, world) for name in FORMS)]:
        page.goto(address)
        if page.evaluate("document.documentElement.scrollWidth") > width:
            wide.append(address)
        if address in versions and (found := [each for each in checks.problems(page) if _is_ours(each)]):
            wrong[address] = found
    assert (wide, wrong) == ([], {})
    page.goto(versions[1])
    expect(page.locator("#confirm-change")).to_contain_text("max_queue_size")


def test_the_theme_of_the_pages_is_the_theme_of_the_admin(
    page: Page, tab: Tab, context: BrowserContext, world: World
) -> None:
    page.goto("/")
    page.evaluate("localStorage.setItem('inflight.theme', 'dark')")
    page.goto(reverse("admin:index"))
    expect(page.locator("html")).to_have_class("dark")
    page.evaluate("localStorage.setItem('adminTheme', JSON.stringify('light'))")
    page.goto("/")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.evaluate("localStorage.removeItem('inflight.theme')")
