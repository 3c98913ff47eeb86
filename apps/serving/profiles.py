"""Services for batching profiles. Callers reach them as `serving.services`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit
from apps.core.exceptions import NotPossibleNow
from apps.serving import inputs
from apps.serving.models import BatchingProfile


def save_batching_profile(
    actor: User | str, data: Mapping[str, Any], instance: BatchingProfile | None = None
) -> BatchingProfile:
    """Create a profile, or change one (`instance`); keys that are left out keep their value or default.

    Running deployments keep the snapshot they were deployed with until they are deployed again.
    """
    require(actor, Action.CONFIGURE)
    created = instance is None
    # A row of its own: a refusal leaves the caller's as it was.
    profile = BatchingProfile.objects.get(pk=instance.pk) if instance is not None else BatchingProfile()
    changes = inputs.assign(profile, data, inputs.PROFILE_FIELDS)
    if not created and not changes:
        return profile
    with transaction.atomic():
        profile.save()
        verb = "batchingprofile.created" if created else "batchingprofile.changed"
        audit.record(actor, verb, profile, detail={"changes": changes})
    return profile


def delete_batching_profile(actor: User | str, profile: BatchingProfile) -> None:
    """Delete a profile that no deployment uses."""
    require(actor, Action.CONFIGURE)
    users = list(profile.deployments.values_list("name", flat=True))
    if users:
        raise NotPossibleNow(
            "batching_profile_in_use",
            _("The profile is used by: %(names)s.") % {"names": ", ".join(users)},
            remedy=_("Give these deployments another batching profile first."),
            facts={"deployments": users},
        )
    with transaction.atomic():
        audit.record(actor, "batchingprofile.deleted", profile)
        profile.delete()
