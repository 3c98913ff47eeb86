"""`manage.py load_run start|stop|repeat|delete|list|compare|capacity|background`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

import yaml
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.core.exceptions import InvalidInput, NotPossibleNow
from apps.loadtests import background, comparing, generators, selectors, serialize, services
from apps.loadtests.domain.aiperf import UnreadableResults, beside, read_results
from apps.loadtests.domain.compare import DEFAULT_PRIMARY, METRICS
from apps.loadtests.models import LoadRun
from apps.serving import selectors as serving
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed, read_file
from apps.specs.services import Actor


def shown(row: LoadRun) -> Outcome:
    """One run, as the commands print it."""
    line = _("Run #%(number)d of %(target)s: %(state)s. %(sentence)s") % {
        "number": row.number,
        "target": row.target,
        "state": row.state,
        "sentence": row.sentence,
    }
    return serialize.run_dict(row), [line.strip(), *([row.remedy] if row.remedy else [])]


def _start(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    scenario = read_scenario(options["file"])
    return shown(
        services.start_scenario(
            actor,
            scenario,
            allow_production=options["allow_production"],
            generator=options["generator"],
        )
    )


def read_scenario(name: str) -> Any:
    """The scenario of a YAML file. Raises InvalidInput where it is no YAML."""
    text, where = read_file(name)
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput(
            "invalid_yaml",
            _("%(where)s is no YAML: %(error)s") % {"where": where, "error": error},
            remedy=_("Write a scenario as in the spec of a LoadTest."),
        ) from error


def _stop(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return shown(services.stop_run(actor, selectors.run(options["number"])))


def _repeat(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = selectors.run(options["number"])
    return shown(services.repeat_run(actor, row, generator=options["generator"]))


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_run(actor, selectors.run(options["number"]))
    return {"deleted": options["number"]}, [_("Run #%(number)d was deleted.") % {"number": options["number"]}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "number": _("NUMBER"),
        "state": _("STATE"),
        "target": _("TARGET"),
        "tokens": _("TOKENS/S"),
        "ttft": _("TTFT P99 MS"),
        "bound": _("GENERATOR-BOUND"),
        "sentence": _("WHAT HAPPENED"),
    }
    rows = []
    for row in selectors.runs():
        told = serialize.run_dict(row, short=True)
        figures = told["figures"] or {}
        rows.append(
            {
                **told,
                "tokens": _rounded(figures.get("output_tokens_per_second")),
                "ttft": _rounded(figures.get("ttft_p99_ms")),
                "bound": told["generator_bound"],
            }
        )
    return listed(rows, columns)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _compare(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    groups, labels = comparing.groups_of(options["arm"])
    found = comparing.compare_runs(groups, labels, options["primary"])
    return found, [found["verdict"], *found["notes"]]


def _capacity(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = selectors.run(options["number"])
    found = comparing.capacity_of(row, options["rate"], options["metric"], options["bound"])
    return found, [found["sentence"], *found["notes"]]


def _background(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = serving.deployment(options["deployment"])
    services.set_background_load(actor, row, options["users"], options["seconds"])
    found = background.state(row)
    text = _("%(users)d synthetic users ask %(name)s.") % {"users": found["users"], "name": row.name}
    return found, [text, *([found["sentence"]] if found["sentence"] else [])]


def _background_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("deployment")
    parser.add_argument("users", type=int, help=_("0 ends them"))
    parser.add_argument("--seconds", type=float, default=60.0, help=_("how long; default: 60"))


def _beside(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = selectors.run(options["number"])
    if options["file"] is None:
        return _beside_run(row)
    text, _where = read_file(options["file"])
    try:
        theirs = read_results(text)
    except UnreadableResults as error:
        raise InvalidInput(
            "invalid_results",
            str(error),
            field="file",
            remedy=_("Give the %(name)s that aiperf profile wrote.") % {"name": "profile_export_aiperf.json"},
        ) from error
    rows = beside(serialize.first_figures(row) or {}, theirs)
    return {"run": row.number, "aiperf": theirs.as_dict(), "beside": rows}, _beside_lines(rows)


def _beside_run(row: LoadRun) -> Outcome:
    found = generators.beside(row)
    if found is None:
        raise NotPossibleNow(
            "no_other_run",
            _("No run of the other generator has figures under the load of run #%(number)d.")
            % {"number": row.number},
            remedy=_("Repeat it with --generator, or give AIPerf's results as a file."),
        )
    head = _("Run #%(ours)d against #%(aiperf)d of AIPerf %(version)s") % found
    return found, [head, *(line for step in found["steps"] for line in _beside_lines(step["rows"]))]


def _beside_lines(rows: list[dict[str, Any]]) -> list[str]:
    columns = {"figure": _("FIGURE"), "ours": _("OURS"), "aiperf": "AIPERF", "apart": _("APART")}
    shown = [
        {
            "figure": each["figure"],
            **{key: f"{each[key]:.2f}" for key in ("ours", "aiperf")},
            "apart": None if each["apart"] is None else f"{each['apart']:+.1%}",
        }
        for each in rows
    ]
    return listed(shown, columns)[1]


def _beside_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("number", type=int)
    parser.add_argument(
        "file",
        nargs="?",
        help=_("AIPerf's profile_export_aiperf.json, - for standard input; default: a run of it here"),
    )


def _start_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", help=_("a scenario in YAML, - for standard input"))
    parser.add_argument(
        "--allow-production", action="store_true", help=_("lift the limits that spare production")
    )
    generator_argument(parser)


def generator_argument(parser: ArgumentParser, default: str = LoadRun.Generator.INFLIGHT) -> None:
    """Which program sends the load."""
    parser.add_argument(
        "--generator",
        default=default,
        choices=LoadRun.Generator.values,
        help=_("who sends the load: ours, or the AIPerf of the node"),
    )


def _repeat_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("number", type=int)
    generator_argument(parser, "")


def _compare_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("arm", nargs="+", help=_("numbers of runs, as 3,5,7, for each configuration"))
    parser.add_argument("--primary", default=DEFAULT_PRIMARY, choices=list(METRICS))


def _capacity_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("number", type=int)
    parser.add_argument("--rate", type=float, required=True, help=_("requests per second"))
    parser.add_argument(
        "--metric", default="ttft_p99_ms", choices=[name for name in METRICS if name.endswith("_ms")]
    )
    parser.add_argument("--bound", type=float, required=True, help=_("milliseconds"))


class Command(ObjectCommand):
    """Runs of load tests."""

    help = "Start, stop, repeat, compare and list runs of load."
    verbs = (
        Verb("start", _l("start a run of a scenario"), _start, _start_arguments),
        Verb("stop", _l("stop a run and keep what it measured"), _stop, argument("number", type=int)),
        Verb("repeat", _l("run the same scenario again"), _repeat, _repeat_arguments),
        Verb("delete", _l("delete a run with its records"), _delete, argument("number", type=int)),
        Verb("list", _l("list runs, newest first"), _list),
        Verb("compare", _l("compare groups of runs with the first"), _compare, _compare_arguments),
        Verb("beside", _l("AIPerf's results beside a run's"), _beside, _beside_arguments),
        Verb("capacity", _l("how many instances a load needs"), _capacity, _capacity_arguments),
        Verb(
            "background",
            _l("keep a deployment busy with synthetic users for a while"),
            _background,
            _background_arguments,
        ),
    )
