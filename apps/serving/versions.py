"""Versions of a batching profile: what it said after each change, who made it and when."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Max
from django.utils.translation import gettext as _

from apps.core.exceptions import NotFound
from apps.serving import inputs
from apps.serving.models import BatchingProfile


def values_of(profile: BatchingProfile) -> dict[str, Any]:
    """What a version keeps: every field but the name."""
    return {field: getattr(profile, field) for field in inputs.PROFILE_FIELDS if field != "name"}


def keep(
    actor: User | str, profile: BatchingProfile, values: dict[str, Any], changes: dict[str, Any]
) -> None:
    """Add a version; call inside the transaction of the change."""
    number = (profile.versions.aggregate(top=Max("number"))["top"] or 0) + 1
    name = actor.get_username() if isinstance(actor, User) else actor
    profile.versions.create(number=number, values=values, changes=changes, actor=name)


def values_at(profile: BatchingProfile, number: int) -> dict[str, Any]:
    """The values of a version, as `save_batching_profile` takes them. Raises NotFound."""
    version = profile.versions.filter(number=number).first()
    if version is None:
        raise NotFound(
            "version_unknown",
            _("%(name)s has no version %(number)s.") % {"name": profile.name, "number": number},
            field="version",
            remedy=_("Choose one of its versions."),
        )
    # Fields that came later have their defaults, as the migration gave them.
    return {field: value for field, value in version.values.items() if field in inputs.PROFILE_FIELDS}


def token_of(pk: int, changes: Mapping[str, list[Any]]) -> str:
    """A digest of the profile and of what changes from what to what."""
    text = json.dumps([pk, changes], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def version_dict(version: Any) -> dict[str, Any]:
    """JSON form of a version."""
    return {
        "number": version.number,
        "values": version.values,
        "changes": [
            {"field": field, "before": before, "after": after}
            for field, (before, after) in version.changes.items()
        ],
        "actor": version.actor,
        "created_at": version.created_at.isoformat(),
    }
