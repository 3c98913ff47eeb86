"""A key from its making to its end, as a person sees it; and sentences that follow what is typed."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from apps.gateway.keys import digest_of
from apps.gateway.models import GatewayKey
from tests.browser import checks
from tests.browser.world import World


def test_a_key_is_made_seen_once_and_revoked(page: Page, world: World) -> None:
    page.goto("/gateway/")
    page.get_by_role("link", name="New key").click()
    page.get_by_role("textbox", name="Name", exact=True).fill("mailer")
    page.get_by_label("Only these").check()
    page.get_by_label("assistant", exact=True).check()
    page.get_by_label("Requests a minute").fill("30")
    said = page.locator("#preview")
    expect(said).to_contain_text("30 requests in any 60 seconds")
    expect(said).to_contain_text("This key can use assistant.")
    page.get_by_label("Clients at once").fill("60")
    expect(said).to_contain_text("about 30 answers a minute")
    assert checks.problems(page) == []
    page.get_by_role("button", name="Create the key").click()
    shown = page.locator("#made-key code")
    expect(shown).to_contain_text("ik-")
    text = shown.inner_text().strip()
    row = GatewayKey.objects.get(name="mailer")
    assert (row.digest, row.routes) == (digest_of(text), ["assistant"])
    page.locator("#made-key [data-copy]").click()
    assert checks.problems(page) == []
    page.get_by_role("link", name="I have copied it").click()
    expect(page.get_by_role("heading", name="mailer")).to_contain_text("active")
    assert text not in page.content()
    page.get_by_role("button", name="Revoke").click()
    dialog = page.get_by_role("dialog", name="Revoke mailer?")
    assert checks.problems(page) == []
    dialog.get_by_role("button", name="Revoke").click()
    page.get_by_text("mailer is revoked; gateways refuse it within 2 s.").wait_for()
    expect(page.get_by_role("heading", name="mailer")).to_contain_text("revoked")
    expect(page.get_by_role("button", name="Revoke")).to_have_count(0)
