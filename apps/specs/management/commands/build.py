"""`manage.py build start|cancel|retry|remedies|remedy|compare|list`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.engines import selectors, services
from apps.engines.build_lists import ACTIVE, BuildFilter, narrowed
from apps.engines.comparing import comparison
from apps.engines.models import Build
from apps.engines.remedies import remedies_of
from apps.engines.serialize import build_dict
from apps.engines.states import BUILD
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _shown(row: Build) -> Outcome:
    line = _("Build #%(number)d of %(profile)s: %(state)s. %(sentence)s") % {
        "number": row.number,
        "profile": row.profile or row.checkpoint.name,
        "state": row.state,
        "sentence": row.sentence,
    }
    return build_dict(row), [line.strip(), *([row.remedy] if row.remedy else [])]


def _start(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.start_build(actor, selectors.build_profile(options["profile"])))


def _cancel(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.cancel_build(actor, selectors.build(options["number"])))


def _retry(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.retry_build(actor, selectors.build(options["number"])))


def _remedies(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {"id": _("REMEDY"), "old": _("NOW"), "new": _("THEN"), "label": _("WHAT IT DOES")}
    return listed([change.as_dict() for change in remedies_of(selectors.build(options["number"]))], columns)


def _remedy(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.apply_remedy(actor, selectors.build(options["number"]), options["remedy"]))


def _compare(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    found = comparison(selectors.build(options["left"]), selectors.build(options["right"]))
    lines = [f"{each.section:<14} {each.name}: {each.left} -> {each.right}" for each in found.differences]
    return found.as_dict(), lines or [_("Nothing differs.")]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    wanted = BuildFilter(**{name: options[name] or "" for name in BuildFilter.model_fields})
    rows = narrowed(selectors.builds(), wanted)[: options["limit"]]
    columns = {
        "number": _("NUMBER"),
        "state": _("STATE"),
        "profile": _("PROFILE"),
        "quantization": _("TYPE"),
        "created_at": _("CREATED"),
        "sentence": _("WHAT HAPPENED"),
    }
    return listed([build_dict(row) for row in rows], columns)


def _remedy_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("number", type=int)
    parser.add_argument("remedy", help=_("its id, as `build remedies` lists it"))


def _compare_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("left", type=int)
    parser.add_argument("right", type=int)


def _narrowing(parser: ArgumentParser) -> None:
    parser.add_argument("--state", choices=(ACTIVE, *BUILD.values))
    for name in BuildFilter.model_fields:
        if name != "state":
            parser.add_argument(f"--{name}", help=BuildFilter.model_fields[name].description)
    parser.add_argument("--limit", type=int, default=100, help=_("most rows; default 100"))


class Command(ObjectCommand):
    """Attempts to make engines."""

    help = "Start, cancel, retry, remedy, compare and list builds."
    verbs = (
        Verb("start", _l("start a build of a profile"), _start, argument("profile")),
        Verb("cancel", _l("cancel a build"), _cancel, argument("number", type=int)),
        Verb("retry", _l("try a failed or cancelled build again"), _retry, argument("number", type=int)),
        Verb(
            "remedies",
            _l("list what may be changed after a failure"),
            _remedies,
            argument("number", type=int),
        ),
        Verb("remedy", _l("apply a remedy and build again"), _remedy, _remedy_arguments),
        Verb("compare", _l("say what differs between two builds"), _compare, _compare_arguments),
        Verb("list", _l("list builds, newest first"), _list, _narrowing),
    )
