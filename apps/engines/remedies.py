"""A remedy of a failed build, applied: the profile is changed and built again. What there is: domain/remedies.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit
from apps.core.exceptions import NotFound, NotPossibleNow
from apps.engines import states
from apps.engines.builds import start_build
from apps.engines.domain.remedies import Change, Situation, changed, changes
from apps.engines.models import Build, BuildProfile
from apps.engines.profiles import save_build_profile


def diagnosis_of(build: Build) -> tuple[str, Mapping[str, Any]]:
    """(id, facts) of why a build failed: its log's diagnosis, else the reason alone."""
    found = build.diagnosis or {}
    found = found.get("diagnosis", found) or {}
    return str(found.get("id") or build.reason), found.get("facts") or {}


def remedies_of(build: Build) -> list[Change]:
    """What may be changed in the profile of a failed build, as the profile stands now; empty where nothing helps."""
    profile = build.profile
    if build.state != states.FAILED or profile is None:
        return []
    diagnosis, facts = diagnosis_of(build)
    valid_tp = profile.checkpoint.facts.get("valid_tp") or ()
    situation = Situation(_fields(profile), facts, tuple(size for size in valid_tp if isinstance(size, int)))
    return changes(diagnosis, profile.builder, situation)


def apply_remedy(actor: audit.Actor, build: Build, remedy: str) -> Build:
    """Change the profile of a failed build as the remedy says, and start a build of it. Both or neither happen.

    Builds that exist keep what they were started with, so the profile's history stays readable. Raises NotPossibleNow
    for a build that did not fail or has lost its profile, NotFound for a remedy that it does not have, and what
    save_build_profile and start_build raise.
    """
    require(actor, Action.CONFIGURE)
    require(actor, Action.OPERATE)
    profile = build.profile
    if build.state != states.FAILED or profile is None:
        raise NotPossibleNow(
            "no_remedy",
            _("Build #%(number)s has no remedy to apply: it is %(state)s.")
            % {"number": build.number, "state": build.state}
            if profile is not None
            else _("The profile of build #%(number)s is gone.") % {"number": build.number},
            remedy=_("Start a build of a profile instead."),
        )
    chosen = next((change for change in remedies_of(build) if change.id == remedy), None)
    if chosen is None:
        raise NotFound(
            "remedy_unknown",
            _("Build #%(number)s has no remedy %(remedy)s (any more).")
            % {"number": build.number, "remedy": remedy},
            field="remedy",
            remedy=_("Reload the page: the profile may have been changed meanwhile."),
        )
    with transaction.atomic():
        saved = save_build_profile(actor, changed(_fields(profile), chosen), profile)
        audit.record(actor, "build.remedied", build, detail=chosen.as_dict())
        return start_build(actor, saved)


def _fields(profile: BuildProfile) -> dict[str, Any]:
    """The profile's columns by name; rows that it refers to by theirs."""
    found: dict[str, Any] = {}
    for column in profile._meta.concrete_fields:
        value = getattr(profile, column.name)
        found[column.name] = getattr(value, "name", value) if column.is_relation else value
    return found
