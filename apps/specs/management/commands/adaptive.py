"""`manage.py adaptive show|set|off`: adaptive batching of a deployment."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.gateway import services
from apps.gateway.adaptive import AdaptiveFields
from apps.gateway.adaptive_api import adaptive_dict
from apps.serving import selectors as serving
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, table
from apps.specs.services import Actor

_NUMBERS = {"ttft_ms": float, "itl_ms": float}


def _shown(name: str) -> Outcome:
    value = adaptive_dict(name)
    state = _("on") if value["enabled"] else _("off")
    lines = [_("Adaptive batching of %(name)s is %(state)s.") % {"name": name, "state": state}]
    if value["enabled"]:
        lines.append(
            _("Each server gets %(admitted)s requests at once, %(queue)s may wait. %(sentence)s")
            % {
                "admitted": _("all") if value["admitted"] is None else value["admitted"],
                "queue": _("all") if value["queue"] is None else value["queue"],
                "sentence": value["sentence"],
            }
        )
    lines += [f"  {key}: {'-' if found is None else found}" for key, found in value["settings"].items()]
    if value["moves"]:
        columns = {
            "at": _("AT"),
            "lever": _("LEVER"),
            "before": _("FROM"),
            "after": _("TO"),
            "sentence": _("WHY"),
        }
        lines += ["", *table(value["moves"], columns)]
    return value, lines


def _show(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(options["deployment"])


def _set(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    given = {name: options[name] for name in AdaptiveFields.model_fields if options.get(name) is not None}
    services.save_adaptive(actor, serving.deployment(options["deployment"]), {**given, "enabled": True})
    return _shown(options["deployment"])


def _off(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.save_adaptive(actor, serving.deployment(options["deployment"]), {"enabled": False})
    return _shown(options["deployment"])


def _set_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("deployment")
    for name in AdaptiveFields.model_fields:
        if name != "enabled":
            parser.add_argument(f"--{name.replace('_', '-')}", dest=name, type=_NUMBERS.get(name, int))


class Command(ObjectCommand):
    """Adaptive batching: what a controller moves within bounds."""

    help = "Let a controller move a deployment's admitted requests and queue within bounds, or stop it."
    verbs = (
        Verb("show", _l("show settings, levers and moves"), _show, argument("deployment")),
        Verb("set", _l("switch it on, with these bounds"), _set, _set_arguments),
        Verb("off", _l("switch it off; its bounds are gone"), _off, argument("deployment")),
    )
