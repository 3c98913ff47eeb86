"""Tokens that let a host join: made by an administrator, shown once, good for one host and a short time.

A token is exchanged for what a worker must know (join_handover.py). That holds the addresses and passwords of the
database and of Redis, so only administrators make tokens, and each is spent in the statement that accepts it.
"""

from __future__ import annotations

import re
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.accounts.services import digest_of
from apps.core import audit, clock, ids
from apps.core.exceptions import InflightError, InvalidInput, NotFound
from apps.fleet import join_handover
from apps.fleet.inputs import check_labels
from apps.fleet.join_handover import Handover
from apps.fleet.models import JoinToken

PREFIX = "ifj_"
SHOWN_LETTERS = 10
SHORTEST, LONGEST, USUAL = 1, 24 * 60, 60
# How long tokens that can do nothing any more stay in the list.
KEPT = timedelta(days=30)
NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
HOST_LIMIT = 200


class JoinRefused(InflightError):
    """The token is unknown, spent, expired or revoked; which of them is not told to who has no good one."""

    status = 401


def join_tokens() -> QuerySet[JoinToken]:
    """Tokens that are good or were lately, newest first."""
    return JoinToken.objects.select_related("created_by").filter(expires_at__gt=clock.now() - KEPT)


def join_token(pk: int) -> JoinToken:
    """One token by its number. Raises NotFound."""
    found = JoinToken.objects.filter(pk=pk).first()
    if found is None:
        raise NotFound("join_token_unknown", _("There is no join token %(id)s.") % {"id": pk})
    return found


def state_of(token: JoinToken) -> str:
    """used, revoked, expired or active."""
    if token.used_at is not None:
        return "used"
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at <= clock.now() else "active"


def create_join_token(
    actor: audit.Actor, *, labels: dict[str, str] | None = None, minutes: int = USUAL
) -> tuple[JoinToken, str]:
    """Make a token for one host. Returns the row and the text, which is shown once. Needs administer.

    `labels` become those of the node. Raises InvalidInput naming `minutes` (1 to 1440) or `labels`, and
    NotPossibleNow where other hosts could not reach the database or Redis of this installation.
    """
    require(actor, Action.ADMINISTER)
    if not SHORTEST <= minutes <= LONGEST:
        raise InvalidInput(
            "join_minutes",
            _("A join token is good for %(least)d to %(most)d minutes.")
            % {"least": SHORTEST, "most": LONGEST},
            field="minutes",
            remedy=_("An hour is usual: the first start of a worker takes some minutes."),
        )
    kept = check_labels(labels or {})
    join_handover.require_reachable()
    raw = PREFIX + ids.secret()
    with transaction.atomic():
        token = JoinToken.objects.create(
            prefix=raw[:SHOWN_LETTERS],
            digest=digest_of(raw),
            labels=kept,
            created_by=actor if isinstance(actor, User) else None,
            expires_at=clock.now() + timedelta(minutes=minutes),
        )
        audit.record(actor, "jointoken.created", token, detail={"minutes": minutes, "labels": kept})
    return token, raw


def revoke_join_token(actor: audit.Actor, token: JoinToken) -> JoinToken:
    """End a token that no host has used. A second call, or one after its use, changes nothing. Needs administer."""
    require(actor, Action.ADMINISTER)
    with transaction.atomic():
        open_ones = JoinToken.objects.filter(pk=token.pk, used_at__isnull=True, revoked_at__isnull=True)
        if open_ones.update(revoked_at=clock.now()):
            audit.record(actor, "jointoken.revoked", token)
    token.refresh_from_db()
    return token


def install_command(raw: str) -> str:
    """The one command of a new host. The token is in the shell's environment, in no argument of any program."""
    url = settings.INFLIGHT_WEB_URL.rstrip("/")
    return f"curl -fsS {url}{reverse('fleet:installer')} | INFLIGHT_JOIN_TOKEN={raw} python3 - {url}"


def check_join_token(raw: str) -> JoinToken:
    """The token behind a text that is still good; it is not spent. Raises JoinRefused."""
    found = (
        JoinToken.objects.filter(_good(), digest=digest_of(raw)).first() if raw.startswith(PREFIX) else None
    )
    if found is None:
        raise JoinRefused(
            "join_refused",
            _("This join token is unknown, expired, revoked, or another host has used it."),
            remedy=_("Make a new one on the page of the fleet; each is good for one host."),
        )
    return found


def redeem_join_token(raw: str, node_id: str, hostname: str) -> Handover:
    """Spend a token: what the worker of `node_id` must know. Two hosts with one token: the first one gets it.

    Raises JoinRefused, InvalidInput naming `node_id` or `hostname`, and NotPossibleNow as for create_join_token.
    """
    _check_host(node_id, hostname)
    token = check_join_token(raw)
    handed = join_handover.handover(node_id, token.labels)
    with transaction.atomic():
        spent = JoinToken.objects.filter(_good(), pk=token.pk).update(
            used_at=clock.now(), used_by=node_id, used_from=hostname
        )
        if not spent:
            check_join_token(raw)
        audit.record("join", "jointoken.used", token, detail={"node_id": node_id, "hostname": hostname})
    return handed


def _good() -> Q:
    return Q(used_at__isnull=True, revoked_at__isnull=True, expires_at__gt=clock.now())


def _check_host(node_id: str, hostname: str) -> None:
    if not NODE_ID.fullmatch(node_id):
        raise InvalidInput(
            "node_id_unreadable",
            _("“%(id)s” is no node id.") % {"id": node_id[:60]},
            field="node_id",
            remedy=_("Use up to 40 letters, digits, dashes and underlines."),
        )
    if not hostname.strip() or len(hostname) > HOST_LIMIT or not hostname.isprintable():
        raise InvalidInput(
            "hostname_unreadable",
            _("The host name is empty or too long."),
            field="hostname",
            remedy=_("Send what `hostname` prints."),
        )
