"""`manage.py load_test list|run|delete`; load tests are made and changed with `apply`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.loadtests import selectors, serialize, services
from apps.serving import selectors as serving
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.management.commands.load_run import generator_argument, shown
from apps.specs.services import Actor


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {"name": _("NAME"), "target": _("TARGET"), "mode": _("LOAD"), "runs": _("RUNS")}
    rows = [
        {
            **serialize.load_test_dict(row),
            "target": row.scenario["target"],
            "mode": row.scenario["load"]["mode"],
            "runs": row.runs.count(),
        }
        for row in selectors.load_tests()
    ]
    return listed(rows, columns)


def _run(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    test = selectors.load_test(options["name"])
    return shown(
        services.start_run(
            actor, test, allow_production=options["allow_production"], generator=options["generator"]
        )
    )


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_load_test(actor, selectors.load_test(options["name"]))
    return {"deleted": options["name"]}, [_("%(name)s was deleted.") % {"name": options["name"]}]


def _production(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    marked = options["mark"] == "on"
    services.set_production(actor, serving.deployment(options["deployment"]), marked)
    text = _("%(name)s is marked as production.") if marked else _("%(name)s is not marked as production.")
    value = {"deployment": options["deployment"], "production": marked}
    return value, [text % {"name": options["deployment"]}]


def _run_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name")
    parser.add_argument(
        "--allow-production", action="store_true", help=_("lift the limits that spare production")
    )
    generator_argument(parser)


def _production_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("deployment")
    parser.add_argument("mark", choices=["on", "off"])


class Command(ObjectCommand):
    """Load tests under a name."""

    help = "List load tests, run them, delete them; make and change them with apply."
    verbs = (
        Verb("list", _l("list load tests"), _list),
        Verb("run", _l("start a run"), _run, _run_arguments),
        Verb("delete", _l("delete a load test; its runs stay"), _delete, argument("name")),
        Verb(
            "production",
            _l("mark a deployment as production, which load tests spare"),
            _production,
            _production_arguments,
        ),
    )
