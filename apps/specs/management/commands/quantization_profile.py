"""`manage.py quantization_profile list|delete`; they are made and changed with `apply`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.engines import services
from apps.engines.quantization_selectors import quantization_profile, quantization_profiles
from apps.engines.serialize import quantization_profile_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_quantization_profile(actor, quantization_profile(options["name"]))
    return {"deleted": options["name"]}, [_("%(name)s was deleted.") % {"name": options["name"]}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "name": _("NAME"),
        "format": _("FORMAT"),
        "kv_cache_dtype": _("KV CACHE"),
        "group_size": _("GROUP"),
    }
    return listed([quantization_profile_dict(row) for row in quantization_profiles()], columns)


class Command(ObjectCommand):
    """How TensorRT-LLM builds store weights and KV cache."""

    help = "List and delete quantization profiles; make and change them with apply."
    verbs = (
        Verb("list", _l("list quantization profiles"), _list),
        Verb("delete", _l("delete a profile that no build profile uses"), _delete, argument("name")),
    )
