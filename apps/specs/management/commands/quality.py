"""`manage.py quality start|answers|cancel|repeat|delete|list|show|gates|gate_delete|check|waive|end_waiver`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.accounts.roles import Action
from apps.engines import selectors as engines
from apps.loadtests import quality_gate, selectors, serialize, services
from apps.loadtests.domain.quality_words import table
from apps.loadtests.models import QualityRun
from apps.loadtests.policy import QUALITY_ANSWER_TOKENS, QUALITY_WINDOWS
from apps.serving import selectors as serving
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _shown(row: QualityRun) -> Outcome:
    line = _("Quality run %(row)s: %(state)s. %(sentence)s") % {
        "row": row,
        "state": row.state,
        "sentence": row.sentence,
    }
    lines = [line.strip(), *([row.remedy] if row.remedy else [])]
    if row.result:
        lines += ["", *table([(row.title, row.result)])]
    return serialize.quality_run_dict(row), lines


def _start(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    baseline = engines.engine(options["baseline"]) if options["baseline"] else None
    row = services.start_quality_run(
        actor,
        engines.engine(options["engine"]),
        baseline,
        windows=options["windows"],
        answer_tokens=options["answer_tokens"],
    )
    return _shown(row)


def _answers(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.start_answer_run(
        actor,
        serving.deployment(options["deployment"]),
        serving.deployment(options["baseline"]),
        answer_tokens=options["answer_tokens"],
    )
    return _shown(row)


def _cancel(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.cancel_quality_run(actor, selectors.quality_run(options["number"])))


def _repeat(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.repeat_quality_run(actor, selectors.quality_run(options["number"])))


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    number = options["number"]
    services.delete_quality_run(actor, selectors.quality_run(number))
    return {"deleted": number}, [_("Quality run #%(number)d was deleted.") % {"number": number}]


def _show(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(selectors.quality_run(options["number"]))


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "number": _("NUMBER"),
        "state": _("STATE"),
        "title": _("BUILD / SOURCE"),
        "ratio": _("PERPLEXITY RATIO"),
        "divergence": _("KL"),
        "top1": _("TOP-1"),
    }
    rows = []
    for row in selectors.quality_runs():
        told = serialize.quality_run_dict(row, short=True)
        figures = (told["result"] or {}).get("figures") or {}
        values = {name: (figures.get(name) or {}).get("value") for name in ("divergence", "top1")}
        ratio = (figures.get("perplexity_ratio") or {}).get("value")
        rounded = {name: None if value is None else round(value, 4) for name, value in values.items()}
        rows.append({**told, **rounded, "ratio": None if ratio is None else round(ratio, 4)})
    return listed(rows, columns)


def _gates(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "name": _("NAME"),
        "build": _("BUILD PROFILE"),
        "max_perplexity_ratio": _("PERPLEXITY RATIO"),
        "max_divergence": _("KL"),
        "min_top1": _("TOP-1"),
        "min_agreement": _("AGREEMENT"),
        "blocking": _("BLOCKS"),
    }
    return listed([serialize.quality_gate_dict(row) for row in selectors.quality_gates()], columns)


def _gate_delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_quality_gate(actor, selectors.quality_gate(options["name"]))
    return {"deleted": options["name"]}, [_("Gate %(name)s was deleted.") % {"name": options["name"]}]


def _check(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    engine = engines.engine(options["engine"])
    found = quality_gate.verdict_of(engine)
    lines = [f"{engine}: {found.word}", *(f"  {each.sentence}" for each in found.failing)]
    return quality_gate.verdict_dict(found), lines


def _waive(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    engine = engines.engine(options["engine"])
    services.waive_quality_gate(actor, engine, options["why"])
    return _check(actor, options)


def _end_waiver(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.end_quality_waiver(actor, engines.engine(options["engine"]))
    return _check(actor, options)


def _start_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("engine", help=_("fingerprint of an engine, or its beginning"))
    parser.add_argument(
        "--baseline", help=_("another engine of the checkpoint; default: the checkpoint itself")
    )
    parser.add_argument("--windows", type=int, default=QUALITY_WINDOWS, help=_("of 128 tokens of the text"))
    parser.add_argument("--answer-tokens", type=int, default=QUALITY_ANSWER_TOKENS)


def _answers_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("deployment", help=_("serves the build"))
    parser.add_argument("baseline", help=_("serves its source"))
    parser.add_argument("--answer-tokens", type=int, default=QUALITY_ANSWER_TOKENS)


def _waive_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("engine")
    parser.add_argument("--why", required=True, help=_("stands in the audit trail"))


class Command(ObjectCommand):
    """Builds against their sources."""

    help = "Measure what a build lost against its source, and what keeps one from being deployed."
    verbs = (
        Verb("start", _l("compare a build with its source"), _start, _start_arguments),
        Verb("answers", _l("compare the answers of two deployments"), _answers, _answers_arguments),
        Verb("cancel", _l("cancel a run"), _cancel, argument("number", type=int)),
        Verb("repeat", _l("run a comparison again"), _repeat, argument("number", type=int)),
        Verb("delete", _l("delete a run"), _delete, argument("number", type=int)),
        Verb("show", _l("show a run and its figures"), _show, argument("number", type=int)),
        Verb("list", _l("list runs, newest first"), _list),
        Verb("gates", _l("list gates"), _gates),
        Verb("gate_delete", _l("delete a gate"), _gate_delete, argument("name")),
        Verb("check", _l("whether an engine passes its gate"), _check, argument("engine")),
        Verb("waive", _l("let an engine pass"), _waive, _waive_arguments, Action.ADMINISTER),
        Verb("end_waiver", _l("let the gate hold again"), _end_waiver, argument("engine"), Action.ADMINISTER),
    )
