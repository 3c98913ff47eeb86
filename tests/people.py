"""People with roles, for tests."""

from __future__ import annotations

from django.contrib.auth.models import Group, User
from django.test import Client

from apps.accounts.roles import ADMINISTRATOR, CODE_AUTHOR, OPERATOR, VIEWER

ROLES = (VIEWER, OPERATOR, ADMINISTRATOR, CODE_AUTHOR)


def person(*roles: str, name: str = "") -> User:
    """An account with these roles; without any, one that may do nothing."""
    user = User.objects.create_user(name or "-".join(roles) or "nobody", password="correct horse")
    for role in roles:
        user.groups.add(Group.objects.get(name=role))
    return user


def client_of(user: User | None, *, csrf: bool = False) -> Client:
    """A test client, signed in as `user`."""
    client = Client(enforce_csrf_checks=csrf)
    if user is not None:
        client.force_login(user)
    return client
