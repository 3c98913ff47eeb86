"""The pages of the gateway: keys shown once, limits in words, usage and its export, requests, routes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from apps.accounts.roles import ADMINISTRATOR, OPERATOR, VIEWER
from apps.core import secrets
from apps.gateway import running
from apps.gateway.keys import digest_of
from apps.gateway.models import ExternalDeployment, GatewayKey, GatewayRoute, RequestLog, UsageHour
from apps.gateway.running import RunningRequest
from tests import gateway_rows
from tests.pages.conftest import World

SignIn = Callable[..., Client]
KEY = {"name": "mailer", "scope": "all", "priority": "normal", "lifetime": "30"}


@pytest.fixture
def operator(world: World, sign_in: SignIn) -> Client:
    return sign_in(OPERATOR)


def text_of(answer: Any) -> str:
    return str(answer.content.decode())


class TestKeys:
    """Made in the page, shown once."""

    def test_a_key_is_shown_once(self, operator: Client) -> None:
        answer = operator.post(
            reverse("gateway:new_key"),
            {**KEY, "scope": "some", "routes": ["demo"], "tokens_per_minute": "500"},
        )
        assert answer.status_code == 200
        assert "no-store" in answer.headers["Cache-Control"]
        text = answer.context["text"]
        assert text in text_of(answer)
        row = GatewayKey.objects.get(name="mailer")
        assert row.digest == digest_of(text)
        assert (row.routes, row.tokens_per_minute, row.owner.username) == (["demo"], 500, OPERATOR)
        assert row.expires_at is not None
        for path in (reverse("gateway:key", args=[row.pk]), reverse("gateway:keys")):
            assert text not in text_of(operator.get(path))

    def test_an_administrator_makes_keys_for_others(self, world: World, sign_in: SignIn) -> None:
        client = sign_in(ADMINISTRATOR)
        assert "Who answers for it" in text_of(client.get(reverse("gateway:new_key")))
        client.post(reverse("gateway:new_key"), {**KEY, "owner": "keyholder"})
        assert GatewayKey.objects.get(name="mailer").owner.username == "keyholder"

    def test_an_operator_makes_keys_of_their_own_alone(self, operator: Client) -> None:
        operator.post(reverse("gateway:new_key"), {**KEY, "owner": "keyholder"})
        assert GatewayKey.objects.get(name="mailer").owner.username == OPERATOR

    @pytest.mark.parametrize(
        ("data", "field"),
        [
            ({"name": ""}, "name"),
            ({"scope": "some"}, "routes"),
            ({"scope": "some", "routes": ["none"]}, "routes"),
            ({"requests_per_minute": "0"}, "requests_per_minute"),
            ({"tokens_per_minute": "many"}, "tokens_per_minute"),
            ({"priority": "urgent"}, "priority"),
            ({"lifetime": "9999"}, "lifetime"),
        ],
    )
    def test_a_refusal_stands_at_its_field(self, operator: Client, data: dict[str, Any], field: str) -> None:
        answer = operator.post(reverse("gateway:new_key"), {**KEY, **data})
        assert answer.status_code == 422
        assert list(answer.context["form"].errors) == [field]
        assert f'id="id_{field}-error"' in text_of(answer)
        assert not GatewayKey.objects.filter(name="mailer").exists()

    def test_a_key_is_changed_and_revoked(self, operator: Client) -> None:
        url = reverse("gateway:edit_key", args=[1])
        assert 'value="60"' in text_of(operator.get(url))
        assert operator.post(url, {**KEY, "lifetime": "", "max_tokens": "99"}).status_code == 303
        row = GatewayKey.objects.get(pk=1)
        assert (row.name, row.max_tokens, row.requests_per_minute, row.routes) == ("mailer", 99, None, None)
        answer = operator.post(reverse("gateway:revoke_key", args=[1]), HTTP_HX_REQUEST="true")
        assert "is revoked" in json.loads(answer.headers["HX-Trigger"])["toast"]["text"]
        assert "revoked" in text_of(operator.get(reverse("gateway:key", args=[1])))
        assert operator.post(url, KEY).status_code == 422

    def test_the_list_is_filtered_by_the_url(self, operator: Client) -> None:
        owner = User.objects.get(username="keyholder")
        gateway_rows.gateway_key(owner, "second")
        operator.post(reverse("gateway:revoke_key", args=[1]))
        names = {
            query: [line["row"].name for line in operator.get(f"/gateway/?{query}").context["lines"]]
            for query in ("state=active", "state=revoked", "state=expired", "q=sec", "q=keyholder second")
        }
        assert names == {
            "state=active": ["second"],
            "state=revoked": ["checkout service"],
            "state=expired": [],
            "q=sec": ["second"],
            "q=keyholder second": ["second"],
        }

    def test_words_follow_what_is_typed(self, operator: Client) -> None:
        url = reverse("gateway:preview")
        typed = {"scope": "some", "routes": "demo", "requests_per_minute": "30", "priority": "low"}
        text = text_of(operator.get(url, {**typed, "clients": "4", "seconds": "1"}))
        assert "This key can use demo." in text
        assert "30 requests in any 60 seconds" in text
        assert "about 30 answers a minute" in text
        half = text_of(operator.get(url, {"requests_per_minute": "x", "clients": "-1"}))
        assert "no limit of its own" in half
        assert "not complete" in half
        assert "60 requests in any 60 seconds" in text_of(operator.get(url, {"key": "1"}))
        assert operator.get(url, {"key": "999"}).status_code == 404

    def test_calls_name_the_gateway_and_no_key(self, operator: Client, settings: Any) -> None:
        settings.INFLIGHT_GATEWAY_URL = "https://llm.example.org/"
        text = text_of(operator.get(reverse("gateway:key", args=[1])))
        assert "https://llm.example.org/v1/chat/completions" in text
        assert "$INFLIGHT_KEY" in text
        assert "&quot;demo&quot;" in text


class TestUsage:
    """Sums, and their export."""

    def test_totals_and_groups(self, operator: Client) -> None:
        answer = operator.get(reverse("gateway:usage"))
        assert answer.context["total"].requests == 363
        assert [(line.key_name, line.route) for line in answer.context["groups"]] == [
            ("checkout service", "demo")
        ]
        other = operator.get(reverse("gateway:usage"), {"model": "assistant", "range": "7d"})
        assert "with this filter" in text_of(other)
        assert operator.get(reverse("gateway:usage"), {"range": "1y"}).status_code == 422
        assert operator.get(reverse("gateway:usage"), {"key": "x"}).status_code == 200

    def test_exports(self, operator: Client) -> None:
        GatewayKey.objects.filter(pk=1).update(name="=1+1")
        UsageHour.objects.update(key_name="=1+1")
        answer = operator.get(reverse("gateway:export"), {"format": "csv"})
        assert "attachment" in answer.headers["Content-Disposition"]
        heading, *rows = csv.reader(io.StringIO(text_of(answer)))
        assert len(rows) == 3
        assert rows[0][heading.index("key")] == "'=1+1"
        found = json.loads(operator.get(reverse("gateway:export"), {"format": "json"}).content)
        assert sum(item["requests"] for item in found) == 363
        assert found[0]["key"] == "=1+1"


class TestRequests:
    """What runs, what ended, and who reads texts."""

    def test_texts_are_for_operators(self, operator: Client, sign_in: SignIn) -> None:
        url = reverse("gateway:request", args=[1])
        assert "capital of France" in text_of(operator.get(url))
        seen = text_of(sign_in(VIEWER).get(url))
        assert "capital of France" not in seen
        assert "operators can read them" in seen
        RequestLog.objects.update(prompt=None, answer=None, bodies_until=None)
        assert "were not kept" in text_of(operator.get(url))

    def test_what_runs_can_be_ended(self, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        item = RunningRequest("r9", 1, "checkout service", "demo", "chat", 1, True, 1.0, upstream="abc")
        asked: list[str] = []
        monkeypatch.setattr(running, "snapshot", lambda: [item])
        monkeypatch.setattr(running, "request_cancel", lambda request_id: not asked.append(request_id))
        assert "Cancel r9" in text_of(operator.get(reverse("gateway:requests")))
        answer = operator.post(reverse("gateway:cancel", args=["r9"]), HTTP_HX_REQUEST="true")
        assert answer.status_code == 204
        assert asked == ["r9"]
        assert operator.post(reverse("gateway:cancel", args=["gone"])).status_code == 404

    def test_the_list_is_filtered_by_the_url(self, operator: Client) -> None:
        gateway_rows.ended(GatewayKey.objects.get(pk=1), request_id="bad", outcome="error", status=500)
        for query, names in (("outcome=error", ["bad"]), ("q=req-", ["req-0001"]), ("model=none", [])):
            lines = operator.get(f"/gateway/requests/?{query}").context["lines"]
            assert [line["row"].request_id for line in lines] == names


class TestRoutes:
    """Public names and external deployments."""

    def test_every_name_is_listed(self, operator: Client) -> None:
        lines = operator.get(reverse("gateway:routes")).context["lines"]
        assert [line["name"] for line in lines] == ["assistant", "demo", "elsewhere"]
        assert [target["share"] for target in lines[0]["targets"]] == [0.9, 0.1]

    def test_a_route_is_made_changed_and_deleted(self, operator: Client) -> None:
        data = {"name": "fast", "queue_size": "5", "queue_seconds": "2.5", "body_days": "7"}
        given = {**data, "target_0": "deployment:demo", "weight_0": "3", "target_1": "external:elsewhere"}
        assert operator.post(reverse("gateway:new_route"), given).status_code == 303
        row = GatewayRoute.objects.get(name="fast")
        assert row.targets == [
            {"deployment": "demo", "weight": 3.0},
            {"external": "elsewhere", "weight": 1.0},
        ]
        url = reverse("gateway:route", args=["fast"])
        assert 'value="5"' in text_of(operator.get(url))
        changed = {**given, "longest_0": "100", "fallback": "demo", "record_bodies": "on", "name": "other"}
        assert operator.post(url, changed).status_code == 303
        row.refresh_from_db()
        assert (row.name, row.targets[0]["max_prompt_tokens"], row.fallback) == ("fast", 100, "demo")
        assert row.record_bodies
        operator.post(reverse("gateway:delete_route", args=["fast"]))
        assert not GatewayRoute.objects.filter(name="fast").exists()

    @pytest.mark.parametrize(
        ("data", "field"),
        [
            ({"name": "nobody"}, "target_0"),
            ({"name": "Bad Name", "target_0": "deployment:demo"}, "name"),
            ({"target_1": "deployment:demo", "weight_1": "0"}, "target_0"),
            ({"target_0": "deployment:demo", "target_1": "deployment:demo"}, "target_1"),
            ({"target_0": "deployment:none"}, "target_0"),
            ({"target_0": "deployment:demo", "weight_0": "-1"}, "weight_0"),
            ({"target_0": "deployment:demo", "queue_seconds": "nan"}, "queue_seconds"),
        ],
    )
    def test_a_refusal_stands_at_its_field(self, operator: Client, data: dict[str, Any], field: str) -> None:
        given = {"name": "fast", "queue_size": "5", "queue_seconds": "2.5", "body_days": "7"}
        answer = operator.post(reverse("gateway:new_route"), {**given, **data})
        assert answer.status_code == 422
        assert list(answer.context["form"].errors) == [field]

    def test_an_external_deployment_and_its_secret(self, operator: Client, settings: Any) -> None:
        settings.INFLIGHT_UPSTREAM_ALLOW = ["api.example.org"]
        data = {"name": "big", "base_url": "https://api.example.org/v1", "model": "m", "secret": "sk-hidden"}
        assert operator.post(reverse("gateway:new_external"), data).status_code == 303
        row = ExternalDeployment.objects.get(name="big")
        assert secrets.decrypt(row.secret) == "sk-hidden"
        url = reverse("gateway:external", args=["big"])
        seen = text_of(operator.get(url))
        assert "sk-hidden" not in seen
        assert "A secret is kept" in seen
        operator.post(url, {**data, "secret": "", "slots": "3"})
        row.refresh_from_db()
        assert (row.slots, secrets.decrypt(row.secret)) == (3, "sk-hidden")
        operator.post(url, {**data, "secret": "", "forget": "on"})
        row.refresh_from_db()
        assert not row.secret
        operator.post(reverse("gateway:delete_external", args=["big"]))
        assert not ExternalDeployment.objects.filter(name="big").exists()

    def test_a_foreign_host_is_refused_at_its_field(self, operator: Client, settings: Any) -> None:
        settings.INFLIGHT_UPSTREAM_ALLOW = []
        data = {"name": "big", "base_url": "http://169.254.169.254/v1", "model": "m"}
        answer = operator.post(reverse("gateway:new_external"), data)
        assert answer.status_code == 422
        assert list(answer.context["form"].errors) == ["base_url"]
        assert "INFLIGHT_UPSTREAM_ALLOW" in text_of(answer)


def test_empty_pages_say_what_to_do_next(db: None, sign_in: SignIn) -> None:
    client = sign_in(OPERATOR)
    words = {
        "gateway:keys": "Every application that calls a model needs a key",
        "gateway:usage": "As soon as an application sends requests",
        "gateway:requests": "Each request is listed here when it has ended",
        "gateway:routes": "nothing has to be set here",
    }
    for name, part in words.items():
        assert part in text_of(client.get(reverse(name)))
    assert client.get(reverse("gateway:new_key")).status_code == 200
    assert client.get(reverse("gateway:new_route")).status_code == 200
