"""`manage.py engine list|delete`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.engines import selectors, services
from apps.engines.serialize import engine_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.delete_engine(actor, selectors.engine(options["fingerprint"]))
    return engine_dict(row), [_("The files of %(engine)s were deleted.") % {"engine": str(row)}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "fingerprint": _("FINGERPRINT"),
        "state": _("STATE"),
        "checkpoint": _("CHECKPOINT"),
        "quantization": _("TYPE"),
        "size_bytes": _("BYTES"),
    }
    return listed([engine_dict(row) for row in selectors.engines()], columns)


class Command(ObjectCommand):
    """Built artefacts."""

    help = "List engines, and delete those that nothing uses."
    verbs = (
        Verb("list", _l("list engines, newest first"), _list),
        Verb("delete", _l("delete the files of an engine"), _delete, argument("fingerprint")),
    )
