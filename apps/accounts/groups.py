"""The roles as Django groups, made after every migration."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group

from apps.accounts.roles import GRANTS


def ensure_role_groups(using: str = "default", **kwargs: Any) -> None:
    """Create the group of each role that is missing. Receiver of `post_migrate`."""
    present = set(Group.objects.using(using).filter(name__in=GRANTS).values_list("name", flat=True))
    for name in GRANTS:
        if name not in present:
            Group.objects.using(using).get_or_create(name=name)
