"""The tab Advice: evidence, button, and what it says when it cannot say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.roles import OPERATOR, VIEWER
from apps.control import selectors
from apps.serving import revisions
from apps.serving import selectors as serving
from apps.serving.models import Deployment, Revision
from tests.control.test_services import FULL, told
from tests.pages.conftest import World


@pytest.fixture
def busy(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The deployment runs with every slot busy."""
    row = world.deployment
    Revision.objects.update(
        batching=revisions.batching_snapshot(row.batching), state_since=timezone.now() - timedelta(hours=1)
    )
    Deployment.objects.update(active_revision=row.revisions.get(), desired="running", state="ready")
    monkeypatch.setattr(selectors, "_read", told(FULL))
    return world


def tab(client: Client) -> str:
    answer = client.get(reverse("serving:advice", args=["demo"]))
    assert answer.status_code == 200
    return answer.content.decode()


def test_advice_stands_with_its_evidence_and_button(busy: World, sign_in: Callable[..., Client]) -> None:
    page = tab(sign_in(OPERATOR))
    assert "The 16 slots were 100% busy" in page
    assert "Set maximum batch size to 32" in page
    assert "Change maximum batch size from 16 to 32?" in page
    assert "One server is replaced" in page
    assert "not here" in page


def test_the_button_deploys_the_change(busy: World, sign_in: Callable[..., Client]) -> None:
    url = reverse("serving:apply_advice", args=["demo", "batch_size_always_full"])
    client = sign_in(OPERATOR)
    assert client.post(url, {"after": "24"}).status_code == 409
    assert client.post(url, {"after": "{"}).status_code == 422
    assert client.post(url, {"after": "32"}).status_code == 303
    assert serving.deployment("demo").batching.max_batch_size == 32


def test_a_viewer_sees_the_evidence_and_no_button(busy: World, sign_in: Callable[..., Client]) -> None:
    page = tab(sign_in(VIEWER))
    assert "The 16 slots were 100% busy" in page
    assert "apply/" not in page


def test_without_figures_it_says_so(world: World, sign_in: Callable[..., Client]) -> None:
    assert "has not run yet" in tab(sign_in(VIEWER))
    Deployment.objects.update(active_revision=world.deployment.revisions.get())
    assert "Nothing can be said yet" in tab(sign_in(VIEWER))


def test_the_api_says_the_same(busy: World, sign_in: Callable[..., Client]) -> None:
    found: dict[str, Any] = sign_in(VIEWER).get("/api/v1/deployments/demo/advice").json()
    by_id = {each["id"]: each for each in found["advice"]}
    assert by_id["batch_size_always_full"]["change"] == {"field": "max_batch_size", "before": 16, "after": 32}
    assert sign_in(VIEWER).get("/api/v1/deployments/none/advice").status_code == 404
