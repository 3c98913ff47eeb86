"""The gateway through REST, commands and documents: the same services, the same refusals."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

from apps.core import secrets
from apps.core.exceptions import InvalidInput
from apps.gateway import running
from apps.gateway.keys import digest_of
from apps.gateway.models import ExternalDeployment, GatewayKey, GatewayRoute
from apps.gateway.running import RunningRequest
from apps.specs import services as specs
from tests import gateway_rows, objects
from tests.people import client_of, person
from tests.specs.api import ok, refused, send

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _allowed(settings: Any) -> None:
    settings.INFLIGHT_UPSTREAM_ALLOW = ["api.example.org"]


@pytest.fixture
def operator() -> Client:
    objects.deployment("demo")
    return client_of(person("operator"))


def run(line: str, stdin: str = "", monkeypatch: pytest.MonkeyPatch | None = None) -> str:
    command, *arguments = line.split()
    out = io.StringIO()
    if monkeypatch is not None:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
    call_command(command, *arguments, stdout=out)
    return out.getvalue()


def told(line: str) -> Any:
    return json.loads(run(f"{line} --json"))


class TestRest:
    """Every door of the API."""

    def test_keys(self, operator: Client) -> None:
        body = {"name": "app", "routes": ["demo"], "requests_per_minute": 5, "priority": "low"}
        made = ok(send(operator, "POST", "/gateway/keys", body), 201)
        assert GatewayKey.objects.get().digest == digest_of(made["key"])
        path = f"/gateway/keys/{made['id']}"
        seen = ok(send(operator, "GET", path))
        assert "key" not in seen
        assert (seen["state"], seen["routes"], seen["priority"]) == ("active", ["demo"], "low")
        assert made["key"] not in json.dumps(ok(send(operator, "GET", "/gateway/keys")))
        changed = ok(send(operator, "PUT", path, {"name": "app2"}))
        assert (changed["name"], changed["routes"], changed["requests_per_minute"]) == ("app2", None, None)
        assert ok(send(operator, "POST", f"{path}/revoke"))["state"] == "revoked"
        refused(send(operator, "PUT", path, {"name": "x"}), 409, "key_revoked")
        refused(send(operator, "GET", "/gateway/keys/999"), 404, "gateway_key_unknown")
        refused(
            send(operator, "POST", "/gateway/keys", {"name": "a", "routes": ["x"]}),
            422,
            "route_unknown",
            "routes",
        )
        body = {"name": "a", "requests_per_minute": 0}
        refused(send(operator, "POST", "/gateway/keys", body), 422, "invalid_input", "requests_per_minute")
        body = {"name": "a", "expires_at": "2020-01-01T00:00:00Z"}
        refused(send(operator, "POST", "/gateway/keys", body), 422, "key_expired", "expires_at")

    def test_routes_and_externals(self, operator: Client) -> None:
        body: dict[str, Any] = {"name": "big", "base_url": "https://api.example.org/v1", "model": "m"}
        assert ok(send(operator, "POST", "/gateway/external-deployments", body), 201)["has_secret"] is False
        path = "/gateway/external-deployments/big"
        seen = ok(send(operator, "PUT", f"{path}/secret", {"secret": "sk-1"}))
        assert seen["has_secret"] is True
        assert "sk-1" not in json.dumps(seen)
        del body["name"]
        assert ok(send(operator, "PUT", path, {**body, "slots": 3}))["slots"] == 3
        hostile = {**body, "base_url": "http://127.0.0.1:6379/"}
        refused(send(operator, "PUT", path, hostile), 422, "url_not_allowed", "base_url")
        route = {"name": "chat", "targets": [{"deployment": "demo"}, {"external": "big", "weight": 0.5}]}
        made = ok(send(operator, "POST", "/gateway/routes", route), 201)
        assert made["targets"][1] == {"external": "big", "weight": 0.5}
        refused(send(operator, "DELETE", path), 409, "external_in_use")
        changed = ok(send(operator, "PUT", "/gateway/routes/chat", {"targets": [{"deployment": "demo"}]}))
        assert len(changed["targets"]) == 1
        ok(send(operator, "DELETE", path), 204)
        ok(send(operator, "DELETE", "/gateway/routes/chat"), 204)
        refused(send(operator, "GET", "/gateway/routes/chat"), 404, "gateway_route_unknown", "route")

    def test_records(self, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        gateway_rows.everything()
        found = ok(send(operator, "GET", "/gateway/usage?range=24h&group=key"))
        assert found["total"]["requests"] == 363
        assert found["items"][0]["key"] == "checkout service"
        assert len(ok(send(operator, "GET", "/gateway/usage?group=hour&group=route"))["items"]) == 3
        refused(send(operator, "GET", "/gateway/usage?range=1y"), 422, "range_unknown", "range")
        text = send(operator, "GET", "/gateway/usage.csv?group=key").content.decode()
        assert text.startswith("at,key_id,key,route,requests")
        rows = ok(send(operator, "GET", "/gateway/requests?outcome=ok"))
        assert [row["request_id"] for row in rows["items"]] == ["req-0001"]
        assert "prompt" not in rows["items"][0]
        assert ok(send(operator, "GET", "/gateway/requests?route=none"))["count"] == 0
        assert ok(send(operator, "GET", "/gateway/requests/1"))["answer"] == "Paris."
        viewer = client_of(person("viewer"))
        refused(send(viewer, "GET", "/gateway/requests/1"), 403, "role_missing")
        item = RunningRequest("r9", 1, "app", "demo", "chat", 2, True, 5.0)
        monkeypatch.setattr(running, "snapshot", lambda: [item])
        monkeypatch.setattr(running, "request_cancel", lambda request_id: True)
        (seen,) = ok(send(operator, "GET", "/gateway/running"))
        assert (seen["request_id"], seen["priority"]) == ("r9", "low")
        ok(send(operator, "POST", "/gateway/running/r9/cancel"), 202)
        refused(send(operator, "POST", "/gateway/running/r8/cancel"), 404, "request_not_running")
        refused(send(viewer, "POST", "/gateway/running/r9/cancel"), 403, "role_missing")

    def test_viewers_look_and_change_nothing(self, operator: Client) -> None:
        gateway_rows.everything()
        viewer = client_of(person("viewer"))
        for path in ("/gateway/keys", "/gateway/routes", "/gateway/external-deployments", "/gateway/usage"):
            ok(send(viewer, "GET", path))
        for method, path, body in (
            ("POST", "/gateway/keys", {"name": "a"}),
            ("PUT", "/gateway/keys/1", {"name": "a"}),
            ("POST", "/gateway/keys/1/revoke", None),
            ("POST", "/gateway/routes", {"name": "a"}),
            ("PUT", "/gateway/routes/assistant", {}),
            ("DELETE", "/gateway/routes/assistant", None),
            ("PUT", "/gateway/external-deployments/elsewhere/secret", {"secret": "x"}),
            ("DELETE", "/gateway/external-deployments/elsewhere", None),
        ):
            refused(send(viewer, method, path, body), 403, "role_missing")


class TestCommands:
    """The same on the command line."""

    def test_keys(self) -> None:
        objects.deployment("demo")
        person("operator", name="ada")
        line = "gateway_key create ada app --model demo --requests-per-minute 5 --priority high --days 3"
        made = told(line)
        row = GatewayKey.objects.get()
        assert row.digest == digest_of(made["key"])
        assert (row.routes, row.requests_per_minute, row.priority) == (["demo"], 5, "high")
        run(
            f"gateway_key change {row.pk} --name other --max-tokens 9 --no requests_per_minute --no expiry --no model"
        )
        row.refresh_from_db()
        assert (row.name, row.max_tokens, row.requests_per_minute, row.routes) == ("other", 9, None, None)
        assert row.expires_at is None
        assert "other" in run("gateway_key list --owner ada")
        assert "refuse it within 2 s" in run(f"gateway_key revoke {row.pk}")
        with pytest.raises(CommandError) as caught:
            run("gateway_key create ada app --model none")
        assert caught.value.returncode == 1
        assert "No model is called none." in str(caught.value)

    def test_a_secret_comes_from_standard_input(self, monkeypatch: pytest.MonkeyPatch) -> None:
        gateway_rows.everything()
        run("external_deployment secret elsewhere", "sk-7\n", monkeypatch)
        assert secrets.decrypt(ExternalDeployment.objects.get().secret) == "sk-7"
        assert "True" in run("external_deployment list")
        assert "demo x9, external:elsewhere x1" in run("gateway_route list")
        run("gateway_route delete assistant")
        run("external_deployment delete elsewhere")
        assert not ExternalDeployment.objects.exists()

    def test_requests(self, monkeypatch: pytest.MonkeyPatch) -> None:
        item = RunningRequest("r9", 1, "app", "demo", "chat", 0, True, 5.0)
        asked: list[str] = []
        monkeypatch.setattr(running, "snapshot", lambda: [item])
        monkeypatch.setattr(running, "request_cancel", lambda request_id: not asked.append(request_id))
        assert "r9" in run("gateway_request list")
        run("gateway_request cancel r9")
        assert asked == ["r9"]


DOCUMENTS = """
apiVersion: inflight/v1
kind: GatewayRoute
metadata: {name: chat}
spec: {targets: [{deployment: demo, weight: 3, maxPromptTokens: 512}, {external: big}], fallback: spare, queueSize: 9}
---
apiVersion: inflight/v1
kind: GatewayRoute
metadata: {name: spare}
spec: {targets: [{external: big}], tokensPerMinute: 1000}
---
apiVersion: inflight/v1
kind: ExternalDeployment
metadata: {name: big}
spec: {baseUrl: "https://api.example.org/v1", model: m, slots: 3}
"""


class TestDocuments:
    """Configuration as code."""

    def test_applying_twice_changes_nothing(self) -> None:
        objects.deployment("demo")
        specs.apply("test", DOCUMENTS, "f.yaml")
        route = GatewayRoute.objects.get(name="chat")
        assert route.targets == [
            {"deployment": "demo", "weight": 3.0, "max_prompt_tokens": 512},
            {"external": "big", "weight": 1.0},
        ]
        assert (route.fallback, route.queue_size) == ("spare", 9)
        assert specs.plan("test", DOCUMENTS, "f.yaml").is_empty
        exported = specs.export("test", ["ExternalDeployment", "GatewayRoute"])
        assert specs.plan("test", exported, "f.yaml").is_empty

    def test_a_secret_is_never_in_a_document_and_stays(self) -> None:
        objects.deployment("demo")
        specs.apply("test", DOCUMENTS, "f.yaml")
        row = ExternalDeployment.objects.get()
        row.secret = secrets.encrypt("sk-1")
        row.save()
        assert "sk-1" not in (text := specs.export("test"))
        assert row.secret not in text
        changed = DOCUMENTS.replace("slots: 3", "slots: 4")
        specs.apply("test", changed, "f.yaml")
        row.refresh_from_db()
        assert (row.slots, secrets.decrypt(row.secret)) == (4, "sk-1")

    @pytest.mark.parametrize(
        ("old", "new", "word"),
        [
            ("deployment: demo", "deployment: dem", "demo"),
            ("{external: big}], fall", "{external: bag}], fall", "big"),
            ("api.example.org", "169.254.169.254", "INFLIGHT_UPSTREAM_ALLOW"),
            ("weight: 3", "wieght: 3", "wieght"),
            ("queueSize: 9", "queueSize: -1", "queueSize"),
            ("slots: 3", "secret: sk-1", "secret"),
        ],
    )
    def test_what_is_wrong_is_told_before_anything_is_written(self, old: str, new: str, word: str) -> None:
        objects.deployment("demo")
        with pytest.raises(InvalidInput) as caught:
            specs.apply("test", DOCUMENTS.replace(old, new), "f.yaml")
        assert any(word in f"{item.message} {item.remedy}" for item in caught.value.findings)
        assert not GatewayRoute.objects.exists()
        assert not ExternalDeployment.objects.exists()

    def test_a_loop_of_fallbacks_changes_nothing(self) -> None:
        objects.deployment("demo")
        looped = DOCUMENTS.replace("tokensPerMinute: 1000", "fallback: chat")
        with pytest.raises(InvalidInput):
            specs.apply("test", looped, "f.yaml")
        assert not GatewayRoute.objects.exists()


def test_two_keys_of_the_api_are_not_the_gateways(operator: Client) -> None:
    """A key of the gateway opens nothing of the REST API."""
    made = ok(send(operator, "POST", "/gateway/keys", {"name": "app"}), 201)
    answer = send(Client(), "GET", "/me", Authorization=f"Bearer {made['key']}")
    refused(answer, 401, "token_refused")
