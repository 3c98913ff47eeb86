"""`manage.py instance restart|list`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.serving import selectors, services, states
from apps.serving.serialize import instance_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _restart(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.restart_instance(actor, selectors.instance(options["uid"]))
    return instance_dict(row), [_("%(uid)s finishes its requests and is started again.") % {"uid": row.uid}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    rows = selectors.instances().exclude(state=states.GONE)
    if options["deployment"]:
        rows = rows.filter(deployment__name=options["deployment"])
    columns = {
        "uid": _("ID"),
        "state": _("STATE"),
        "deployment": _("DEPLOYMENT"),
        "revision": _("REVISION"),
        "node": _("NODE"),
        "pid": _("PROCESS"),
        "sentence": _("WHAT HAPPENED"),
    }
    return listed([instance_dict(row) for row in rows], columns)


class Command(ObjectCommand):
    """Triton processes."""

    help = "Restart and list servers."
    verbs = (
        Verb("restart", _l("end a server gently and start another in its place"), _restart, argument("uid")),
        Verb("list", _l("list servers that are not gone"), _list, argument("--deployment", metavar="NAME")),
    )
