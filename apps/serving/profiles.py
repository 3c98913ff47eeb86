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
from apps.serving import inputs, versions
from apps.serving.models import BatchingProfile


def save_batching_profile(
    actor: User | str,
    data: Mapping[str, Any],
    instance: BatchingProfile | None = None,
    confirmed: str | None = None,
) -> BatchingProfile:
    """Create a profile, or change one (`instance`); keys that are left out keep their value or default.

    Each change is kept as a version. Running deployments keep the snapshot they were deployed with until they are
    deployed again. `confirmed` is the token of the plan that a person confirmed: the change is refused where it has
    become another one meanwhile.
    """
    require(actor, Action.CONFIGURE)
    created = instance is None
    # A row of its own: a refusal leaves the caller's as it was.
    profile = BatchingProfile.objects.get(pk=instance.pk) if instance is not None else BatchingProfile()
    before = versions.values_of(profile)
    changes = inputs.assign(profile, data, inputs.PROFILE_FIELDS)
    if confirmed is not None and changes and confirmed != versions.token_of(profile.pk, changes):
        raise NotPossibleNow(
            "change_is_another",
            _("The profile was changed meanwhile, so this is not the change that was confirmed."),
            remedy=_("Look at the difference again and confirm it."),
        )
    if not created and not changes:
        return profile
    with transaction.atomic():
        profile.save()
        if not created and not profile.versions.exists():
            # Profiles that are older than versions begin with what they said.
            versions.keep("inflight", profile, before, {})
        versions.keep(actor, profile, versions.values_of(profile), {} if created else changes)
        verb = "batchingprofile.created" if created else "batchingprofile.changed"
        audit.record(actor, verb, profile, detail={"changes": changes})
    return profile


def roll_back_batching_profile(
    actor: User | str, profile: BatchingProfile, number: int, confirmed: str | None = None
) -> BatchingProfile:
    """Give a profile the values of an earlier version; that is a change like any other, with a version of its own."""
    require(actor, Action.CONFIGURE)
    return save_batching_profile(actor, versions.values_at(profile, number), profile, confirmed)


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
