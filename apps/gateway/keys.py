"""Services for keys. Callers reach them as `gateway.services`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit, clock, ids
from apps.core.exceptions import InvalidInput, NotPossibleNow
from apps.gateway import inputs
from apps.gateway.models import GatewayKey
from apps.serving.inputs import assign

KEY_PREFIX = "ik-"
# The public beginning and the first letters of the random part: enough to tell keys apart, too little to guess one.
SHOWN_LETTERS = 9


def digest_of(raw: str) -> str:
    """SHA-256 in hexadecimal. A key is 256 random bits, so no slow hash is needed."""
    return hashlib.sha256(raw.encode("utf-8", "surrogateescape")).hexdigest()


def create_key(
    actor: User | str, data: Mapping[str, Any], owner: User | None = None
) -> tuple[GatewayKey, str]:
    """Make a key. Returns the row and the text, which is shown once.

    Keys of `data`: name, routes (public names, None: all), priority, expires_at, requests_per_minute,
    tokens_per_minute, concurrent_requests, max_tokens. Operators make keys of their own (`owner` None: the actor),
    administrators also for others. Raises InvalidInput naming the field.
    """
    person = actor if isinstance(actor, User) else None
    owner = owner or person
    if owner is None:
        raise InvalidInput(
            "key_owner",
            _("A key belongs to an account."),
            field="owner",
            remedy=_("Name the account that answers for it."),
        )
    own = person is not None and owner.pk == person.pk
    require(actor, Action.CONFIGURE if own else Action.ADMINISTER)
    raw = KEY_PREFIX + ids.secret(32)
    row = GatewayKey(owner=owner, created_by=person, prefix=raw[:SHOWN_LETTERS], digest=digest_of(raw))
    changes = assign(row, _checked({"name": "", **data}), inputs.KEY_FIELDS)
    with transaction.atomic():
        row.save()
        told = {name: new for name, (_old, new) in _plain(changes).items() if name != "name"}
        audit.record(actor, "gatewaykey.created", row, detail={"owner": owner.get_username(), **told})
    return row, raw


def change_key(actor: User | str, key: GatewayKey, data: Mapping[str, Any]) -> GatewayKey:
    """Change name, models, priority, expiry or limits of a key; what is left out stays. The text stays the same."""
    require(actor, Action.CONFIGURE)
    row = GatewayKey.objects.select_related("owner").get(pk=key.pk)
    if row.revoked_at is not None:
        raise NotPossibleNow(
            "key_revoked", _("%(key)s is revoked.") % {"key": row}, remedy=_("Create another key.")
        )
    changes = assign(row, _checked(data, row), inputs.KEY_FIELDS)
    if changes:
        with transaction.atomic():
            row.save()
            audit.record(actor, "gatewaykey.changed", row, detail={"changes": _plain(changes)})
    return row


def revoke_key(actor: User | str, key: GatewayKey) -> GatewayKey:
    """End a key: every gateway process refuses it within 2 s. Owners end their own, operators any.

    Requests that run go on to their end. A second call changes nothing.
    """
    own = isinstance(actor, User) and actor.pk == key.owner_id
    require(actor, Action.VIEW if own else Action.OPERATE)
    with transaction.atomic():
        row = GatewayKey.objects.select_related("owner").get(pk=key.pk)
        if row.revoked_at is None:
            row.revoked_at = clock.now()
            row.save(update_fields=["revoked_at", "updated_at"])
            audit.record(actor, "gatewaykey.revoked", row, detail={"owner": row.owner.get_username()})
    return row


def _checked(data: Mapping[str, Any], row: GatewayKey | None = None) -> dict[str, Any]:
    found = dict(data)
    if "name" in found:
        found["name"] = inputs.key_name(found["name"])
    if "routes" in found and (row is None or found["routes"] != row.routes):
        found["routes"] = inputs.key_routes(found["routes"])
    if "expires_at" in found and (row is None or found["expires_at"] != row.expires_at):
        found["expires_at"] = inputs.expiry(found["expires_at"])
    return found


def _plain(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes as JSON takes them."""
    return {
        name: [value.isoformat() if hasattr(value, "isoformat") else value for value in pair]
        for name, pair in changes.items()
    }
