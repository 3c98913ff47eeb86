"""Turning what a form, the API or a YAML document says into checked columns; errors name field and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models
from django.utils.translation import gettext as _

from apps.core.exceptions import Finding, InvalidInput
from apps.core.names import RESERVED_NAMES
from apps.engines.models import BuildProfile
from apps.serving import place_shapes, policies, selectors
from apps.serving.autoscale_policy import check_scaling
from apps.serving.domain.trtllm import settings as settings_of_trtllm
from apps.serving.models import BatchingProfile

DEVICES = ("any", "cpu", "gpu")
PROFILE_FIELDS = (
    "name",
    "strategy",
    "max_batch_size",
    "max_queue_delay_microseconds",
    "max_seq_len",
    "max_queue_size",
    "threads",
    "preferred_batch_sizes",
    "queue_timeout_microseconds",
    "engine",
    "preserve_ordering",
    "timeout_action",
    "allow_timeout_override",
    "priority_classes",
    "default_priority_class",
    "trtllm",
)
DEPLOYMENT_FIELDS = (
    "name",
    "build_profile",
    "repository",
    "repository_model",
    "batching",
    "replicas",
    "placement",
    "slo",
    "rollout",
    "scaling",
)
Row = TypeVar("Row", bound=models.Model)


def assign(row: Row, data: Mapping[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    """Set columns on a row and run its validators; returns {field: [old, new]} of those that differ.

    Saves nothing. Raises InvalidInput for a key that is not in `fields` and for every refused value.
    """
    for key in data:
        if key not in fields:
            raise InvalidInput(
                "unknown_field",
                _("%(field)s is not a field of this object.") % {"field": key},
                field=key,
                remedy=_("The fields are: %(fields)s.") % {"fields": ", ".join(fields)},
            )
    before = {key: _plain(getattr(row, key)) if row.pk else None for key in data}
    for key, value in data.items():
        setattr(row, key, value)
    check_columns(row)
    after = {key: _plain(getattr(row, key)) for key in data}
    return {key: [before[key], after[key]] for key in data if before[key] != after[key]}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, models.Model) else value


def check_columns(row: models.Model) -> None:
    """Run the model's own validators; raises InvalidInput with one finding for each refused field."""
    try:
        row.full_clean()
    except ValidationError as error:
        found = tuple(
            Finding("invalid_value", "error", str(message), "" if field == NON_FIELD_ERRORS else field)
            for field, messages in error.message_dict.items()
            for message in messages
        )
        raise InvalidInput(
            "invalid_value",
            found[0].message,
            field=found[0].where,
            remedy=_("Correct the value and save again."),
            findings=found,
        ) from error


def check_name(name: str) -> None:
    """Refuse names that Triton reads as folders of its own."""
    if name in RESERVED_NAMES:
        raise InvalidInput(
            "name_reserved",
            _("%(name)s is a name that Triton keeps for itself.") % {"name": name},
            field="name",
            remedy=_("Choose another name."),
        )


def resolve_deployment(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same data with names of profiles replaced by their rows, and the placement checked."""
    found = dict(data)
    if isinstance(found.get("build_profile"), str):
        found["build_profile"] = _build_profile(found["build_profile"])
    if isinstance(found.get("batching"), str):
        found["batching"] = selectors.batching_profile(found["batching"])
    if isinstance(found.get("repository"), str):
        found["repository"] = selectors.model_repository(found["repository"])
    needed: list[tuple[str, type[models.Model]]] = [("batching", BatchingProfile)]
    if found.get("repository") is None:
        needed.insert(0, ("build_profile", BuildProfile))
    for key, kind in needed:
        if key in found and not isinstance(found[key], kind):
            raise InvalidInput(
                "required",
                _("A deployment needs a %(kind)s.") % {"kind": kind._meta.verbose_name},
                field=key,
                remedy=_("Choose one."),
            )
    if "placement" in found:
        found["placement"] = check_placement(found["placement"])
    if "slo" in found:
        found["slo"] = policies.check_slo(found["slo"])
    if "rollout" in found:
        found["rollout"] = policies.check_rollout(found["rollout"])
    if "scaling" in found:
        found["scaling"] = check_scaling(found["scaling"])
    return found


def what_is_served(build: str | None, repository: str | None, model: str | None) -> dict[str, Any]:
    """The columns for what a document names: a build profile, or a repository and one of its models."""
    if repository is None:
        return {"build_profile": build}
    return {"repository": repository, **({"repository_model": model} if model else {})}


def _build_profile(name: str) -> BuildProfile:
    found = BuildProfile.objects.filter(name=name).first()
    if found is None:
        raise InvalidInput(
            "build_profile_unknown",
            _("There is no build profile %(name)s.") % {"name": name},
            field="build_profile",
            remedy=_("Create it under Configuration, or name another."),
        )
    return found


def check_placement(placement: Any) -> dict[str, Any]:
    """Placement with its defaults: {"device": "any"}; where given share (1..100), trtllm ({setting: value}) and what
    place_shapes takes."""
    if placement in (None, ""):
        placement = {}
    if not isinstance(placement, Mapping):
        raise InvalidInput(
            "placement_form",
            _("The placement is not a mapping."),
            field="placement",
            remedy=_('Write it as {"device": "any"}.'),
        )
    unknown = sorted(set(placement) - {"device", "share", "trtllm"} - place_shapes.KEYS)
    if unknown:
        raise InvalidInput(
            "unknown_field",
            _("%(field)s is not part of a placement.") % {"field": unknown[0]},
            field=f"placement.{unknown[0]}",
            remedy=_("A placement holds device, share, trtllm and what docs/fleet.md lists."),
        )
    device = placement.get("device", "any")
    if device not in DEVICES:
        raise InvalidInput(
            "placement_device",
            _("The device %(device)s is not known.") % {"device": device},
            field="placement.device",
            remedy=_("Choose one of: any, cpu, gpu."),
        )
    found: dict[str, Any] = {"device": device, **place_shapes.check_place(placement)}
    chosen = placement.get("trtllm")
    if chosen:
        if not isinstance(chosen, Mapping):
            raise InvalidInput(
                "placement_form",
                _("placement.trtllm is not a mapping."),
                field="placement.trtllm",
                remedy=_("Write it as {'gpu_device_ids': '0,1'}."),
            )
        if settled := settings_of_trtllm.check(chosen, settings_of_trtllm.PLACED, "placement.trtllm"):
            found["trtllm"] = settled
    share = placement.get("share")
    if share is not None:
        if isinstance(share, bool) or not isinstance(share, int) or not 1 <= share <= 100:
            raise InvalidInput(
                "placement_share",
                _("The share %(share)s is not a whole number from 1 to 100.") % {"share": share},
                field="placement.share",
                remedy=_("Give the share of the slot in hundredths, or leave it out."),
            )
        found["share"] = share
    return found
