"""`manage.py study compare|batching|cancel|delete|list|show`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.loadtests import selectors, serialize, services
from apps.loadtests.domain.batching_study import explain, table
from apps.loadtests.domain.compare import DEFAULT_PRIMARY, METRICS
from apps.loadtests.models import Study
from apps.loadtests.policy import REPEATS
from apps.serving import selectors as serving
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.management.commands.load_run import read_scenario
from apps.specs.services import Actor


def _shown(row: Study) -> Outcome:
    lines = [
        _("Study %(study)s: %(state)s. %(sentence)s")
        % {"study": row, "state": row.state, "sentence": row.sentence}
    ]
    if row.verdict:
        more = explain(row.verdict) if row.study_kind == Study.Kind.BATCHING else row.verdict["notes"]
        lines += [row.verdict["verdict"], "", *table(row.verdict), "", *more]
    return serialize.study_dict(row), [line.rstrip() for line in lines]


def _compare(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(
        services.start_comparison(
            actor,
            options["deployment"],
            read_scenario(options["file"]),
            repeats=options["repeats"],
            primary=options["primary"],
            allow_production=options["allow_production"],
        )
    )


def _batching(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(
        services.start_batching_study(
            actor,
            serving.deployment(options["deployment"]),
            full=options["full"],
            repeats=options["repeats"],
            primary=options["primary"],
            allow_production=options["allow_production"],
        )
    )


def _cancel(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.cancel_study(actor, selectors.study(options["number"])))


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_study(actor, selectors.study(options["number"]))
    said = _("Study #%(number)d was deleted.") % {"number": options["number"]}
    return {"deleted": options["number"]}, [said]


def _show(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(selectors.study(options["number"]))


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {"number": _("NUMBER"), "state": _("STATE"), "title": _("TITLE"), "verdict": _("VERDICT")}
    rows = [
        {**serialize.study_dict(row), "verdict": (row.verdict or {}).get("verdict")}
        for row in selectors.studies()
    ]
    return listed(rows, columns)


def _common(parser: ArgumentParser, repeats: int) -> None:
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--primary", default=DEFAULT_PRIMARY, choices=list(METRICS))
    parser.add_argument(
        "--allow-production", action="store_true", help=_("lift the limits that spare production")
    )


def _compare_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", help=_("a scenario in YAML, - for standard input"))
    parser.add_argument("deployment", nargs="+", help=_("deployments; the first is compared with"))
    _common(parser, REPEATS)


def _batching_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("deployment")
    parser.add_argument("--full", action="store_true", help=_("also delays and batch sizes"))
    _common(parser, 3)


class Command(ObjectCommand):
    """Studies: configurations side by side."""

    help = "Compare deployments or batching strategies with paired, interleaved runs."
    verbs = (
        Verb("compare", _l("compare deployments that serve"), _compare, _compare_arguments),
        Verb("batching", _l("compare the batching strategies on one engine"), _batching, _batching_arguments),
        Verb("cancel", _l("cancel a study"), _cancel, argument("number", type=int)),
        Verb("delete", _l("delete a study with its runs"), _delete, argument("number", type=int)),
        Verb("show", _l("show a study and its verdict"), _show, argument("number", type=int)),
        Verb("list", _l("list studies, newest first"), _list),
    )
