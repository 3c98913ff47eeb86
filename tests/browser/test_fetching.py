"""Checkpoints that come from elsewhere: the form's four kinds, progress, choice, failure, hub access."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from apps.core.transitions import amend
from apps.registry import states
from apps.registry.hub import dispatch
from apps.registry.models import Checkpoint
from tests.browser import checks
from tests.browser.conftest import Tab
from tests.browser.world import LONG

WIDTHS = ((390, 844), (1440, 900))
THEMES = ("light", "dark")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def row(name: str, state: str, **columns: Any) -> Checkpoint:
    source = {"huggingface": {"repo": "acme/a-model", "revision": "main"}}
    made: Checkpoint = Checkpoint.objects.create(name=name, source=source, state=state, **columns)
    return made


@pytest.fixture
def rows(tab: Tab) -> dict[str, Checkpoint]:
    """One checkpoint in each state of fetching."""
    common = {
        "commit": COMMIT,
        "folder": "/srv/checkpoints/acme--a-model--0123456789ab-77aa88bb",
        "attempt": 2,
    }
    moving = {"bytes_done": 4_211_000_000, "bytes_total": 15_231_000_000, "started_at": timezone.now()}
    return {
        "moving": row(
            "moving",
            states.DOWNLOADING,
            rate_bytes_per_second=48.2e6,
            eta_seconds=228.0,
            **moving,
            **common,
        ),
        "waiting": row("waiting", states.REGISTERED),
        "gated": row(
            "gated",
            states.FAILED,
            reason="gated_repo",
            sentence="acme/a-model is gated: its authors ask for consent before it may be fetched.",
            remedy="Accept its licence on the hub with your account, and set a token under Hub access.",
            **common,
        ),
        "choose": row(
            "choose",
            states.REFUSED,
            reason="choose_files",
            sentence="The repository holds 2 GGUF files.",
            remedy="Choose one of them.",
            offered=[
                {"name": "a-model-Q4_K_M.gguf", "size_bytes": 4_900_000_000},
                {"name": f"{LONG}{LONG}-F16.gguf", "size_bytes": 16_000_000_000},
            ],
        ),
    }


def sound(page: Page) -> dict[str, list[str]]:
    """What is wrong with the page at each width and theme."""
    found: dict[str, list[str]] = {}
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        for width, height in WIDTHS:
            page.set_viewport_size({"width": width, "height": height})
            wrong = checks.problems(page)
            if wrong:
                found[f"{page.url} {width} {theme}"] = wrong
    return found


def test_every_state_of_fetching(page: Page, rows: dict[str, Checkpoint]) -> None:
    wrong: dict[str, list[str]] = {}
    for path in ("/checkpoints/", *(f"/checkpoints/{name}/" for name in rows), "/checkpoints/-/hub/"):
        page.goto(path)
        page.wait_for_load_state("networkidle")
        wrong |= sound(page)
    assert wrong == {}
    page.goto("/checkpoints/choose/")
    page.get_by_label("Q4_K_M").check()
    page.get_by_role("button", name="Fetch this file").click()
    page.get_by_text("waiting").first.wait_for()
    assert Checkpoint.objects.get(name="choose").source["huggingface"]["files"] == ["a-model-Q4_K_M.gguf"]


def test_progress_moves_and_a_cancel_is_seen(
    page: Page, rows: dict[str, Checkpoint], aside: Callable[[Callable[[], Any]], Any]
) -> None:
    page.goto("/checkpoints/moving/")
    expect(page.locator("#fetch")).to_contain_text("48.2")
    page.wait_for_load_state("networkidle")
    aside(lambda: amend(rows["moving"], states=states.HELD, bytes_done=7_615_500_000, eta_seconds=61.0))
    expect(page.locator("#fetch [role=progressbar]")).to_have_attribute("aria-valuenow", "50")
    expect(page.locator("#fetch")).to_contain_text("1\u202fmin 01\u202fs left")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#head")).to_contain_text("cancelling")


def test_the_form_shows_the_fields_of_the_chosen_kind(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    # No broker listens here.
    monkeypatch.setattr(dispatch, "_publish", lambda row: None)
    page.goto("/checkpoints/-/new/")
    wrong: dict[str, list[str]] = {}
    fields = {"Demo": "#id_demo", "Path": "#id_path", "Hugging Face": "#id_repo", "Archive": "#id_archive"}
    for label, field in fields.items():
        page.get_by_role("radio", name=label).check()
        for other in fields.values():
            expect(page.locator(other)).to_be_visible(visible=other == field)
        page.wait_for_load_state("networkidle")
        wrong |= sound(page)
    assert wrong == {}
    page.get_by_role("radio", name="Hugging Face").check()
    page.fill("#id_name", "new-one")
    page.fill("#id_repo", "acme/none")
    expect(page.locator("#check")).to_contain_text("fetched once it is registered")
    page.get_by_role("button", name="Register").click()
    page.get_by_role("heading", name="new-one").wait_for()
    expect(page.locator("#fetch")).to_contain_text("Waits for the load worker")
