"""API tokens and roles: what may be done, by whom, with a trace of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from apps.accounts.models import ApiToken
from apps.accounts.roles import ADMINISTRATOR, GRANTS, Action, require
from apps.core import audit, clock, ids
from apps.core.exceptions import InvalidInput, NotPossibleNow

TOKEN_PREFIX = "ifl_"  # noqa: S105 - the public beginning of every token
# Prefix and the first letters of the random part: enough to tell tokens apart, too little to guess one.
SHOWN_LETTERS = 10
NAME_LIMIT = 100
# `last_used_at` is written at most this often, so that a busy client costs one write a minute.
LAST_USED_EVERY = timedelta(minutes=1)


def digest_of(raw: str) -> str:
    """SHA-256 in hexadecimal. A token is 192 random bits, so no slow hash is needed."""
    return hashlib.sha256(raw.encode("utf-8", "surrogateescape")).hexdigest()


def create_token(
    actor: User | str, name: str, expires_at: datetime | None = None, owner: User | None = None
) -> tuple[ApiToken, str]:
    """Make a token that acts as `owner` (default: the actor). Returns the row and the text, which is shown once.

    Anyone with a role makes tokens for themselves; only administrators for others. Raises InvalidInput naming
    `name`, `expires_at` or `owner`.
    """
    person = actor if isinstance(actor, User) else None
    owner = owner or person
    if owner is None:
        raise InvalidInput(
            "token_owner", _("A token acts as an account."), field="owner", remedy=_("Name the account.")
        )
    require(actor, Action.VIEW if person is not None and owner.pk == person.pk else Action.ADMINISTER)
    name = name.strip()
    if not name or len(name) > NAME_LIMIT:
        raise InvalidInput(
            "token_name",
            _("A token needs a name of 1 to %(limit)d characters.") % {"limit": NAME_LIMIT},
            field="name",
            remedy=_("Name the program or machine that will use it."),
        )
    if expires_at is not None and expires_at <= clock.now():
        raise InvalidInput(
            "token_expired",
            _("The expiry lies in the past."),
            field="expires_at",
            remedy=_("Choose a later time, or leave it empty for a token without expiry."),
        )
    raw = TOKEN_PREFIX + ids.secret()
    with transaction.atomic():
        token = ApiToken.objects.create(
            owner=owner,
            name=name,
            prefix=raw[:SHOWN_LETTERS],
            digest=digest_of(raw),
            expires_at=expires_at,
        )
        audit.record(actor, "token.created", token, detail={"owner": owner.get_username()})
    return token, raw


def revoke_token(actor: User | str, token: ApiToken) -> ApiToken:
    """End a token at once. Owners revoke their own, administrators any. A second call changes nothing."""
    own = isinstance(actor, User) and actor.pk == token.owner_id
    require(actor, Action.VIEW if own else Action.ADMINISTER)
    with transaction.atomic():
        changed = ApiToken.objects.filter(pk=token.pk, revoked_at__isnull=True).update(revoked_at=clock.now())
        if changed:
            audit.record(actor, "token.revoked", token, detail={"owner": token.owner.get_username()})
    token.refresh_from_db()
    return token


def authenticate_token(raw: str) -> ApiToken | None:
    """The live token behind the text: neither revoked nor expired, its owner active. None otherwise."""
    if not raw.startswith(TOKEN_PREFIX):
        return None
    token = ApiToken.objects.select_related("owner").filter(digest=digest_of(raw)).first()
    moment = clock.now()
    if token is None or token.revoked_at is not None or not token.owner.is_active:
        return None
    if token.expires_at is not None and token.expires_at <= moment:
        return None
    if token.last_used_at is None or token.last_used_at <= moment - LAST_USED_EVERY:
        stale = Q(last_used_at__isnull=True) | Q(last_used_at__lte=moment - LAST_USED_EVERY)
        ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=moment)
        token.last_used_at = moment
    return token


def set_roles(actor: User | str, person: User, roles: Iterable[str]) -> frozenset[str]:
    """Give a person exactly these roles; other groups stay. Returns the roles that they hold now.

    Raises InvalidInput for an unknown role, and NotPossibleNow where nobody would be left to administer.
    """
    require(actor, Action.ADMINISTER)
    wanted = frozenset(roles)
    for name in sorted(wanted - frozenset(GRANTS)):
        raise InvalidInput(
            "unknown_role",
            _("There is no role %(role)s.") % {"role": name},
            field="roles",
            remedy=_("The roles are: %(roles)s.") % {"roles": ", ".join(GRANTS)},
        )
    with transaction.atomic():
        before = frozenset(person.groups.filter(name__in=GRANTS).values_list("name", flat=True))
        if before == wanted:
            return wanted
        if ADMINISTRATOR in before - wanted:
            refuse_losing_last_administrator(person)
        person.groups.remove(*Group.objects.filter(name__in=before - wanted))
        person.groups.add(*Group.objects.filter(name__in=wanted - before))
        audit.record(
            actor,
            "user.roles",
            person,
            sentence=_("Roles: %(roles)s.") % {"roles": ", ".join(sorted(wanted)) or _("none")},
            detail={"before": sorted(before), "after": sorted(wanted)},
        )
    return wanted


def save_person(actor: User | str, person: User, changed: Iterable[str]) -> User:
    """Save an account as it stands. `changed` names the fields, for the audit trail; a password is never told.

    Raises NotPossibleNow where switching it off would leave nobody to administer.
    """
    require(actor, Action.ADMINISTER)
    created = person.pk is None
    fields = sorted({"password" if name.startswith("password") else name for name in changed} - {"roles"})
    with transaction.atomic():
        if not created and "is_active" in fields and not person.is_active:
            refuse_losing_last_administrator(person, field="is_active")
        person.save()
        if created or fields:
            verb = "user.created" if created else "user.changed"
            audit.record(actor, verb, person, detail={"fields": fields})
    return person


def record_password(actor: User | str, person: User) -> None:
    """Leave a trace of a password that somebody else set."""
    audit.record(actor, "user.password", person)


def delete_person(actor: User | str, person: User) -> None:
    """Delete an account with its tokens and conversations; the audit trail keeps the name."""
    require(actor, Action.ADMINISTER)
    if isinstance(actor, User) and actor.pk == person.pk:
        raise NotPossibleNow(
            "own_account",
            _("You cannot delete your own account."),
            remedy=_("Let another administrator do it."),
        )
    with transaction.atomic():
        refuse_losing_last_administrator(person)
        audit.record(actor, "user.deleted", person)
        person.delete()


def refuse_losing_last_administrator(person: User, field: str = "roles") -> None:
    """Raise NotPossibleNow where `person` is the last one who may administer."""
    others = User.objects.filter(is_active=True).exclude(pk=person.pk)
    if others.filter(Q(is_superuser=True) | Q(groups__name=ADMINISTRATOR)).exists():
        return
    raise NotPossibleNow(
        "last_administrator",
        _("%(person)s is the last administrator.") % {"person": person.get_username()},
        field=field,
        remedy=_("Make somebody else an administrator first."),
    )
