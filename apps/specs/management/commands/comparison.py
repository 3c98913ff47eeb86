"""`manage.py comparison list|create|run|export|repeat|rename|share|revoke|delete`; acts for the person of --user."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.chat import comparison_run, comparisons, exports, selectors, services, sharing
from apps.chat.compare_api import link_dict, short_dict
from apps.chat.compared_models import Comparison
from apps.core.exceptions import InvalidInput
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {"id": _("NUMBER"), "title": _("TITLE"), "engines": _("ENGINES"), "questions": _("QUESTIONS")}
    rows = [
        {**short_dict(row), "engines": ", ".join(comparisons.side_name(side) for side in row.sides)}
        for row in comparisons.comparisons(_person(actor))
    ]
    return listed(rows, columns)


def _create(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    data = {
        "sides": [_side(text) for text in options["engine"]],
        "prompts": options["prompt"],
        "prompt_set": options["prompt_set"],
        "conversation": options["conversation"],
        "mode": options["mode"],
        "title": options["title"],
        "chained": options["chained"],
        "params": {"max_tokens": options["max_tokens"]},
    }
    row = services.create_comparison(_person(actor), data)
    return _told(row, _("Made; manage.py comparison run %(number)d asks its questions.") % {"number": row.pk})


def _run(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    person = _person(actor)
    row = comparisons.comparison(person, options["number"])
    count = asyncio.run(comparison_run.run(person, row))
    return _told(row, _("%(count)d answers were asked for.") % {"count": count})


def _export(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = comparisons.comparison(actor, options["number"])
    return exports.comparison_value(row), [exports.export(row, options["format"]).rstrip()]


def _repeat(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    person = _person(actor)
    row = services.repeat_comparison(person, comparisons.comparison(person, options["number"]))
    return _told(row, _("Made as comparison %(number)d.") % {"number": row.pk})


def _rename(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    person = _person(actor)
    row = comparisons.comparison(person, options["number"])
    return _told(services.rename_comparison(person, row, options["title"]), _("Renamed."))


def _share(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    person = _person(actor)
    target = (
        selectors.conversation(person, options["number"])
        if options["conversation"]
        else comparisons.comparison(person, options["number"])
    )
    found = link_dict(services.share(person, target))
    return found, [found["path"]]


def _revoke(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    found = link_dict(services.revoke_link(_person(actor), sharing.link(options["link"])))
    return found, [_("The link is revoked.")]


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    person = _person(actor)
    services.delete_comparison(person, comparisons.comparison(person, options["number"]))
    return {"deleted": options["number"]}, [_("Comparison %(number)d was deleted.") % options]


def _told(row: Comparison, sentence: str) -> Outcome:
    return short_dict(row), [f"{row.pk}  {row.title}", sentence]


def _person(actor: Actor) -> User:
    if isinstance(actor, str):
        raise InvalidInput(
            "no_person",
            _("A comparison belongs to a person, and none is named."),
            field="user",
            remedy=_("Say whose it is with --user NAME."),
        )
    return actor


def _side(text: str) -> dict[str, Any]:
    if text.startswith("external:"):
        return {"external": text.removeprefix("external:")}
    name, _at, number = text.partition("@")
    return {"deployment": name, "revision": int(number) if number.isdecimal() else None}


def _create_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "engine", nargs="+", help=_("a deployment, deployment@revision, or external:name; 2 to 4")
    )
    parser.add_argument("--prompt", action="append", default=[], help=_("a question; may be repeated"))
    parser.add_argument("--prompt-set", help=_("ask the questions of this prompt set"))
    parser.add_argument("--conversation", type=int, help=_("replay this conversation"))
    parser.add_argument("--mode", choices=Comparison.Mode.values, default=Comparison.Mode.TOGETHER.value)
    parser.add_argument("--chained", action="store_true", help=_("the questions are one conversation"))
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--title", default="")


def _export_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("number", type=int)
    parser.add_argument("--format", choices=list(exports.FORMATS), default="markdown")


def _rename_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("number", type=int)
    parser.add_argument("title")


def _share_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("number", type=int)
    parser.add_argument("--conversation", action="store_true", help=_("the number is a conversation's"))


class Command(ObjectCommand):
    """The same questions to several engines, side by side."""

    help = "Compare engines by the same questions. Each comparison belongs to a person: give --user."
    verbs = (
        Verb("list", _l("list one's comparisons"), _list),
        Verb("create", _l("begin a comparison"), _create, _create_arguments),
        Verb("run", _l("ask what is not answered yet"), _run, argument("number", type=int)),
        Verb("export", _l("print it as Markdown or JSON"), _export, _export_arguments),
        Verb("repeat", _l("the same as a new one"), _repeat, argument("number", type=int)),
        Verb("rename", _l("give it another title"), _rename, _rename_arguments),
        Verb("share", _l("make the link by which others see it"), _share, _share_arguments),
        Verb("revoke", _l("end a link"), _revoke, argument("link")),
        Verb("delete", _l("delete it with its answers"), _delete, argument("number", type=int)),
    )
