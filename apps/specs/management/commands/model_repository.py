"""`manage.py model_repository import|check|plan|adopt|delete|list|from_line`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.serving import selectors, services
from apps.serving.adoption import adoption_plan
from apps.serving.models import ModelRepository
from apps.serving.serialize import batching_profile_dict, deployment_dict, model_repository_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _source(parser: ArgumentParser) -> None:
    parser.add_argument("name")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--path", help=_("folder on this node, inside an allowed one"))
    which.add_argument("--archive", metavar="PATH", help=_("a .tar, .tar.gz or .zip on this node, unpacked"))


def _adoption(parser: ArgumentParser) -> None:
    parser.add_argument("name")
    parser.add_argument("--as", dest="deployment", required=True, metavar="NAME", help=_("public name"))
    parser.add_argument("--model", default="", help=_("which model answers"))
    parser.add_argument("--profile", default="", help=_("name of the new batching profile"))
    parser.add_argument("--checkpoint", default="", help=_("of its TensorRT-LLM engines, to list them"))
    parser.add_argument("--replicas", type=int, default=1)


def _name_and_model(parser: ArgumentParser) -> None:
    parser.add_argument("name")
    parser.add_argument("--model", default="", help=_("which model answers"))


def _line(parser: ArgumentParser) -> None:
    parser.add_argument("name", help=_("of the new batching profile"))
    parser.add_argument("command", help=_("the pasted line, in quotes"))


def _shown(row: ModelRepository) -> Outcome:
    found = model_repository_dict(row)
    lines = [_("%(name)s: %(count)s models in %(folder)s.") % {
        "name": row.name, "count": len(found["models"]), "folder": row.folder,
    }]  # fmt: skip
    for finding in found["findings"]:
        where = " ".join(part for part in (finding["model"], finding["where"]) if part)
        lines += [f"{finding['severity']}: {where}: {finding['message']}", f"  {finding['remedy']}"]
    return found, lines


def _import(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    source = {kind: options[kind] for kind in ("path", "archive") if options[kind]}
    return _shown(services.import_repository(actor, options["name"], source))


def _check(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.check_again(actor, selectors.model_repository(options["name"])))


def _plan(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    found = adoption_plan(selectors.model_repository(options["name"]), options["model"])
    lines = [_("%(entry)s answers; settings are those of %(tuned)s.") % {
        "entry": found.entry, "tuned": found.tuned,
    }]  # fmt: skip
    lines += [f"  {one.where} = {one.value} -> {one.field}" for one in found.mapped]
    for finding in (*found.blockers, *found.notes):
        lines += [f"{finding.severity}: {finding.message}", f"  {finding.remedy}"]
    return found.as_dict(), lines


def _adopt(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    data = {key: options[key] for key in ("model", "profile", "checkpoint", "replicas")}
    repository = selectors.model_repository(options["name"])
    row = services.adopt_repository(actor, repository, options["deployment"], data)
    said = _("%(name)s serves %(what)s once it is deployed.") % {"name": row.name, "what": row.serves}
    return deployment_dict(selectors.deployment(row.name)), [said]


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_repository(actor, selectors.model_repository(options["name"]))
    return {"deleted": options["name"]}, [_("%(name)s is forgotten.") % {"name": options["name"]}]


def _from_line(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    profile, findings = services.profile_of_line(actor, options["name"], options["command"])
    lines = [_("The batching profile %(name)s is saved.") % {"name": profile.name}]
    lines += [f"{found['severity']}: {found['message']}" for found in findings]
    return {"profile": batching_profile_dict(profile), "findings": findings}, lines


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    rows = [model_repository_dict(row) for row in selectors.model_repositories()]
    return listed(
        rows, {"name": _("NAME"), "files": _("FILES"), "size_bytes": _("BYTES"), "folder": _("FOLDER")}
    )


class Command(ObjectCommand):
    """Model repositories that somebody already had."""

    help = "Import, check, adopt, delete and list model repositories."
    verbs = (
        Verb("import", _l("bring in a repository under a name and check it"), _import, _source),
        Verb("check", _l("read its files anew"), _check, argument("name")),
        Verb("plan", _l("what adopting it would do"), _plan, _name_and_model),
        Verb("adopt", _l("make a deployment of it"), _adopt, _adoption),
        Verb("from_line", _l("make a batching profile of a fill_template.py line"), _from_line, _line),
        Verb("delete", _l("forget a repository that no deployment serves"), _delete, argument("name")),
        Verb("list", _l("list imported repositories"), _list),
    )
