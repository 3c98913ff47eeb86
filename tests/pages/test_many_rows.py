"""A thousand rows of everything: pages stay in bounds, filters and pages of lists work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.roles import OPERATOR
from apps.chat.models import Conversation
from apps.core import audit
from apps.core.models import AuditEntry
from apps.engines.models import Build
from apps.registry.models import Checkpoint
from apps.serving.models import Deployment, Instance
from tests.pages.conftest import World

MANY = 1000
STATES = ("succeeded", "failed", "cancelled")


@pytest.fixture
def crowd(world: World, sign_in: Callable[..., Client]) -> Client:
    """A client in a world of a thousand rows of each kind."""
    client = sign_in(OPERATOR)
    owner = User.objects.get(username=OPERATOR)
    build, deployment, revision = world.build, world.deployment, world.instance.revision
    Checkpoint.objects.bulk_create(
        Checkpoint(name=f"checkpoint-{n:04}", source={"path": "/x"}, state="ready") for n in range(MANY)
    )
    Build.objects.bulk_create(
        Build(
            number=100 + n, state=STATES[n % 3], checkpoint=world.checkpoint, profile=build.profile, spec=build.spec,
            fingerprint=f"{n:064x}", requested_by=owner, sentence=f"sentence {n}", quantization="F16",
        )
        for n in range(MANY)
    )  # fmt: skip
    Deployment.objects.bulk_create(
        Deployment(
            name=f"deployment-{n:04}", state="ready" if n % 2 else "failed", desired="running",
            build_profile=deployment.build_profile, batching=deployment.batching,
        )
        for n in range(MANY)
    )  # fmt: skip
    Instance.objects.bulk_create(
        Instance(deployment=deployment, revision=revision, uid=f"gone{n}", state="gone", replica=n + 1)
        for n in range(MANY)
    )
    Conversation.objects.bulk_create(
        Conversation(owner=owner, deployment=deployment, title=f"talk {n}") for n in range(MANY)
    )
    AuditEntry.objects.bulk_create(
        AuditEntry(actor=owner, actor_label=audit.actor_label(owner), verb="build.queued", object_type="build",
                   object_id=str(n), object_label=f"#{n + 1} tiny F16")
        for n in range(MANY)
    )  # fmt: skip
    return client


# Most queries of each page, sign-in and frame included.
LIMITS = {
    "/": 24,
    "/checkpoints/": 13,
    "/checkpoints/tiny/": 15,
    "/builds/": 14,
    "/builds/7/": 15,
    "/deployments/": 13,
    "/deployments/demo/": 23,
    "/deployments/demo/instances/": 25,
    "/deployments/demo/configuration/": 25,
    "/metrics/": 20,
    # Four stored steps for each of the 20 rows of a page.
    "/metrics/?range=7d&compare=before": 120,
    "/fleet/": 16,
    "/playground/": 16,
    "/palette.json?q=7": 16,
    "/work/": 8,
}


def test_queries_and_sizes_do_not_grow_with_rows(crowd: Client) -> None:
    over = {}
    for path, most in LIMITS.items():
        with CaptureQueriesContext(connection) as queries:
            answer = crowd.get(path)
        assert answer.status_code == 200
        assert len(answer.content) < 400_000
        if len(queries) > most:
            over[path] = [query["sql"][:150] for query in queries]
    assert over == {}


def _numbers(answer: Any) -> list[int]:
    return [row.number for row in answer.context["page"]]


def test_pages_of_a_list(crowd: Client) -> None:
    first, last = crowd.get("/builds/"), crowd.get("/builds/?page=999")
    assert _numbers(first) == list(range(1099, 1049, -1))
    assert _numbers(last) == [7]
    assert "1 to 50 of 1\u202f001" in first.content.decode()
    assert "?page=2" in first.content.decode()


def test_filters_are_in_the_address_and_survive_paging(crowd: Client) -> None:
    answer = crowd.get("/builds/?state=failed&type=F16&q=tiny&page=2")
    assert {row.state for row in answer.context["page"]} == {"failed"}
    text = answer.content.decode()
    assert "?state=failed&amp;type=F16&amp;q=tiny&amp;page=3" in text
    assert '<option value="failed" selected>' in text


def test_a_filter_that_nothing_fits_says_so(crowd: Client) -> None:
    text = crowd.get("/builds/?q=nothing-is-called-this").content.decode()
    assert "No build fits this filter." in text
    assert "Show all" in text


def test_the_overview_shows_the_worst_first_and_counts_the_rest(crowd: Client) -> None:
    answer = crowd.get("/")
    shown = answer.context["attention"]
    assert len(shown) == 12
    assert {item.tone for item in shown} == {"bad"}
    assert answer.context["attention_more"] > 0
    assert "All 1\u202f001" in answer.content.decode()
