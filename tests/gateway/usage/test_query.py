"""Reading usage: groups, steps, quantiles, and exports that no spreadsheet runs."""

from __future__ import annotations

import csv
import io
from datetime import timedelta

import pytest

from apps.core import clock
from apps.core.exceptions import InvalidInput
from apps.gateway.models import UsageHour
from apps.gateway.usage import query
from tests import gateway_rows
from tests.people import person

pytestmark = pytest.mark.django_db


def hour(ago: int, key_id: int = 1, route: str = "demo", **columns: object) -> UsageHour:
    moment = clock.now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=ago)
    given = {"hour": moment, "key_id": key_id, "key_name": f"key {key_id}", "route": route, "requests": 1}
    return UsageHour.objects.create(**{**given, **columns})


def test_groups() -> None:
    hour(0, prompt_tokens=5)
    hour(1, prompt_tokens=7)
    hour(1, key_id=2, requests=3)
    hour(1, route="other", requests=9)
    hour(200)
    found = query.rows(query.since_of("24h"))
    assert query.total(found).requests == 14
    by_key = {
        (item.key_id, item.route): (item.requests, item.prompt_tokens)
        for item in query.by(found, "key_id", "route")
    }
    assert by_key == {(1, "demo"): (2, 12), (1, "other"): (9, 0), (2, "demo"): (3, 0)}
    assert [item.requests for item in query.by(found, "hour")] == [13, 1]
    assert sum(item.requests for item in query.by(found, "day")) == 14
    assert query.total(query.rows(query.since_of("24h"), key_id=2)).requests == 3
    assert query.total(query.rows(query.since_of("24h"), route="other")).requests == 9
    assert query.total(query.rows(query.since_of("30d"))).requests == 15


def test_a_renamed_key_is_one_group() -> None:
    hour(0, key_name="new")
    hour(1, key_name="old")
    (group,) = query.by(query.rows(query.since_of("24h")), "key_id")
    assert group.requests == 2


def test_steps_have_no_gaps() -> None:
    hour(0, requests=4)
    hour(5, requests=2)
    since = query.since_of("24h")
    steps = query.steps(query.rows(since), since, timedelta(hours=6), clock.now())
    assert len(steps) == 4
    assert sum(item.requests for item in steps) == 6
    assert steps[0].at == since
    assert steps[0].ttft_p50_ms is None


def test_quantiles_come_from_the_buckets() -> None:
    hour(0, ttft_100=98, ttft_800=2, ttft_count=100, ttft_ms=9000)
    total = query.total(query.rows(query.since_of("24h")))
    assert total.ttft_mean_ms == 90
    assert total.ttft_p50_ms == pytest.approx(75.5, abs=0.5)
    assert total.ttft_p99_ms == 600
    assert query.total(query.rows(query.since_of("24h"), key_id=99)).ttft_p99_ms is None


def test_an_unknown_range_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        query.since_of("1y")
    assert caught.value.field == "range"


@pytest.mark.parametrize(
    "name",
    ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", '=HYPERLINK("http://x")', "=cmd|' /C calc'!A0"],
)
def test_no_cell_is_a_formula(name: str) -> None:
    hour(0, key_name=name)
    text = query.as_csv(query.by(query.rows(query.since_of("24h")), "hour", "key_id", "route"))
    heading, row = csv.reader(io.StringIO(text))
    cell = dict(zip(heading, row, strict=True))["key"]
    assert cell == f"'{name}"


def test_figures_stay_figures() -> None:
    gateway_rows.usage(gateway_rows.gateway_key(person("operator"), "plain, with comma"))
    text = query.as_csv(query.by(query.rows(query.since_of("24h")), "key_id", "route"))
    heading, row = csv.reader(io.StringIO(text))
    found = dict(zip(heading, row, strict=True))
    assert (found["key"], found["requests"], found["at"]) == ("plain, with comma", "363", "")
