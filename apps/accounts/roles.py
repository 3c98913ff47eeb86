"""Roles and what each may do. Roles are Django groups, so they are given to people in the admin.

viewer < operator < administrator; code-author stands beside them and adds one right.
"""

from __future__ import annotations

from enum import StrEnum

from django.contrib.auth.models import AnonymousUser, User
from django.utils.translation import gettext as _

from apps.core.exceptions import NotAllowed


class Action(StrEnum):
    """What a service or a live topic asks for."""

    VIEW = "view"
    CHAT = "chat"
    OPERATE = "operate"  # start and cancel builds, deploy, stop, restart
    CONFIGURE = "configure"  # edit checkpoints and profiles
    ADMINISTER = "administer"  # people, roles, tokens of others
    AUTHOR_CODE = "author-code"  # bring in files that run: .py, .so, archives


VIEWER, OPERATOR, ADMINISTRATOR, CODE_AUTHOR = "viewer", "operator", "administrator", "code-author"

_VIEWER = frozenset({Action.VIEW})
_OPERATOR = _VIEWER | {Action.CHAT, Action.OPERATE, Action.CONFIGURE}
GRANTS: dict[str, frozenset[Action]] = {
    VIEWER: _VIEWER,
    OPERATOR: _OPERATOR,
    ADMINISTRATOR: _OPERATOR | {Action.ADMINISTER},
    CODE_AUTHOR: frozenset({Action.VIEW, Action.AUTHOR_CODE}),
}


def roles_of(user: User | AnonymousUser) -> frozenset[str]:
    """Names of the roles that a person holds; a superuser holds administrator and code-author."""
    if not user.is_authenticated or not user.is_active:
        return frozenset()
    if user.is_superuser:
        return frozenset({ADMINISTRATOR, CODE_AUTHOR})
    return frozenset(user.groups.values_list("name", flat=True)) & frozenset(GRANTS)


def may(user: User | AnonymousUser, action: Action) -> bool:
    """Whether the person's roles include the action."""
    return any(action in GRANTS[role] for role in roles_of(user))


def require(user: User | AnonymousUser | str, action: Action) -> None:
    """Raise NotAllowed, naming the role that is needed, unless the person may. Parts of the system (str) may."""
    if isinstance(user, str) or may(user, action):
        return
    needed = next(role for role, actions in GRANTS.items() if action in actions)
    raise NotAllowed(
        "role_missing",
        _("This needs the role %(role)s.") % {"role": needed},
        remedy=_("Ask an administrator to add the role to your account."),
        facts={"role": needed, "action": action.value},
    )
