"""The REST API's frame: authentication, CSRF, error shape, pages; and the operations on people and tokens."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import ApiToken
from apps.accounts.services import create_token
from apps.core import clock
from apps.core.models import AuditEntry
from tests.people import client_of, person
from tests.specs.api import refused, send

pytestmark = pytest.mark.django_db


def test_anonymous_is_told_to_authenticate() -> None:
    refused(send(Client(), "GET", "/me"), 401, "not_signed_in")
    refused(send(Client(), "POST", "/tokens", {"name": "x"}), 401, "not_signed_in")


def test_a_session_needs_its_csrf_token() -> None:
    client = client_of(person("viewer"), csrf=True)
    assert send(client, "GET", "/me").json()["roles"] == ["viewer"]
    refused(send(client, "POST", "/tokens", {"name": "ci"}), 403, "csrf_failed")
    client.cookies["csrftoken"] = "a" * 32
    assert send(client, "POST", "/tokens", {"name": "ci"}, **{"X-CSRFToken": "a" * 32}).status_code == 201


def test_a_bearer_token_needs_no_csrf_token() -> None:
    owner = person("operator")
    token, text = create_token(owner, "ci")
    client, headers = Client(enforce_csrf_checks=True), {"Authorization": f"Bearer {text}"}
    assert send(client, "GET", "/me", **headers).json() == {
        "username": "operator",
        "roles": ["operator"],
        "actions": ["chat", "configure", "operate", "view"],
    }
    assert send(client, "POST", f"/tokens/{token.pk}/revoke", **headers).json()["state"] == "revoked"
    refused(send(client, "GET", "/me", **headers), 401, "token_refused")


@pytest.mark.parametrize("header", ["Bearer ifl_wrong", "Bearer ", "bearer x y z"])
def test_a_bad_token_is_refused_even_with_a_session(header: str) -> None:
    client = client_of(person("viewer"))
    refused(send(client, "GET", "/me", Authorization=header), 401, "token_refused")


def test_an_expired_token_is_refused() -> None:
    token, text = create_token(person("viewer"), "ci")
    ApiToken.objects.filter(pk=token.pk).update(expires_at=clock.now() - timedelta(seconds=1))
    refused(send(Client(), "GET", "/me", Authorization=f"Bearer {text}"), 401, "token_refused")


def test_an_account_without_a_role_may_nothing() -> None:
    client = client_of(person())
    assert send(client, "GET", "/me").json()["actions"] == []
    refused(send(client, "POST", "/tokens", {"name": "ci"}), 403, "role_missing")
    refused(send(client, "GET", "/audit"), 403, "role_missing")


def test_a_token_is_shown_once() -> None:
    client = client_of(person("viewer"))
    made = send(client, "POST", "/tokens", {"name": "ci", "expires_at": "2099-01-01T00:00:00Z"})
    assert made.status_code == 201
    text = made.json()["token"]
    listed = send(client, "GET", "/tokens").json()
    assert text not in str(listed)
    assert [item["name"] for item in listed["items"]] == ["ci"]
    assert listed["items"][0]["last_used_at"] is None
    assert send(Client(), "GET", "/me", Authorization=f"Bearer {text}").status_code == 200


def test_a_token_makes_no_token() -> None:
    _, text = create_token(person("administrator"), "ci")
    answer = send(Client(), "POST", "/tokens", {"name": "more"}, Authorization=f"Bearer {text}")
    refused(answer, 403, "token_makes_no_token")


def test_tokens_of_others_are_not_found() -> None:
    mine, _ = create_token(person("operator"), "ci")
    other = client_of(person("viewer"))
    refused(send(other, "POST", f"/tokens/{mine.pk}/revoke"), 404, "token_not_found")
    refused(send(other, "POST", "/tokens/999999/revoke"), 404, "token_not_found")
    boss = client_of(person("administrator"))
    assert send(boss, "POST", f"/tokens/{mine.pk}/revoke").json()["state"] == "revoked"


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({}, "name", "name is missing."),
        ({"name": 5}, "name", "name must be text, not the number 5; put it in quotes."),
        ({"name": ""}, "name", "A token needs a name of 1 to 100 characters."),
        ({"name": "a", "expires_att": None}, "expires_att", "Did you mean expires_at?"),
        ({"name": "a", "expires_at": "2099-01-01T00:00:00"}, "expires_at", "needs a time zone"),
        ({"name": "a", "expires_at": "2001-01-01T00:00:00Z"}, "expires_at", "lies in the past"),
        ([], "body", "body must be a mapping, not a list of 0."),
    ],
)
def test_broken_bodies_name_the_field(body: Any, field: str, words: str) -> None:
    response = send(client_of(person("viewer")), "POST", "/tokens", body)
    assert response.status_code == 422
    assert words in response.json()["message"]
    assert response.json()["field"] == field


def test_text_that_is_no_json() -> None:
    client = client_of(person("viewer"))
    response = client.generic("POST", "/api/v1/tokens", b"{", content_type="application/json")
    refused(response, 400, "bad_request")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("offset=-1", "offset"),
        ("limit=x", "limit"),
        ("offset=9e99", "offset"),
    ],
)
def test_pages_have_bounds(query: str, field: str) -> None:
    response = send(client_of(person("viewer")), "GET", f"/audit?{query}")
    assert response.status_code == 422
    assert response.json()["field"] == field


def test_the_audit_trail_in_pages() -> None:
    boss = person("administrator")
    for number in range(5):
        create_token(boss, f"t{number}")
    client = client_of(person("viewer"))
    page = send(client, "GET", "/audit?verb=token.&limit=2&offset=1").json()
    assert (page["count"], page["limit"], page["offset"]) == (5, 2, 1)
    assert [item["object_label"][:2] for item in page["items"]] == ["t3", "t2"]
    assert page["items"][0]["from_state"] is None


def test_roles_through_the_api() -> None:
    user = person("viewer")
    boss = client_of(person("administrator"))
    answer = send(boss, "PUT", "/users/viewer/roles", {"roles": ["operator"]})
    assert answer.json()["roles"] == ["operator"]
    assert AuditEntry.objects.filter(verb="user.roles", object_id=str(user.pk)).exists()
    refused(send(boss, "PUT", "/users/viewer/roles", {"roles": ["king"]}), 422, "unknown_role", "roles")
    refused(send(boss, "PUT", "/users/nobody/roles", {"roles": []}), 404, "user_not_found", "user")
    refused(send(client_of(user), "PUT", "/users/viewer/roles", {"roles": []}), 403, "role_missing")
    refused(send(client_of(user), "GET", "/users"), 403, "role_missing")
    assert send(boss, "GET", "/users").json()["count"] == 2
    refused(send(boss, "DELETE", "/users/administrator"), 409, "own_account")
    refused(send(client_of(user), "DELETE", "/users/administrator"), 403, "role_missing")
    assert send(boss, "DELETE", "/users/viewer").status_code == 204


def test_a_path_that_is_none_has_the_same_shape() -> None:
    refused(send(client_of(person("viewer")), "GET", "/nonsense"), 404, "unknown_path")
    refused(send(Client(), "POST", "/nonsense"), 404, "unknown_path")


def test_the_documentation_needs_a_person_and_no_other_server() -> None:
    for path in ("/docs", "/openapi.json"):
        assert Client().get(f"/api/v1{path}").status_code == 302
    client = client_of(person("viewer"))
    page = client.get("/api/v1/docs").content.decode()
    assert "https://" not in page
    assert "ninja/swagger-ui-bundle.js" in page
    assert client.get("/api/v1/openapi.json").json()["info"]["title"] == "Inflight"
