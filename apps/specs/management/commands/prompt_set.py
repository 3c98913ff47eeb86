"""`manage.py prompt_set list|show|delete`; prompt sets are made and changed with `apply`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.chat import prompt_sets, services
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {"name": _("NAME"), "questions": _("QUESTIONS"), "description": _("DESCRIPTION")}
    rows = [
        {**prompt_sets.prompt_set_dict(row), "questions": len(row.prompts)}
        for row in prompt_sets.prompt_sets()
    ]
    return listed(rows, columns)


def _show(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = prompt_sets.prompt_set(options["name"])
    return prompt_sets.prompt_set_dict(row), list(row.prompts)


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_prompt_set(actor, prompt_sets.prompt_set(options["name"]))
    return {"deleted": options["name"]}, [_("%(name)s was deleted.") % {"name": options["name"]}]


class Command(ObjectCommand):
    """Named lists of questions."""

    help = "List and delete prompt sets; make and change them with apply."
    verbs = (
        Verb("list", _l("list prompt sets"), _list),
        Verb("show", _l("print the questions of one"), _show, argument("name")),
        Verb("delete", _l("delete one; comparisons keep their questions"), _delete, argument("name")),
    )
