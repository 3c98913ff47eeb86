"""`manage.py batching_profile list|delete|versions|rollback`; they are made and changed with `apply`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.accounts.roles import Action, require
from apps.serving import changes, selectors, services, versions
from apps.serving.serialize import batching_profile_dict
from apps.serving.versions import version_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_batching_profile(actor, selectors.batching_profile(options["name"]))
    return {"deleted": options["name"]}, [_("%(name)s was deleted.") % {"name": options["name"]}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "name": _("NAME"),
        "strategy": _("STRATEGY"),
        "max_batch_size": _("BATCH"),
        "max_seq_len": _("TOKENS"),
        "max_queue_size": _("QUEUE"),
    }
    return listed([batching_profile_dict(row) for row in selectors.batching_profiles()], columns)


def _versions(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    require(actor, Action.VIEW)
    rows = [version_dict(row) for row in selectors.batching_profile(options["name"]).versions.all()]
    for row in rows:
        row["changed"] = ", ".join(change["field"] for change in row["changes"])
    columns = {"number": _("VERSION"), "actor": _("BY"), "created_at": _("WHEN"), "changed": _("CHANGED")}
    return listed(rows, columns)


def _roll_back(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    profile = selectors.batching_profile(options["name"])
    number = options["version"]
    values = versions.values_at(profile, number)
    planned = changes.plan_batching_profile(actor, values, profile)
    row = services.roll_back_batching_profile(actor, profile, number)
    words = _("%(name)s says again what version %(number)s said.") % {"name": row.name, "number": number}
    return batching_profile_dict(row), [words, *planned.sentences]


def _of_version(parser: ArgumentParser) -> None:
    parser.add_argument("name")
    parser.add_argument("version", type=int)


class Command(ObjectCommand):
    """How requests share an engine."""

    help = "List, roll back and delete batching profiles; make and change them with apply."
    verbs = (
        Verb("list", _l("list batching profiles"), _list),
        Verb(
            "versions", _l("list what a profile said, who changed it and when"), _versions, argument("name")
        ),
        Verb(
            "rollback",
            _l("give a profile the values of an earlier version"),
            _roll_back,
            _of_version,
        ),
        Verb("delete", _l("delete a profile that no deployment uses"), _delete, argument("name")),
    )
