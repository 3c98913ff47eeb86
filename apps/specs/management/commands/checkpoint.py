"""`manage.py checkpoint register|change|inspect|cancel|retry|delete|list`."""

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
    which.add_argument("--huggingface", metavar="OWNER/NAME", help=_("a repository, fetched from the hub"))
    which.add_argument("--archive", metavar="PATH", help=_("a .tar, .tar.gz or .zip on this node, unpacked"))
    parser.add_argument("--revision", default="main", help=_("of the repository; default main"))
    _files(parser)
    parser.add_argument("--pickle", action="store_true", help=_("accept weights in pickle files (.bin, .pt)"))


def _files(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="NAME",
        help=_("of the repository, or a pattern; repeatable"),
    )


def _name_and_files(parser: ArgumentParser) -> None:
    parser.add_argument("name")
    _files(parser)


def _deletion(parser: ArgumentParser) -> None:
    parser.add_argument("name")
    parser.add_argument("--files", action="store_true", help=_("remove what Inflight fetched for it, too"))


def _source_of(options: Mapping[str, Any]) -> dict[str, Any]:
    hub = {"repo": options["huggingface"], "revision": options["revision"], "files": options["file"]}
    given: dict[str, Any] = {
        "huggingface": hub if options["huggingface"] else None,
        **{kind: options[kind] for kind in ("demo", "path", "archive")},
    }
    return {"pickle": options["pickle"], **{kind: value for kind, value in given.items() if value}}


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


def _cancel(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.cancel_fetch(actor, selectors.checkpoint(options["name"])))


def _retry(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.retry_fetch(actor, selectors.checkpoint(options["name"]), options["file"]))


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_checkpoint(actor, selectors.checkpoint(options["name"]), files=options["files"])
    said = (
        _("%(name)s is forgotten; fetched files go too.")
        if options["files"]
        else _("%(name)s is forgotten; its files stay.")
    )
    return {"deleted": options["name"]}, [said % {"name": options["name"]}]


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
        Verb("cancel", _l("stop fetching a checkpoint"), _cancel, argument("name")),
        Verb("retry", _l("fetch again what failed, or choose a file"), _retry, _name_and_files),
        Verb("delete", _l("forget a checkpoint that nothing uses"), _delete, _deletion),
        Verb("list", _l("list checkpoints"), _list),
    )
