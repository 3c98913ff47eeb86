"""`manage.py build_profile list|delete`; they are made and changed with `apply`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.engines import selectors, services
from apps.engines.serialize import build_profile_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_build_profile(actor, selectors.build_profile(options["name"]))
    return {"deleted": options["name"]}, [_("%(name)s was deleted.") % {"name": options["name"]}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "name": _("NAME"),
        "checkpoint": _("CHECKPOINT"),
        "builder": _("BUILDER"),
        "quantization": _("TYPE"),
    }
    return listed([build_profile_dict(row) for row in selectors.build_profiles()], columns)


class Command(ObjectCommand):
    """How engines are made."""

    help = "List and delete build profiles; make and change them with apply."
    verbs = (
        Verb("list", _l("list build profiles"), _list),
        Verb("delete", _l("delete a profile that no deployment uses"), _delete, argument("name")),
    )
