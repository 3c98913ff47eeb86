"""`manage.py retention plan|clean|pin|unpin|policy`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.accounts.roles import Action
from apps.engines import retention, services
from apps.engines.domain.retention import KINDS
from apps.specs.management.command import ObjectCommand, Outcome, Verb, listed
from apps.specs.services import Actor

NEVER = "never"


def _plan(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "id": _("WHAT"),
        "size_bytes": _("BYTES"),
        "remove": _("GOES"),
        "told": _("WHY"),
    }
    return listed([each.as_dict() for each in retention.plan_clean_up()], columns)


def _clean(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    cleaned = services.clean_up(actor, options["items"] or None)
    lines = [f"{each.id}  {each.item.size_bytes}" for each in cleaned.removed]
    lines += [f"{each.id}: {why}" for each, why in cleaned.failed]
    lines.append(_("%(bytes)s bytes were freed.") % {"bytes": cleaned.bytes})
    return cleaned.as_dict(), lines


def _pin(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _set(actor, options, True)


def _unpin(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _set(actor, options, False)


def _set(actor: Actor, options: Mapping[str, Any], pinned: bool) -> Outcome:
    services.set_pinned(actor, options["kind"], options["key"], pinned)
    text = _("%(kind)s %(key)s is kept from every clean-up.") if pinned else _("%(kind)s %(key)s is let go.")
    told = {"kind": options["kind"], "key": options["key"]}
    return {**told, "pinned": pinned}, [text % told]


def _policy(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    given = {name: _value(options[name]) for name in _DAYS if options[name] is not None}
    if options["keep_newest"] is not None:
        given["keep_newest"] = options["keep_newest"]
    if options["enabled"] is not None:
        given["enabled"] = options["enabled"] == "on"
    row = services.save_retention_policy(actor, given) if given else retention.policy_row()
    told = retention.policy_dict(row)
    return told, [f"{name}  {NEVER if value is None else value}" for name, value in told.items()]


_DAYS = ("engines_days", "stages_days", "logs_days")


def _value(text: str) -> int | str | None:
    return None if text == NEVER else int(text) if text.isdecimal() else text


def _clean_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("items", nargs="*", help=_("ids of `retention plan`; default: all that go"))


def _pin_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("key", help=_("fingerprint, key of the stage, or number of the build"))


def _policy_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--enabled", choices=("on", "off"), help=_("clean up once a day"))
    for name in _DAYS:
        parser.add_argument(f"--{name.replace('_', '-')}", dest=name, help=_("days, or never"))
    parser.add_argument("--keep-newest", type=int, help=_("newest engines kept of each profile"))


class Command(ObjectCommand):
    """What is kept on the disk."""

    help = "Show what a clean-up would remove, clean up, pin, and set how long things are kept."
    verbs = (
        Verb("plan", _l("the dry run: what would go, and why the rest stays"), _plan),
        Verb("clean", _l("remove it"), _clean, _clean_arguments, needs=Action.OPERATE),
        Verb("pin", _l("keep from every clean-up"), _pin, _pin_arguments, needs=Action.OPERATE),
        Verb("unpin", _l("let go again"), _unpin, _pin_arguments, needs=Action.OPERATE),
        Verb("policy", _l("show or change how long things are kept"), _policy, _policy_arguments),
    )
