"""Roles: groups after migration, Django permissions answered by the one table."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User

from apps.accounts.backends import action_for
from apps.accounts.roles import GRANTS, Action, may, require, roles_of
from apps.accounts.services import set_roles
from apps.core.exceptions import InvalidInput, NotAllowed, NotPossibleNow
from apps.core.models import AuditEntry
from tests.people import person

pytestmark = pytest.mark.django_db


def test_migration_makes_a_group_of_each_role() -> None:
    assert set(Group.objects.values_list("name", flat=True)) == set(GRANTS)


@pytest.mark.parametrize(
    ("permission", "action"),
    [
        ("registry.view_checkpoint", Action.VIEW),
        ("core.view_auditentry", Action.VIEW),
        ("engines.add_buildprofile", Action.CONFIGURE),
        ("serving.delete_deployment", Action.CONFIGURE),
        ("serving.change_batchingprofile", Action.CONFIGURE),
        ("engines.change_build", None),
        ("fleet.delete_node", None),
        ("auth.view_user", Action.ADMINISTER),
        ("auth.change_user", Action.ADMINISTER),
        ("auth.change_group", None),
        ("accounts.add_apitoken", Action.ADMINISTER),
        ("chat.view_turn", None),
        ("nonsense", None),
    ],
)
def test_a_permission_stands_for_one_action(permission: str, action: Action | None) -> None:
    assert action_for(permission) is action


@pytest.mark.parametrize(
    ("role", "view", "configure", "people"),
    [
        ("viewer", True, False, False),
        ("operator", True, True, False),
        ("administrator", True, True, True),
        ("code-author", True, False, False),
    ],
)
def test_django_asks_the_roles(role: str, view: bool, configure: bool, people: bool) -> None:
    user = person(role)
    assert user.has_perm("serving.view_deployment") is view
    assert user.has_perm("serving.change_deployment") is configure
    assert user.has_perm("auth.change_user") is people
    assert user.has_module_perms("serving") is view
    assert user.has_module_perms("auth") is people
    assert not user.has_module_perms("sessions")


def test_without_a_role_nothing_is_allowed() -> None:
    user = person()
    assert roles_of(user) == frozenset()
    assert not user.has_perm("serving.view_deployment")
    assert not any(may(user, action) for action in Action)
    assert not may(AnonymousUser(), Action.VIEW)


def test_an_account_that_is_switched_off_has_no_role() -> None:
    user = person("administrator")
    user.is_active = False
    user.save()
    assert roles_of(User.objects.get(pk=user.pk)) == frozenset()


def test_require_names_the_role_that_is_needed() -> None:
    with pytest.raises(NotAllowed) as caught:
        require(person("viewer"), Action.OPERATE)
    assert caught.value.facts == {"role": "operator", "action": "operate"}
    assert "operator" in caught.value.sentence


def test_roles_are_set_with_an_audit_row() -> None:
    boss, user = person("administrator"), person("viewer")
    assert set_roles(boss, user, ["operator", "code-author"]) == {"operator", "code-author"}
    assert roles_of(user) == {"operator", "code-author"}
    entry = AuditEntry.objects.get(verb="user.roles")
    assert entry.actor == boss
    assert entry.detail == {"before": ["viewer"], "after": ["code-author", "operator"]}
    set_roles(boss, user, ["operator", "code-author"])
    assert AuditEntry.objects.filter(verb="user.roles").count() == 1


def test_roles_that_do_not_exist_and_people_who_may_not() -> None:
    boss, user = person("administrator"), person("operator")
    with pytest.raises(InvalidInput, match="no role king"):
        set_roles(boss, user, ["king"])
    with pytest.raises(NotAllowed):
        set_roles(user, user, ["administrator"])


def test_the_last_administrator_stays() -> None:
    boss = person("administrator")
    with pytest.raises(NotPossibleNow, match="last administrator"):
        set_roles(boss, boss, ["viewer"])
    second = person("administrator", name="second")
    set_roles(second, boss, ["viewer"])
    assert roles_of(boss) == {"viewer"}
