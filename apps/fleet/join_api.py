"""REST: tokens that let a host join, and the exchange of one for what its worker must know."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema
from ninja.security import HttpBearer
from pydantic import Field

from apps.accounts.rest import REFUSALS, Number, Page, PageQuery, Problem, actor_of, page_of
from apps.accounts.roles import Action, require
from apps.fleet import join_tokens
from apps.fleet.models import JoinToken as Row

router = Router(tags=["nodes"])


class JoinBearer(HttpBearer):
    """Asks for a token before anything of the request is read; the service says whether it is one of ours."""

    def authenticate(self, request: HttpRequest, token: str) -> str | None:
        """The token as it was given."""
        return token or None


class JoinToken(Schema):
    """A token that lets one host join."""

    id: int
    prefix: str
    state: str = Field(description="active, used, expired or revoked.")
    labels: dict[str, str]
    created_by: str | None
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None
    used_by: str | None = Field(description="Id of the node that joined with it.")
    used_from: str | None = Field(description="Host name that it told.")


class JoinTokenMade(JoinToken):
    """The same with the token itself, which no later answer holds."""

    token: str
    command: str = Field(description="What to run on the new host; it holds the token.")


class JoinTokenIn(Schema):
    """What a new token is to be."""

    labels: dict[str, str] = Field(default_factory=dict, description="Labels of the node that joins with it.")
    minutes: int = Field(join_tokens.USUAL, ge=join_tokens.SHORTEST, le=join_tokens.LONGEST)


class Joining(Schema):
    """The host that joins."""

    node_id: str = Field(max_length=40)
    hostname: str = Field(max_length=200)


class Handover(Schema):
    """What its worker must know; holds passwords."""

    environment: dict[str, str]
    certificates: dict[str, str]
    secrets: dict[str, str]
    labels: dict[str, str]


def token_dict(row: Row) -> dict[str, Any]:
    """One token as plain values; never the token itself."""
    return {
        "id": row.pk,
        "prefix": row.prefix,
        "state": join_tokens.state_of(row),
        "labels": row.labels,
        "created_by": row.created_by.get_username() if row.created_by else None,
        "created_at": row.created_at.isoformat(),
        "expires_at": row.expires_at.isoformat(),
        "used_at": row.used_at.isoformat() if row.used_at else None,
        "used_by": row.used_by or None,
        "used_from": row.used_from or None,
    }


@router.get("/join-tokens", response={200: Page[JoinToken], **REFUSALS}, operation_id="list_join_tokens")
def list_join_tokens(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """Tokens of the last 30 days, newest first."""
    require(actor_of(request), Action.ADMINISTER)
    return page_of(join_tokens.join_tokens(), page, token_dict)


@router.post("/join-tokens", response={201: JoinTokenMade, **REFUSALS}, operation_id="create_join_token")
def create_join_token(request: HttpRequest, body: JoinTokenIn) -> tuple[int, dict[str, Any]]:
    """Make a token for one host. This answer is the only one that holds it."""
    row, raw = join_tokens.create_join_token(actor_of(request), labels=body.labels, minutes=body.minutes)
    return 201, {**token_dict(row), "token": raw, "command": join_tokens.install_command(raw)}


@router.delete(
    "/join-tokens/{number}", response={200: JoinToken, **REFUSALS}, operation_id="revoke_join_token"
)
def revoke_join_token(request: HttpRequest, number: Number) -> dict[str, Any]:
    """End a token that no host has used."""
    return token_dict(join_tokens.revoke_join_token(actor_of(request), join_tokens.join_token(number)))


@router.post(
    "/join",
    response={200: Handover, 401: Problem, 409: Problem, 422: Problem},
    operation_id="join",
    auth=JoinBearer(),
)
def join(request: HttpRequest, body: Joining) -> dict[str, Any]:
    """Spend a join token (Authorization: Bearer ifj_...): what the worker of this host must know."""
    given: str = request.auth  # type: ignore[attr-defined]
    return join_tokens.redeem_join_token(given, body.node_id, body.hostname).as_dict()
