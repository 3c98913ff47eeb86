"""Reading tokens, people and the audit trail."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from apps.accounts.models import ApiToken
from apps.accounts.roles import Action, may
from apps.core.exceptions import NotFound
from apps.core.models import AuditEntry


def tokens(person: User) -> QuerySet[ApiToken]:
    """A person's own tokens, newest first, revoked ones included."""
    return ApiToken.objects.filter(owner=person).select_related("owner")


def all_tokens() -> QuerySet[ApiToken]:
    """Everybody's tokens, newest first; for administrators."""
    return ApiToken.objects.select_related("owner")


def any_token(pk: int) -> ApiToken | None:
    """One token of anybody; whoever acts on it is asked for their role by the service."""
    return all_tokens().filter(pk=pk).first()


def token(person: User, pk: int) -> ApiToken:
    """One token that the person may see: their own, or any for an administrator. Raises NotFound."""
    seen = ApiToken.objects.select_related("owner")
    if not may(person, Action.ADMINISTER):
        seen = seen.filter(owner=person)
    found = seen.filter(pk=pk).first()
    if found is None:
        raise NotFound("token_not_found", _("There is no token %(number)d of yours.") % {"number": pk})
    return found


def people() -> QuerySet[User]:
    """Every account that may sign in, by name."""
    return User.objects.filter(is_active=True).order_by("username")


def person(username: str) -> User:
    """An account by name. Raises NotFound."""
    found = User.objects.filter(username=username).first()
    if found is None:
        raise NotFound(
            "user_not_found",
            _("There is no account %(name)s.") % {"name": username},
            field="user",
            remedy=_("Look at the list of users in the admin."),
        )
    return found


def audit_entries(object_type: str = "", object_id: str = "", verb: str = "") -> QuerySet[AuditEntry]:
    """The audit trail, newest first, narrowed by what is given; `verb` is a beginning ("build.")."""
    rows = AuditEntry.objects.all()
    if object_type:
        rows = rows.filter(object_type=object_type)
    if object_id:
        rows = rows.filter(object_id=object_id)
    return rows.filter(verb__startswith=verb) if verb else rows
