"""What the signed-in person may do, asked once per request."""

from __future__ import annotations

from typing import cast

from django.contrib.auth.models import User
from django.http import HttpRequest

from apps.accounts.roles import GRANTS, Action, roles_of

_KEY = "_inflight_actions"


def actions_of(request: HttpRequest) -> frozenset[Action]:
    """Actions of the person's roles; one query, then kept on the request."""
    found = cast("frozenset[Action] | None", getattr(request, _KEY, None))
    if found is None:
        granted = (GRANTS[role] for role in roles_of(request.user))
        found = frozenset().union(*granted)
        setattr(request, _KEY, found)
    return found


def may(request: HttpRequest, action: Action) -> bool:
    """Whether the signed-in person may."""
    return action in actions_of(request)


def person(request: HttpRequest) -> User:
    """The signed-in person; LoginRequiredMiddleware has let nobody else through."""
    return cast(User, request.user)
