"""Build profiles and quantization profiles are saved and deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import IntegrityError, models, transaction
from django.db.models import ProtectedError
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit
from apps.core.exceptions import Finding, InvalidInput, NotFound, NotPossibleNow
from apps.engines.domain.build_spec import check_spec
from apps.engines.fields import BuildProfileInput, parse_profile, parse_quantization
from apps.engines.models import BuildProfile, QuantizationProfile
from apps.engines.quantization_selectors import quantization_profile
from apps.engines.shapes import NONE, BuildProfileFields, QuantizationProfileFields, of_builder
from apps.engines.trtllm_checks import composed_of, quantization_findings
from apps.registry.models import Checkpoint
from apps.registry.selectors import checkpoint as find_checkpoint
from apps.registry.services import check_name


def save_build_profile(
    actor: audit.Actor, data: Mapping[str, Any], instance: BuildProfile | None = None
) -> BuildProfile:
    """Make a build profile, or change `instance`; builds that exist keep what they were started with.

    `data`: name and shapes.BuildProfileFields (checkpoint as a name or a row). Raises InvalidInput with every finding
    of severity error; warnings do not refuse.
    """
    require(actor, Action.CONFIGURE)
    fields = parse_profile(data, instance)
    check_name(fields.name)
    profile = instance or BuildProfile()
    if fields.builder == BuildProfile.Builder.LLAMACPP:
        _refuse(check_spec(fields.builder, fields.quantization, fields.options))
    set_fields(profile, fields, _checkpoint(fields.checkpoint))
    if fields.builder == BuildProfile.Builder.TRTLLM:
        _refuse(composed_of(profile).findings)
    verb = "buildprofile.changed" if instance else "buildprofile.created"
    detail = {"name": fields.name, **of_builder(fields.model_dump(mode="json", exclude={"name"}))}
    _write(actor, verb, profile, detail, _("There already is a build profile %(name)s."))
    return profile


def document_findings(
    build: BuildProfileFields,
    checkpoint: Checkpoint | None,
    quantization: QuantizationProfile | QuantizationProfileFields | None,
) -> list[Finding]:
    """What a trtllm profile of these fields would be refused for, before anything is written.

    `checkpoint` is None where it is made by the same documents and nothing is known of it yet.
    """
    if isinstance(quantization, QuantizationProfileFields):
        given, quantization = quantization, QuantizationProfile(name="document")
        set_quantization(quantization, given)
    profile = BuildProfile(name="document")
    _set(profile, build, checkpoint or Checkpoint(name=build.checkpoint))
    profile.quantization_profile = quantization
    return [finding for finding in composed_of(profile).findings if finding.severity == "error"]


def set_fields(profile: BuildProfile, fields: BuildProfileInput, checkpoint: Checkpoint) -> None:
    """Write what was parsed on a row, unsaved. Raises InvalidInput where the quantization profile is unknown."""
    profile.name = fields.name
    _set(profile, fields, checkpoint)
    trtllm = fields.builder == BuildProfile.Builder.TRTLLM
    profile.quantization_profile = _quantization(fields.quantization) if trtllm else None


def _set(profile: BuildProfile, fields: BuildProfileFields, checkpoint: Checkpoint) -> None:
    trtllm = fields.builder == BuildProfile.Builder.TRTLLM
    profile.checkpoint, profile.builder = checkpoint, fields.builder
    profile.quantization = "" if trtllm else fields.quantization
    profile.recipe, profile.dtype = fields.recipe, fields.dtype
    for name in ("tp", "pp", "cp", "moe_ep"):
        setattr(profile, name, getattr(fields.parallel, name))
    for name in ("gpu", "gpus", "tensorrt_llm", "toolchain"):
        setattr(profile, name, getattr(fields.target, name))
    flags = {"build": fields.build, "convert": fields.convert}
    profile.options = {key: value for key, value in flags.items() if value} if trtllm else fields.options


def delete_build_profile(actor: audit.Actor, profile: BuildProfile) -> None:
    """Delete a build profile; its builds and engines stay. Raises NotPossibleNow while a deployment uses it."""
    require(actor, Action.CONFIGURE)
    _delete(
        actor,
        "buildprofile.deleted",
        profile,
        "build_profile_in_use",
        _("Give those another build profile, or delete them first."),
    )


def save_quantization_profile(
    actor: audit.Actor, data: Mapping[str, Any], instance: QuantizationProfile | None = None
) -> QuantizationProfile:
    """Make a quantization profile, or change `instance`; builds that exist keep what they were started with.

    `data`: name and shapes.QuantizationProfileFields. Raises InvalidInput with every finding of severity error, also
    where a build profile that uses it could not be built any more.
    """
    require(actor, Action.CONFIGURE)
    fields = parse_quantization(data, instance)
    check_name(fields.name)
    profile = instance or QuantizationProfile()
    profile.name = fields.name
    set_quantization(profile, fields)
    _refuse(quantization_findings(profile))
    verb = "quantizationprofile.changed" if instance else "quantizationprofile.created"
    detail = fields.model_dump(mode="json")
    _write(actor, verb, profile, detail, _("There already is a quantization profile %(name)s."))
    return profile


def set_quantization(profile: QuantizationProfile, fields: QuantizationProfileFields) -> None:
    """Write what was parsed on a row, unsaved."""
    plain = ("format", "kv_cache_dtype", "group_size", "smoothquant", "per_channel", "per_token")
    for name in (*plain, "quantize_lm_head", "weights", "options"):
        setattr(profile, name, getattr(fields, name))
    for name in ("dataset", "size", "max_seq_length", "batch_size"):
        setattr(profile, f"calib_{name}", getattr(fields.calibration, name))


def delete_quantization_profile(actor: audit.Actor, profile: QuantizationProfile) -> None:
    """Delete a quantization profile. Raises NotPossibleNow while a build profile uses it."""
    require(actor, Action.CONFIGURE)
    _delete(
        actor,
        "quantizationprofile.deleted",
        profile,
        "quantization_profile_in_use",
        _("Give those another quantization profile, or delete them first."),
    )


def _checkpoint(name: str) -> Checkpoint:
    try:
        return find_checkpoint(name)
    except NotFound as error:
        raise InvalidInput(error.code, error.sentence, field="checkpoint", remedy=error.remedy) from error


def _quantization(name: str) -> QuantizationProfile | None:
    if name == NONE:
        return None
    try:
        return quantization_profile(name)
    except NotFound as error:
        remedy = error.remedy
        if name in QuantizationProfile.Format.values:
            remedy = _("That is a format: make a quantization profile with it, and name that.")
        raise InvalidInput(error.code, error.sentence, field="quantization", remedy=remedy) from error


def _refuse(found: Iterable[Finding]) -> None:
    errors = tuple(finding for finding in found if finding.severity == "error")
    if errors:
        first = errors[0]
        raise InvalidInput(first.id, first.message, field=first.where, remedy=first.remedy, findings=errors)


def _write(
    actor: audit.Actor, verb: str, row: BuildProfile | QuantizationProfile, detail: dict[str, Any], taken: str
) -> None:
    try:
        with transaction.atomic():
            row.save()
            audit.record(actor, verb, row, detail=detail)
    except IntegrityError as error:
        raise InvalidInput(
            "name_taken",
            taken % {"name": row.name},
            field="name",
            remedy=_("Choose another name, or change that one."),
        ) from error


def _delete(actor: audit.Actor, verb: str, row: models.Model, code: str, remedy: str) -> None:
    try:
        with transaction.atomic():
            audit.record(actor, verb, row)
            row.delete()
    except ProtectedError as error:
        users = ", ".join(sorted(str(used) for used in error.protected_objects)[:5])
        raise NotPossibleNow(
            code,
            _("%(name)s is still used by: %(users)s.") % {"name": str(row), "users": users},
            remedy=remedy,
        ) from error
