"""The list of builds at ten thousand rows: its queries, its filters, its pages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.roles import OPERATOR
from apps.core import clock
from apps.core.exceptions import InvalidInput
from apps.engines.build_lists import BuildFilter, narrowed
from apps.engines.models import Build
from tests import objects, people

ROWS = 10_000
# Of these, the frame asks one for each kind of work that runs.
MOST_QUERIES = 13
RECENT = 160
SOME = 500
STATES = ("succeeded", "failed", "cancelled")
RECIPES = (("llamacpp", "", "F16"), ("trtllm", "engine", "fp8"), ("trtllm", "checkpoint", "none"))


def many_builds(rows: int) -> None:
    """Builds of three recipes in turn, the newest of today and the others old, failed ones with a sentence."""
    profile, node = objects.build_profile(), objects.node()
    owner = User.objects.get(username=OPERATOR)
    builds = []
    for n in range(min(rows, SOME)):
        builder, recipe, kind = RECIPES[n % len(RECIPES)]
        builds.append(
            Build(
                number=n + 1, state=STATES[n % 7 % 3], checkpoint=profile.checkpoint, profile=profile, node=node,
                spec={"builder": builder}, builder=builder, recipe=recipe, quantization=kind,
                fingerprint=f"{n:064x}", requested_by=owner if n % 2 else None,
                sentence=f"The disk is full at step {n}." if n % 7 % 3 == 1 else "",
            )
        )  # fmt: skip
    Build.objects.bulk_create(builds)
    _copy(rows)
    Build.objects.filter(number__lte=rows - RECENT).update(created_at=clock.now() - timedelta(days=400))


def _copy(rows: int) -> None:
    """The rows that exist again with higher numbers: much faster than making each in Python."""
    columns = [str(field.column) for field in Build._meta.concrete_fields if not field.primary_key]
    taken = [f"{name} + %s" if name == "number" else name for name in columns]
    with connection.cursor() as cursor:
        for offset in range(SOME, rows, SOME):
            cursor.execute(
                f"INSERT INTO engines_build ({', '.join(columns)}) SELECT {', '.join(taken)} "
                "FROM engines_build WHERE number <= %s",
                [offset, SOME],
            )


@pytest.fixture
def client(db: None) -> Client:
    return people.client_of(people.person(OPERATOR))


def numbers(answer: Any) -> list[int]:
    return [row.number for row in answer.context["page"]]


def test_ten_thousand_builds(client: Client) -> None:
    many_builds(ROWS)
    for query in (
        "",
        "?page=150",
        "?state=failed&builder=trtllm&recipe=engine&type=fp8&node=n1&who=operator&period=30d&q=disk+tiny",
    ):
        with CaptureQueriesContext(connection) as queries:
            answer = client.get(f"/builds/{query}")
        assert answer.status_code == 200
        assert len(queries) <= MOST_QUERIES, [each["sql"][:120] for each in queries]
    _filters_narrow(client)


def _filters_narrow(client: Client) -> None:
    def shown(query: str) -> list[Any]:
        return list(client.get(f"/builds/?{query}").context["page"])

    assert {row.recipe for row in shown("recipe=checkpoint")} == {"checkpoint"}
    assert {row.builder for row in shown("builder=llamacpp&page=2")} == {"llamacpp"}
    assert {row.state for row in shown("state=failed&q=disk")} == {"failed"}
    assert [row.number for row in shown("q=%234711")] == [4711]
    assert shown("checkpoint=tiny&q=f16")
    assert shown("checkpoint=other") == []
    assert {row.requested_by.username for row in shown("who=operator")} == {OPERATOR}
    assert client.get("/builds/?period=7d").context["page"].paginator.count == RECENT
    # What cannot be meant narrows nothing, and the rest of the address still does.
    assert {row.state for row in shown("state=failed&period=soon&q=" + "x" * 300)} == {"failed"}


def test_the_address_keeps_every_filter(client: Client) -> None:
    many_builds(400)
    text = client.get("/builds/?recipe=engine&state=succeeded&checkpoint=tiny").content.decode()
    assert '<option value="engine" selected>' in text
    assert 'name="checkpoint" value="tiny"' in text
    assert '<details class="filters-more" open>' in text
    assert "recipe=engine&amp;state=succeeded&amp;checkpoint=tiny&amp;page=2" in text


@pytest.mark.django_db
@pytest.mark.parametrize(("field", "value"), [("state", "sleeping"), ("period", "7 days"), ("period", "0d")])
def test_a_filter_that_cannot_be_names_its_field(field: str, value: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        narrowed(Build.objects.all(), BuildFilter(**{field: value}))
    assert caught.value.field == field
