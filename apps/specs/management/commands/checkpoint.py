"""`manage.py checkpoint register|change|inspect|delete|list`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.registry import selectors, services
from apps.registry.models import Checkpoint
from apps.registry.serialize import checkpoint_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _source(parser: ArgumentParser) -> None:
    parser.add_argument("name")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--demo", metavar="NAME", help=_("a checkpoint that make up fetched"))
    which.add_argument("--path", help=_("absolute path on this node"))
    which.add_argument("--huggingface", metavar="OWNER/NAME", help=_("a repository on this node"))
    parser.add_argument("--revision", default="main", help=_("of the repository; default main"))


def _source_of(options: Mapping[str, Any]) -> dict[str, Any]:
    if options["huggingface"]:
        return {"huggingface": {"repo": options["huggingface"], "revision": options["revision"]}}
    return {"demo": options["demo"]} if options["demo"] else {"path": options["path"]}


def _shown(row: Checkpoint) -> Outcome:
    line = _("%(name)s: %(state)s. %(sentence)s") % {
        "name": row.name,
        "state": row.state,
        "sentence": row.sentence,
    }
    return checkpoint_dict(row), [line.strip(), *([row.remedy] if row.remedy else [])]


def _register(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.register_checkpoint(actor, options["name"], _source_of(options)))


def _change(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.change_source(actor, selectors.checkpoint(options["name"]), _source_of(options)))


def _inspect(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.inspect_again(actor, selectors.checkpoint(options["name"])))


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_checkpoint(actor, selectors.checkpoint(options["name"]))
    return {"deleted": options["name"]}, [
        _("%(name)s is forgotten; its files stay.") % {"name": options["name"]}
    ]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    rows = [checkpoint_dict(row) for row in selectors.checkpoints()]
    return listed(
        rows, {"name": _("NAME"), "state": _("STATE"), "format": _("FORMAT"), "size_bytes": _("BYTES")}
    )


class Command(ObjectCommand):
    """Weights as their vendors ship them."""

    help = "Register, inspect, delete and list checkpoints."
    verbs = (
        Verb("register", _l("register weights under a name and inspect them"), _register, _source),
        Verb("change", _l("point a checkpoint at other weights"), _change, _source),
        Verb("inspect", _l("read the headers again"), _inspect, argument("name")),
        Verb("delete", _l("forget a checkpoint that nothing uses"), _delete, argument("name")),
        Verb("list", _l("list checkpoints"), _list),
    )
