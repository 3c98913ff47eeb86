"""Django's permissions, answered by the roles alone.

The admin asks `user.has_perm("engines.add_buildprofile")`; roles.py is the one table behind the answer, so no
permission rows are given to groups or people.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import AnonymousUser, User

from apps.accounts.roles import Action, may

# Objects that people configure; every other object is a record that only services and workers write.
CONFIGURED = frozenset(
    {
        "registry.checkpoint",
        "engines.buildprofile",
        "engines.quantizationprofile",
        "serving.batchingprofile",
        "serving.deployment",
        "telemetry.alertrule",
        "loadtests.loadtest",
        "loadtests.qualitygate",
    }
)
# Objects that only administrators see.
PEOPLE = frozenset({"auth.user", "auth.group", "accounts.apitoken", "registry.hubaccess"})
PEOPLE_EDITED = frozenset({"auth.user", "accounts.apitoken", "registry.hubaccess"})
# Objects that nobody but their owner sees: conversations are private.
PRIVATE_APPS = frozenset({"chat", "sessions", "contenttypes", "admin"})
APPS_WITH_OBJECTS = frozenset(
    {"core", "registry", "fleet", "engines", "serving", "telemetry", "gateway", "loadtests"}
)


def action_for(permission: str) -> Action | None:
    """Action that a Django permission (`app.verb_model`) stands for; None where no role includes it."""
    app_label, _, codename = permission.partition(".")
    verb, _, model = codename.partition("_")
    label = f"{app_label}.{model}"
    if verb == "view":
        if label in PEOPLE:
            return Action.ADMINISTER
        return None if app_label in PRIVATE_APPS else Action.VIEW
    if label in PEOPLE_EDITED:
        return Action.ADMINISTER
    return Action.CONFIGURE if label in CONFIGURED else None


class RoleBackend(ModelBackend):
    """Signs people in by password as Django does, and answers every permission from the roles."""

    def get_all_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        """No permission is listed: `has_perm` answers each question by itself."""
        return set()

    def has_perm(self, user_obj: User | AnonymousUser, perm: str, obj: Any = None) -> bool:
        """Whether the person's roles include the action that the permission stands for."""
        action = action_for(perm)
        return action is not None and may(user_obj, action)

    def has_module_perms(self, user_obj: User | AnonymousUser, app_label: str) -> bool:
        """Whether the person sees anything of an app in the admin."""
        if app_label in {"auth", "accounts"}:
            return may(user_obj, Action.ADMINISTER)
        return app_label in APPS_WITH_OBJECTS and may(user_obj, Action.VIEW)
