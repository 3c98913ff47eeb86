"""`manage.py advice show|apply`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.control import selectors, services
from apps.control.serialize import report_dict
from apps.serving import selectors as serving
from apps.serving.serialize import deployment_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb
from apps.specs.services import Actor


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("deployment")
    parser.add_argument("--seconds", type=float, default=selectors.WINDOW, help=_("how far to look back"))


def _apply_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("deployment")
    parser.add_argument("id", help=_("id of the advice, as show prints it"))


def _show(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    report = selectors.report(serving.deployment(options["deployment"]), options["seconds"])
    lines = []
    for each in report.opinion.advice:
        lines += [f"{each.id}: {each.sentence}", f"  {each.action}"]
        if each.change:
            lines.append(f"  {each.change.field}: {each.change.before} -> {each.change.after}")
    lines += [_("cannot say: %(title)s: %(why)s") % {"title": each.title, "why": each.why}
              for each in report.opinion.unknown]  # fmt: skip
    return report_dict(report), lines or [_("Nothing to change.")]


def _apply(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.apply_advice(actor, serving.deployment(options["deployment"]), options["id"])
    return deployment_dict(serving.deployment(row.name)), [
        _("%(name)s is deployed with the change.") % {"name": row.name}
    ]


class Command(ObjectCommand):
    """The advisor."""

    help = "Show what the advisor would change in a deployment, with its evidence, and apply it."
    verbs = (
        Verb("show", _l("show advice with its evidence"), _show, _arguments),
        Verb("apply", _l("make the change and deploy it"), _apply, _apply_arguments),
    )
