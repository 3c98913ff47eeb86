"""`manage.py gateway_request list|cancel`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.gateway import running, services
from apps.gateway.serialize import running_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _cancel(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.cancel_request(actor, options["request"])
    return {"cancelled": options["request"]}, [_("%(id)s is being ended.") % {"id": options["request"]}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "request_id": _("REQUEST"),
        "key": _("KEY"),
        "route": _("MODEL"),
        "phase": _("PHASE"),
        "priority": _("PRIORITY"),
        "tokens": _("TOKENS"),
        "began": _("BEGAN"),
    }
    return listed([running_dict(item) for item in running.snapshot()], columns)


class Command(ObjectCommand):
    """Requests that run or wait in a gateway."""

    help = "List and cancel requests that run."
    verbs = (
        Verb("list", _l("list requests that run or wait"), _list),
        Verb("cancel", _l("end a request"), _cancel, argument("request")),
    )
