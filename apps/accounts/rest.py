"""What every router of the REST API shares: who calls, error shape, pages of a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar, cast

from django.contrib.auth.models import User
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Field, Schema
from ninja.security import HttpBearer, SessionAuth

from apps.accounts.services import authenticate_token
from apps.core.exceptions import InflightError
from apps.realtime.log_window import MAX_WINDOW, MIN_WINDOW

MAX_PAGE = 500
# The largest offset that every database of ours can skip to.
MAX_OFFSET = 2**31 - 1
Row = TypeVar("Row", bound=Model)
Item = TypeVar("Item")


class NotSignedIn(InflightError):
    """Nobody is signed in, or the token is not (or no longer) good."""

    status = 401


class TokenAuth(HttpBearer):
    """`Authorization: Bearer ifl_...`; acts as the token's owner."""

    def authenticate(self, request: HttpRequest, token: str) -> User | None:
        """The owner, who becomes `request.user`; a bad token is refused and never falls back to a session."""
        found = authenticate_token(token.strip())
        if found is None:
            raise NotSignedIn(
                "token_refused",
                _("This token is unknown, expired or revoked."),
                remedy=_("Create a new token in the settings, or with POST /api/v1/tokens."),
            )
        request.user = found.owner
        request.through_token = True  # type: ignore[attr-defined]
        return found.owner


# The order matters: a bearer token needs no CSRF token, a session does.
AUTH: list[Callable[[HttpRequest], Any]] = [TokenAuth(), SessionAuth(csrf=True)]


class Problem(Schema):
    """Every error of the API."""

    code: str = Field(description="Stable and machine-readable.")
    message: str = Field(description="What happened, for a person.")
    field: str = Field("", description="Which input is to blame; empty: none.")
    remedy: str = Field("", description="What to do about it.")
    facts: dict[str, Any] = Field(default_factory=dict)
    findings: list[dict[str, Any]] = Field(default_factory=list)


class StatusFields(Schema):
    """What every object with a state has. `sentence` and `remedy` are for a person; `reason` is stable."""

    id: int
    state: str
    tone: str
    reason: str | None
    sentence: str | None
    remedy: str | None
    version: int
    state_since: datetime


class LogText(Schema):
    """A window of a log: text from byte `start` to byte `offset` of a file of `size` bytes."""

    text: str
    start: int
    offset: int = Field(description="Where to go on reading.")
    size: int


class LogQuery(Schema):
    """Which window of a log."""

    offset: int = Field(
        0, ge=-MAX_WINDOW, le=2**62, description="First byte; negative: so many before the end."
    )
    limit: int = Field(65_536, ge=MIN_WINDOW, le=MAX_WINDOW, description="Bytes.")


class PageQuery(Schema):
    """Which part of a list."""

    limit: int = Field(100, ge=1, le=MAX_PAGE, description="Rows in this answer.")
    offset: int = Field(0, ge=0, le=MAX_OFFSET, description="Rows to pass over.")


class Page(Schema, Generic[Item]):
    """Part of a list."""

    items: list[Item]
    count: int = Field(description="Rows in the whole list.")
    limit: int
    offset: int


Number = Annotated[int, Field(ge=1, le=2**63 - 1)]


def page_of(
    rows: QuerySet[Row] | Sequence[Row], page: PageQuery, as_dict: Callable[[Row], dict[str, Any]]
) -> dict[str, Any]:
    """One page of a list: items, how many there are in all, and the bounds that were asked for."""
    count = rows.count() if isinstance(rows, QuerySet) else len(rows)
    items = [as_dict(row) for row in rows[page.offset : page.offset + page.limit]]
    return {"items": items, "count": count, "limit": page.limit, "offset": page.offset}


def actor_of(request: HttpRequest) -> User:
    """The person behind a request that passed authentication."""
    return cast(User, request.user)


# Answers that any operation may give besides its own.
REFUSALS = {401: Problem, 403: Problem, 404: Problem, 409: Problem, 422: Problem, 503: Problem}
