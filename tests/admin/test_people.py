"""People, roles and tokens in the admin."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from apps.accounts.models import ApiToken
from apps.accounts.roles import roles_of
from apps.accounts.services import authenticate_token
from apps.core.models import AuditEntry
from tests.people import client_of, person

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
PASSWORD = "correct horse battery"


@pytest.fixture
def boss() -> Client:
    return client_of(person("administrator", name="boss"))


def change(client: Client, user: User, **data: Any) -> Any:
    fields: dict[str, Any] = {
        "username": user.username,
        "is_active": "on",
        "roles": list(roles_of(user)),
        **data,
    }
    return client.post(reverse("admin:auth_user_change", args=[user.pk]), fields)


def errors_of(response: Any) -> dict[str, list[str]]:
    assert response.status_code == 200
    return {key: list(value) for key, value in response.context["adminform"].form.errors.items()}


def test_a_new_account_with_roles(boss: Client) -> None:
    data = {"username": "ada", "usable_password": "true", "password1": PASSWORD, "password2": PASSWORD}
    assert boss.post(reverse("admin:auth_user_add"), {**data, "roles": ["operator"]}).status_code == 302
    ada = User.objects.get(username="ada")
    assert roles_of(ada) == {"operator"}
    assert ada.check_password(PASSWORD)
    assert set(AuditEntry.objects.values_list("verb", flat=True)) == {"user.created", "user.roles"}
    assert PASSWORD not in str(list(AuditEntry.objects.values()))


def test_roles_are_changed_on_the_page_of_the_person(boss: Client) -> None:
    ada = person("viewer", name="ada")
    assert change(boss, ada, roles=["operator", "code-author"], email="ada@example.org").status_code == 302
    assert roles_of(ada) == {"operator", "code-author"}
    trail = AuditEntry.objects.get(verb="user.changed")
    assert (trail.actor_label, trail.detail) == ("boss", {"fields": ["email"]})


def test_the_last_administrator_stays(boss: Client) -> None:
    me = User.objects.get(username="boss")
    assert "last administrator" in errors_of(change(boss, me, roles=["viewer"]))["roles"][0]
    assert "last administrator" in errors_of(change(boss, me, is_active=""))["is_active"][0]
    me.refresh_from_db()
    assert me.is_active
    assert roles_of(me) == {"administrator"}
    answer = boss.post(reverse("admin:auth_user_delete", args=[me.pk]), {"post": "yes"}, follow=True)
    assert "You cannot delete your own account." in answer.content.decode()


def test_deleting_an_account_keeps_its_trail(boss: Client) -> None:
    ada = person("viewer", name="ada")
    boss.post(reverse("admin:auth_user_delete", args=[ada.pk]), {"post": "yes"})
    assert not User.objects.filter(username="ada").exists()
    assert AuditEntry.objects.get(verb="user.deleted").object_label == "ada"


def test_a_superuser_is_beyond_administrators(boss: Client) -> None:
    root = User.objects.create_superuser("root", password="x")
    assert change(boss, root, email="x@example.org").status_code == 403
    assert boss.post(reverse("admin:auth_user_delete", args=[root.pk]), {"post": "yes"}).status_code == 403
    assert boss.get(reverse("admin:auth_user_password_change", args=[root.pk])).status_code == 403
    data = {"username": "ada", "usable_password": "true", "password1": PASSWORD, "password2": PASSWORD}
    boss.post(reverse("admin:auth_user_add"), {**data, "is_superuser": "on", "is_staff": "on"})
    assert not User.objects.get(username="ada").is_superuser


def test_a_password_that_an_administrator_sets_leaves_a_trace(boss: Client) -> None:
    ada = person("viewer", name="ada")
    data = {"usable_password": "true", "password1": PASSWORD, "password2": PASSWORD}
    boss.post(reverse("admin:auth_user_password_change", args=[ada.pk]), data)
    ada.refresh_from_db()
    assert ada.check_password(PASSWORD)
    assert AuditEntry.objects.get(verb="user.password").actor_label == "boss"


def test_roles_are_shown_and_not_edited(boss: Client) -> None:
    page = boss.get(reverse("admin:auth_group_changelist")).content.decode()
    assert "view, chat, operate, configure, administer" in page
    assert boss.get(reverse("admin:auth_group_add")).status_code == 403


def test_a_token_is_shown_once(boss: Client) -> None:
    ada = person("viewer", name="ada")
    answer = boss.post(reverse("admin:accounts_apitoken_add"), {"owner": ada.pk, "name": "ci"})
    assert answer.status_code == 200
    assert "no-store" in answer.headers["Cache-Control"]
    text = answer.content.decode().split('tabindex="0">ifl_')[1].split("<")[0]
    found = authenticate_token(f"ifl_{text}")
    assert found is not None
    assert (found.owner, found.name) == (ada, "ci")
    for page in ("changelist", "change"):
        arguments = [found.pk] if page == "change" else []
        shown = boss.get(reverse(f"admin:accounts_apitoken_{page}", args=arguments))
        assert shown.status_code == 200
        assert text not in shown.content.decode()


def test_tokens_are_revoked_and_neither_changed_nor_deleted(boss: Client) -> None:
    boss.post(
        reverse("admin:accounts_apitoken_add"), {"owner": User.objects.get(username="boss").pk, "name": "ci"}
    )
    token = ApiToken.objects.get()
    change_page = reverse("admin:accounts_apitoken_change", args=[token.pk])
    assert boss.post(change_page, {"name": "other"}).status_code == 403
    assert boss.post(reverse("admin:accounts_apitoken_delete", args=[token.pk])).status_code == 403
    boss.post(reverse("admin:accounts_apitoken_do", args=[token.pk, "revoke"]))
    token.refresh_from_db()
    assert token.revoked_at is not None


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "ci", "expires_at_0": "2001-01-01", "expires_at_1": "00:00:00"}, "expires_at"),
        ({"name": "ci", "expires_at_0": "soon", "expires_at_1": ""}, "expires_at"),
    ],
)
def test_a_token_that_is_refused(boss: Client, data: dict[str, str], field: str) -> None:
    owner = User.objects.get(username="boss").pk
    answer = boss.post(reverse("admin:accounts_apitoken_add"), {"owner": owner, **data})
    assert list(errors_of(answer)) == [field]
    assert not ApiToken.objects.exists()
