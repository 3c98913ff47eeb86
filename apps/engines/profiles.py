"""Build profiles are saved and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit
from apps.core.exceptions import InvalidInput, NotFound, NotPossibleNow
from apps.engines.domain.build_spec import check_spec
from apps.engines.fields import parse_profile
from apps.engines.models import BuildProfile
from apps.registry.selectors import checkpoint as find_checkpoint
from apps.registry.services import check_name


def save_build_profile(
    actor: audit.Actor, data: Mapping[str, Any], instance: BuildProfile | None = None
) -> BuildProfile:
    """Make a build profile, or change `instance`; builds that exist keep what they were started with.

    `data`: name, checkpoint (name or row), builder, quantization, options. Raises InvalidInput naming the field.
    """
    require(actor, Action.CONFIGURE)
    fields = parse_profile(data, instance)
    check_name(fields.name)
    findings = tuple(check_spec(fields.builder, fields.quantization, fields.options))
    if findings:
        first = findings[0]
        raise InvalidInput(first.id, first.message, field=first.where, remedy=first.remedy, findings=findings)
    try:
        checkpoint = find_checkpoint(fields.checkpoint)
    except NotFound as error:
        raise InvalidInput(error.code, error.sentence, field="checkpoint", remedy=error.remedy) from error
    profile = instance or BuildProfile()
    verb = "buildprofile.changed" if instance else "buildprofile.created"
    profile.name, profile.checkpoint, profile.builder = fields.name, checkpoint, fields.builder
    profile.quantization, profile.options = fields.quantization, fields.options
    try:
        with transaction.atomic():
            profile.save()
            audit.record(actor, verb, profile, detail=fields.model_dump())
    except IntegrityError as error:
        raise InvalidInput(
            "name_taken",
            _("There already is a build profile %(name)s.") % {"name": fields.name},
            field="name",
            remedy=_("Choose another name, or change that one."),
        ) from error
    return profile


def delete_build_profile(actor: audit.Actor, profile: BuildProfile) -> None:
    """Delete a build profile; its builds and engines stay. Raises NotPossibleNow while a deployment uses it."""
    require(actor, Action.CONFIGURE)
    try:
        with transaction.atomic():
            audit.record(actor, "buildprofile.deleted", profile)
            profile.delete()
    except ProtectedError as error:
        users = ", ".join(sorted(str(row) for row in error.protected_objects)[:5])
        raise NotPossibleNow(
            "build_profile_in_use",
            _("%(name)s is still used by: %(users)s.") % {"name": profile.name, "users": users},
            remedy=_("Give those another build profile, or delete them first."),
        ) from error
