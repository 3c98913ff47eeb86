"""How hubs are asked: a mirror's address and a token. The token is written, never read back by a person."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit, clock, secrets
from apps.core.exceptions import InvalidInput
from apps.core.outbound import check_url
from apps.registry.models import HubAccess

# Printable ASCII without spaces: what an Authorization header can carry.
TOKEN = re.compile(r"[!-~]{8,500}")
FIELDS = frozenset({"endpoint", "token"})


@dataclass(frozen=True, slots=True)
class Access:
    """What a worker needs to ask a hub. `endpoint` None: the library's own. The token never shows in a repr."""

    endpoint: str | None
    token: str | None = field(repr=False)


def save_hub_access(actor: audit.Actor, data: Mapping[str, Any]) -> HubAccess:
    """Change mirror and token; needs the right to administer.

    `data`: endpoint (a URL, empty: the library's own hub) and token (a text; None or an empty text removes it); a key
    that is absent changes nothing. Raises InvalidInput naming the field.
    """
    require(actor, Action.ADMINISTER)
    unknown = sorted(set(data) - FIELDS)
    if unknown:
        raise InvalidInput(
            "unknown_field",
            _("There is no setting %(name)s.") % {"name": unknown[0]},
            field=unknown[0],
            remedy=_("The settings are endpoint and token."),
        )
    with transaction.atomic():
        row = HubAccess.objects.select_for_update().first() or HubAccess()
        changed = []
        if "endpoint" in data:
            row.endpoint = _endpoint(data["endpoint"])
            changed.append("endpoint")
        if "token" in data:
            token = _token(data["token"])
            row.token_encrypted = secrets.encrypt(token) if token else ""
            row.token_set_at = clock.now() if token else None
            changed.append("token" if token else "token removed")
        row.pk = 1
        row.save()
        audit.record(actor, "hub_access.changed", row, detail={"changed": changed, "endpoint": row.endpoint})
    return row


def access() -> Access:
    """Mirror and token in the clear, for the worker alone. Raises core.secrets.SecretUnreadable."""
    row = HubAccess.objects.first()
    if row is None:
        return Access(None, None)
    token = secrets.decrypt(row.token_encrypted) if row.token_encrypted else None
    return Access(row.endpoint or None, token)


def _endpoint(value: object) -> str:
    text = str(value or "").strip().rstrip("/")
    if text:
        check_url(text, settings.INFLIGHT_OUTBOUND_ALLOW, field="endpoint")
        if "?" in text:
            raise InvalidInput(
                "url_refused",
                _("The address of a mirror has no query."),
                field="endpoint",
                remedy=_("Leave out what follows the question mark."),
            )
    return text


def _token(value: object) -> str:
    if value in (None, ""):
        return ""
    text = value.strip() if isinstance(value, str) else ""
    if not TOKEN.fullmatch(text):
        raise InvalidInput(
            "token_invalid",
            _("That is no token: it holds spaces or other characters, or is too short."),
            field="token",
            remedy=_("Copy the token whole from the hub's settings; it usually begins with hf_."),
        )
    return text
