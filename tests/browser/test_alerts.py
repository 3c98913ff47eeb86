"""Two journeys: a person silences an alert, and another lets the advisor change a deployment."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from apps.control import selectors
from apps.serving import revisions
from apps.serving.models import Deployment, Revision
from apps.telemetry.alerts.models import Alert, Silence
from tests.browser import checks
from tests.browser.world import World
from tests.control.test_services import FULL, told


def test_an_alert_is_acknowledged_and_silenced(page: Page, world: World) -> None:
    page.goto("/")
    bell = page.locator("#bell .count")
    expect(bell).to_have_text("1")
    expect(bell).to_have_class("count count-bad")
    attention = page.locator("#attention")
    expect(attention.get_by_role("button", name="Acknowledge")).to_be_visible()
    attention.get_by_role("link", name="Silence").click()
    page.get_by_label("Reason").fill("planned upgrade")
    page.get_by_label("For", exact=True).select_option(label="4 hours")
    page.locator("#silence button").click()
    page.get_by_text("Nobody is told of kv-full demo until it is over.").wait_for()
    assert Silence.objects.filter(rule="kv-full", object_name="demo").exists()
    # Nobody needs to look at it now.
    expect(bell).to_have_class("count")
    page.goto("/metrics/alerts/")
    expect(page.locator("#rows")).to_contain_text("Silenced by ada: planned upgrade")
    page.get_by_role("button", name="Acknowledge").click()
    expect(page.locator("#rows")).to_contain_text("ada is on it.")
    assert Alert.objects.get().state == "acknowledged"


def test_a_rule_is_made_with_the_fields_of_its_kind(page: Page, world: World) -> None:
    page.goto("/metrics/alerts/rules/-/new/")
    page.locator("#id_name").fill("restarts")
    page.get_by_label("Summary").fill("It restarts")
    expect(page.locator(".when-events")).to_be_hidden()
    page.get_by_text("events", exact=True).click()
    expect(page.locator(".when-threshold")).to_be_hidden()
    page.get_by_label("At least (times)").fill("3")
    page.locator("#preview").get_by_text("≥ 3 restarts").wait_for()
    assert checks.problems(page) == []
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Alert rule restarts is saved.").wait_for()


def test_advice_is_applied(page: Page, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    row = world.deployment
    Revision.objects.filter(pk=row.active_revision_id).update(
        batching=revisions.batching_snapshot(row.batching), state_since=timezone.now() - timedelta(hours=1)
    )
    Revision.objects.filter(deployment=row, state="pending").update(state="superseded")
    monkeypatch.setattr(selectors, "_read", told(FULL))
    page.goto("/deployments/demo/advice/")
    page.get_by_role("button", name="Set maximum batch size to 32").click()
    dialog = page.locator("#confirm")
    expect(dialog).to_contain_text("Change maximum batch size from 16 to 32?")
    expect(dialog).to_contain_text("One server is replaced")
    dialog.get_by_role("button", name="Change and deploy").click()
    page.get_by_text("demo is deployed with the change.").wait_for()
    newest = Deployment.objects.get(pk=row.pk).revisions.first()
    assert newest is not None
    assert newest.batching["max_batch_size"] == 32
