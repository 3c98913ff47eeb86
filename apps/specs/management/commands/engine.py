"""`manage.py engine list|check|look|import|rebuild|delete`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.engines import selectors, services
from apps.engines.compatibility import engine_hosts
from apps.engines.imports import look_at_engine
from apps.engines.serialize import build_dict, engine_dict
from apps.fleet import selectors as fleet
from apps.fleet.models import Node
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.delete_engine(actor, selectors.engine(options["fingerprint"]))
    return engine_dict(row), [_("The files of %(engine)s were deleted.") % {"engine": str(row)}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "fingerprint": _("FINGERPRINT"),
        "state": _("STATE"),
        "checkpoint": _("CHECKPOINT"),
        "quantization": _("TYPE"),
        "size_bytes": _("BYTES"),
    }
    return listed([engine_dict(row) for row in selectors.engines()], columns)


def _check(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    nodes = Node.objects.prefetch_related("toolchains", "gpus")
    answers = engine_hosts(selectors.engine(options["fingerprint"]), nodes)
    lines = []
    for node, answer in answers:
        lines.append(f"{node.node_id}: {answer.verdict}")
        lines += [f"  {found.message} {found.remedy}".rstrip() for found in answer.findings]
    return [{"node": node.node_id, **answer.as_dict()} for node, answer in answers], lines


def _look(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    found = look_at_engine(options["path"]).as_dict()
    lines = [
        f"{name}  {value}"
        for name, value in found.items()
        if name not in ("files", "findings") and value not in (None, {})
    ]
    lines += [f"{each['severity']}: {each['message']} {each['remedy']}" for each in found["findings"]]
    return found, lines


def _import(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    data = {name: options[name] for name in ("path", "checkpoint", "profile")}
    row = services.import_engine(actor, data)
    return engine_dict(row), [
        _("Imported as %(fingerprint)s; its files stay at %(path)s.")
        % {"fingerprint": row.fingerprint[:12], "path": options["path"]}
    ]


def _rebuild(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    engine, node = selectors.engine(options["fingerprint"]), fleet.node(options["node"])
    row = services.rebuild_for_node(actor, engine, node)
    return build_dict(row), [_("Build #%(number)s: %(state)s.") % {"number": row.number, "state": row.state}]


def _import_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", help=_("folder with config.json and rank files, inside the allowed ones"))
    parser.add_argument("--checkpoint", required=True, help=_("checkpoint that it was built from"))
    parser.add_argument("--profile", default="", help=_("build profile whose deployments shall use it"))


def _rebuild_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("fingerprint")
    parser.add_argument("node", help=_("node id"))


class Command(ObjectCommand):
    """Built artefacts."""

    help = "List engines, check where they run, import, rebuild, and delete those that nothing uses."
    verbs = (
        Verb("list", _l("list engines, newest first"), _list),
        Verb("check", _l("say where an engine runs"), _check, argument("fingerprint")),
        Verb("look", _l("inspect a folder with an engine"), _look, argument("path")),
        Verb("import", _l("take in an engine that was built elsewhere"), _import, _import_arguments),
        Verb("rebuild", _l("build the same for another node"), _rebuild, _rebuild_arguments),
        Verb("delete", _l("delete the files of an engine"), _delete, argument("fingerprint")),
    )
