"""`manage.py batching_profile list|delete`; they are made and changed with `apply`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.serving import selectors, services
from apps.serving.serialize import batching_profile_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_batching_profile(actor, selectors.batching_profile(options["name"]))
    return {"deleted": options["name"]}, [_("%(name)s was deleted.") % {"name": options["name"]}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "name": _("NAME"),
        "strategy": _("STRATEGY"),
        "max_batch_size": _("BATCH"),
        "max_seq_len": _("TOKENS"),
        "max_queue_size": _("QUEUE"),
    }
    return listed([batching_profile_dict(row) for row in selectors.batching_profiles()], columns)


class Command(ObjectCommand):
    """How requests share an engine."""

    help = "List and delete batching profiles; make and change them with apply."
    verbs = (
        Verb("list", _l("list batching profiles"), _list),
        Verb("delete", _l("delete a profile that no deployment uses"), _delete, argument("name")),
    )
