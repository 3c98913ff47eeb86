"""Links by which others of this installation see a conversation or a comparison. Its owner makes and revokes them."""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, may, require
from apps.chat.compared_models import Comparison, SharedLink
from apps.chat.models import Conversation
from apps.core import audit, clock, ids
from apps.core.exceptions import NotAllowed, NotFound

# 80 bits: nobody guesses one, and everybody who has it must be signed in besides.
_LETTERS = 16
Shareable = Conversation | Comparison


def share(actor: User, target: Shareable) -> SharedLink:
    """The link to a conversation or comparison of the actor's; the one that is there already, else a new one.

    Whoever is signed in and may view sees it, and what is added to it later, until the link is revoked.
    Raises NotAllowed for what belongs to somebody else.
    """
    require(actor, Action.CHAT)
    if target.owner_id != actor.pk:
        raise NotAllowed(
            "not_yours_to_share",
            _("This belongs to %(name)s, who alone can share it.") % {"name": target.owner.get_username()},
            remedy=_("Ask them for a link."),
        )
    with transaction.atomic():
        found = link_of(target)
        if found is None:
            found = SharedLink(uid=ids.short_id(_LETTERS), created_by=actor)
            if isinstance(target, Conversation):
                found.conversation = target
            else:
                found.comparison = target
            found.save()
            audit.record(actor, f"{target.kind}.shared", target)
    return found


def revoke_link(actor: User, link: SharedLink) -> SharedLink:
    """End a link for everybody; the owner's, or any for administrators. Revoking it again changes nothing."""
    if link.created_by_id != actor.pk:
        require(actor, Action.ADMINISTER)
    if link.revoked_at is None:
        link.revoked_at = clock.now()
        with transaction.atomic():
            link.save(update_fields=["revoked_at"])
            audit.record(actor, "sharedlink.revoked", link)
    return link


def links(user: User) -> QuerySet[SharedLink]:
    """Links of a person that still hold, newest first."""
    rows = SharedLink.objects.select_related("conversation", "comparison", "created_by")
    return rows.filter(created_by=user, revoked_at__isnull=True)


def link(uid: str) -> SharedLink:
    """A link by its id, revoked or not. Raises NotFound."""
    rows = SharedLink.objects.select_related(
        "created_by", "conversation__owner", "conversation__deployment", "comparison__owner"
    )
    found = rows.filter(uid=uid).first()
    if found is None:
        raise _gone(_("There is no such link."))
    return found


def shown(user: User | AnonymousUser | str, uid: str) -> tuple[SharedLink, Shareable]:
    """What a link shows. Raises NotAllowed (the right to view is needed), NotFound (unknown, or revoked)."""
    require(user, Action.VIEW)
    found = link(uid)
    if found.revoked_at is not None:
        owner = found.created_by.get_username()
        raise _gone(_("This link was revoked by %(name)s.") % {"name": owner})
    target = found.conversation or found.comparison
    assert target is not None  # noqa: S101 - the table's own constraint
    return found, target


def link_of(target: Shareable) -> SharedLink | None:
    """The link by which a conversation or comparison is shared now; None where it is not."""
    return target.links.filter(revoked_at__isnull=True).order_by("-created_at").first()


def may_see(user: User | AnonymousUser, target: Shareable) -> bool:
    """Whether it is the person's own, or they administer."""
    return target.owner_id == user.pk or may(user, Action.ADMINISTER)


def _gone(sentence: str) -> NotFound:
    return NotFound(
        "unknown_link", sentence, remedy=_("Ask whoever gave it to you for a new one."), field="link"
    )
