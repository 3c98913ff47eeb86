"""Turning what a form, the API or a YAML document says into checked columns; errors name field and remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _
from pydantic import ValidationError

from apps.core import clock
from apps.core.exceptions import InvalidInput
from apps.core.names import RESERVED_NAMES
from apps.gateway import selectors
from apps.gateway.models import ExternalDeployment
from apps.gateway.shapes import Target
from apps.serving.models import Deployment

LIMITS = ("requests_per_minute", "tokens_per_minute", "concurrent_requests", "max_tokens")
KEY_FIELDS = ("name", "owner", "routes", "priority", "expires_at", *LIMITS)
ROUTE_FIELDS = (
    "name",
    "targets",
    "fallback",
    "queue_size",
    "queue_seconds",
    "record_bodies",
    "body_days",
    *LIMITS,
)
EXTERNAL_FIELDS = ("name", "base_url", "model", "slots", "max_sequence_tokens")
LONGEST_KEY_NAME = 100


def key_name(name: object) -> str:
    """The name of a key without blanks around it."""
    text = name.strip() if isinstance(name, str) else ""
    if not text or len(text) > LONGEST_KEY_NAME or not text.isprintable():
        raise InvalidInput(
            "key_name",
            _("A key needs a name of 1 to %(limit)d characters.") % {"limit": LONGEST_KEY_NAME},
            field="name",
            remedy=_("Name the application that will use it."),
        )
    return text


def key_routes(routes: object) -> list[str] | None:
    """Public names without repetition, None for all; each must be one that exists."""
    if routes is None:
        return None
    names = [routes] if isinstance(routes, str) else list(routes) if isinstance(routes, Iterable) else []
    if not names:
        raise InvalidInput(
            "key_routes",
            _("A key that may use no model is of no use."),
            field="routes",
            remedy=_("Choose at least one public name, or all."),
        )
    for name in names:
        check_public_name(name, "routes")
    return sorted(set(names))


def expiry(moment: datetime | None) -> datetime | None:
    """A time that lies ahead, or None."""
    if moment is not None and moment <= clock.now():
        raise InvalidInput(
            "key_expired",
            _("The expiry lies in the past."),
            field="expires_at",
            remedy=_("Choose a later time, or leave it empty for a key without expiry."),
        )
    return moment


def check_public_name(name: object, field: str) -> None:
    """Refuse a name under which nothing can be called."""
    known = selectors.public_names()
    if name not in known:
        raise InvalidInput(
            "route_unknown",
            _("No model is called %(name)s.") % {"name": name},
            field=field,
            remedy=_("Those that exist: %(names)s.") % {"names": ", ".join(known[:20]) or _("none yet")},
        )


def check_new_name(name: object, *, external: bool) -> str:
    """A name for a route or an external deployment."""
    text = str(name or "")
    if text in RESERVED_NAMES:
        raise InvalidInput(
            "name_reserved",
            _("%(name)s is a name that Triton keeps for itself.") % {"name": text},
            field="name",
            remedy=_("Choose another name."),
        )
    if external and Deployment.objects.filter(name=text).exists():
        raise InvalidInput(
            "name_taken",
            _("There is a deployment %(name)s already.") % {"name": text},
            field="name",
            remedy=_("Choose another name; a route can put both behind one public name."),
        )
    return text


def targets(given: object, own_name: str) -> list[dict[str, Any]]:
    """Checked targets of a route; empty means the deployment of the route's own name, which must exist."""
    found = [_target(item, index) for index, item in enumerate(given if isinstance(given, list) else [])]
    if not found:
        if own_name not in {*_names(Deployment), *_names(ExternalDeployment)}:
            raise InvalidInput(
                "targets_missing",
                _("There is no deployment %(name)s that this route could mean by its name.")
                % {"name": own_name},
                field="targets",
                remedy=_("Give the route at least one target."),
            )
        return []
    if not any(item.get("weight", 1.0) > 0 for item in found):
        raise InvalidInput(
            "targets_weight",
            _("All targets have the weight 0: no request would go anywhere."),
            field="targets",
            remedy=_("Give one of them a weight above 0."),
        )
    _check_repeated(found)
    return found


def _target(item: object, index: int) -> dict[str, Any]:
    where = f"targets.{index}"
    try:
        shape = item if isinstance(item, Target) else Target.model_validate(item)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join([where, *map(str, first["loc"])])
        raise InvalidInput(
            "target_form",
            _("Target %(number)d: %(reason)s.")
            % {"number": index + 1, "reason": first["msg"].removeprefix("Value error, ")},
            field=place,
            remedy=_("Write it as {deployment: NAME, weight: 1} or {external: NAME}."),
        ) from error
    kind: type[Deployment | ExternalDeployment] = Deployment if shape.deployment else ExternalDeployment
    name = shape.deployment or shape.external
    if not kind._default_manager.filter(name=name).exists():
        raise InvalidInput(
            "target_unknown",
            _("There is no %(kind)s %(name)s.") % {"kind": kind._meta.verbose_name, "name": name},
            field=f"{where}.{'deployment' if shape.deployment else 'external'}",
            remedy=_("Those that exist: %(names)s.")
            % {"names": ", ".join(sorted(_names(kind))[:20]) or _("none yet")},
        )
    return shape.as_dict()


def _check_repeated(found: list[dict[str, Any]]) -> None:
    seen: set[tuple[Any, ...]] = set()
    for index, item in enumerate(found):
        identity = (item.get("deployment"), item.get("external"), item.get("max_prompt_tokens"))
        if identity in seen:
            raise InvalidInput(
                "target_repeated",
                _("%(name)s is a target twice.") % {"name": identity[0] or identity[1]},
                field=f"targets.{index}",
                remedy=_("Name it once, with the sum of the weights."),
            )
        seen.add(identity)


def _names(kind: type[Deployment | ExternalDeployment]) -> set[str]:
    return set(kind._default_manager.values_list("name", flat=True))


def fallback(name: object, own_name: str, fallbacks: Mapping[str, str]) -> str:
    """A public name that exists and does not lead back here; empty for none."""
    text = str(name or "")
    if not text:
        return ""
    if text != own_name:
        check_public_name(text, "fallback")
    passed, at = [own_name], text
    while at:
        if at in passed:
            raise InvalidInput(
                "fallback_loop",
                _("The fallback leads back to where it began: %(way)s.") % {"way": " > ".join([*passed, at])},
                field="fallback",
                remedy=_("Choose a model that does not fall back to this one."),
            )
        passed.append(at)
        at = fallbacks.get(at, "")
    return text
