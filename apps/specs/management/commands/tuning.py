"""`manage.py tuning start|show|apply|cancel|delete|list`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

import yaml
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.core.exceptions import InvalidInput
from apps.loadtests import services, tuning_space
from apps.loadtests import tuning as tunings
from apps.loadtests.domain.tuner_goals import shown
from apps.loadtests.domain.tuner_report import words
from apps.loadtests.tuning_models import Tuning
from apps.loadtests.tuning_serialize import tuning_dict
from apps.serving import selectors as serving
from apps.serving.serialize import deployment_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed, read_file, table
from apps.specs.services import Actor


def _shown(row: Tuning) -> Outcome:
    value = tuning_dict(row)
    lines = [
        _("Tuning %(tuning)s: %(state)s, %(run)d of %(most)d trials. %(sentence)s")
        % {
            "tuning": row,
            "state": row.state,
            "run": value["trials_run"],
            "most": value["trials_most"],
            "sentence": row.sentence,
        }
    ]
    space = tuning_space.space_of(row)
    names = [*value["objectives"], *(each["figure"] for each in value["constraints"])]
    rows = [
        {
            "number": f"{'*' if each['on_front'] else ' '}{each['number']}",
            "state": each["state"],
            "source": each["source"],
            **{name: shown(name, (each["figures"] or {}).get(name)) for name in names if each["figures"]},
            "configuration": words(space.acting(each["configuration"])),
        }
        for each in value["trials"]
    ]
    columns = {
        "number": _("TRIAL"),
        "state": _("STATE"),
        "source": _("PROPOSED BY"),
        **{name: name for name in names},
    }
    if rows:
        lines += ["", *table(rows, {**columns, "configuration": _("CONFIGURATION")})]
    return value, [line.rstrip() for line in [*lines, *([""] if row.report else []), *row.report]]


def read_request(name: str) -> Any:
    """A tuning out of a YAML file, camelCase as in documents; - for standard input. Raises InvalidInput."""
    text, where = read_file(name)
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput(
            "yaml_unreadable",
            _("%(where)s is no YAML: %(error)s") % {"where": where, "error": str(error).splitlines()[0]},
            remedy=_("docs/tuning.md has an example."),
        ) from error


def _start(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    request = read_request(options["file"])
    return _shown(services.start_tuning(actor, request, allow_production=options["allow_production"]))


def _show(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(tunings.tuning(options["number"]))


def _cancel(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.cancel_tuning(actor, tunings.tuning(options["number"])))


def _apply(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.apply_tuning(actor, tunings.tuning(options["number"]), options["trial"])
    said = _(
        "%(name)s is being rolled out with the configuration of the trial; it has profile %(profile)s now."
    )
    return deployment_dict(serving.deployment(row.name)), [
        said % {"name": row.name, "profile": row.batching.name}
    ]


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_tuning(actor, tunings.tuning(options["number"]))
    return {"deleted": options["number"]}, [
        _("Tuning #%(number)d was deleted.") % {"number": options["number"]}
    ]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "number": _("NUMBER"),
        "deployment": _("DEPLOYMENT"),
        "state": _("STATE"),
        "trials_run": _("TRIALS"),
        "best": _("RESULT"),
    }
    rows = [
        {**found, "best": (found["report"] or [None])[0]}
        for found in (tuning_dict(row, short=True) for row in Tuning.objects.select_related("requested_by"))
    ]
    return listed(rows, columns)


def _start_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", help=_("a tuning in YAML, - for standard input"))
    parser.add_argument(
        "--allow-production", action="store_true", help=_("lift the limits that spare production")
    )


def _apply_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("number", type=int)
    parser.add_argument("--trial", type=int, help=_("default: the winner"))


class Command(ObjectCommand):
    """Tunings: searches for a better configuration."""

    help = "Search for a better configuration of a deployment, and apply it."
    verbs = (
        Verb("start", _l("start a tuning"), _start, _start_arguments),
        Verb(
            "show", _l("show a tuning, its trials and why it ended so"), _show, argument("number", type=int)
        ),
        Verb("apply", _l("apply the winner by a rolling update"), _apply, _apply_arguments),
        Verb("cancel", _l("cancel a tuning"), _cancel, argument("number", type=int)),
        Verb("delete", _l("delete a tuning with its runs"), _delete, argument("number", type=int)),
        Verb("list", _l("list tunings, newest first"), _list),
    )
