"""REST: who calls, their tokens, and the audit trail."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Query, Router, Schema, Status
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from apps.accounts import selectors, serialize, services
from apps.accounts.rest import REFUSALS, Number, Page, PageQuery, actor_of, page_of
from apps.accounts.roles import Action, require
from apps.core.exceptions import NotAllowed

router = Router()


class Me(Schema):
    """The person behind the request."""

    username: str
    roles: list[str]
    actions: list[str]


class Token(Schema):
    """An API token without its text."""

    id: int
    name: str
    owner: str
    prefix: str
    state: str = Field(description="active, expired or revoked")
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class NewToken(Token):
    """The answer to a creation: the only time that the text is told."""

    token: str


class TokenBody(BaseModel):
    """What a new token is called and how long it lives."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    expires_at: AwareDatetime | None = Field(None, strict=False, description="With a time zone; null: never.")


class AuditLine(Schema):
    """Who did what to which object."""

    id: int
    at: datetime
    actor: str
    verb: str
    object_type: str
    object_id: str
    object_label: str
    from_state: str | None
    to_state: str | None
    reason: str | None
    sentence: str | None
    detail: dict[str, Any]


@router.get("/me", response={200: Me, **REFUSALS}, operation_id="me", tags=["people"])
def me(request: HttpRequest) -> dict[str, Any]:
    """Who I am: name, roles and what these allow."""
    return serialize.person_dict(actor_of(request))


@router.get("/tokens", response={200: Page[Token], **REFUSALS}, operation_id="list_tokens", tags=["people"])
def list_tokens(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """My tokens, newest first."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.tokens(actor_of(request)), page, serialize.token_dict)


@router.post("/tokens", response={201: NewToken, **REFUSALS}, operation_id="create_token", tags=["people"])
def create_token(request: HttpRequest, body: TokenBody) -> Status[dict[str, Any]]:
    """Create a token of mine. Its text is in this answer and never told again."""
    if getattr(request, "through_token", False):
        raise NotAllowed(
            "token_makes_no_token",
            _("A token cannot create another token."),
            remedy=_("Sign in and create it in the settings, or use manage.py token create."),
        )
    token, text = services.create_token(actor_of(request), body.name, body.expires_at)
    return Status(201, {**serialize.token_dict(token), "token": text})


@router.post(
    "/tokens/{token_id}/revoke",
    response={200: Token, **REFUSALS},
    operation_id="revoke_token",
    tags=["people"],
)
def revoke_token(request: HttpRequest, token_id: Number) -> dict[str, Any]:
    """End a token of mine (administrators: anybody's) at once."""
    actor = actor_of(request)
    return serialize.token_dict(services.revoke_token(actor, selectors.token(actor, token_id)))


class RolesBody(BaseModel):
    """The roles that a person shall hold, all of them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    roles: list[str]


@router.get("/users", response={200: Page[Me], **REFUSALS}, operation_id="list_users", tags=["people"])
def list_users(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """Everybody who may sign in, with roles. Administrators only."""
    require(actor_of(request), Action.ADMINISTER)
    return page_of(selectors.people(), page, serialize.person_dict)


@router.put(
    "/users/{username}/roles", response={200: Me, **REFUSALS}, operation_id="set_roles", tags=["people"]
)
def set_roles(request: HttpRequest, username: str, body: RolesBody) -> dict[str, Any]:
    """Give a person exactly these roles. Administrators only."""
    require(actor_of(request), Action.ADMINISTER)
    person = selectors.person(username)
    services.set_roles(actor_of(request), person, body.roles)
    return serialize.person_dict(person)


@router.delete(
    "/users/{username}", response={204: None, **REFUSALS}, operation_id="delete_user", tags=["people"]
)
def delete_user(request: HttpRequest, username: str) -> Status[None]:
    """Delete an account with its tokens and conversations. Administrators only."""
    require(actor_of(request), Action.ADMINISTER)
    services.delete_person(actor_of(request), selectors.person(username))
    return Status(204, None)


class AuditQuery(PageQuery):
    """Narrows the audit trail."""

    object_type: str = Field("", max_length=60)
    object_id: str = Field("", max_length=64)
    verb: str = Field("", max_length=60, description='Beginning of the action, for example "build."')


@router.get("/audit", response={200: Page[AuditLine], **REFUSALS}, operation_id="list_audit", tags=["people"])
def list_audit(request: HttpRequest, query: Query[AuditQuery]) -> dict[str, Any]:
    """The audit trail, newest first."""
    require(actor_of(request), Action.VIEW)
    rows = selectors.audit_entries(query.object_type, query.object_id, query.verb)
    return page_of(rows, query, serialize.audit_dict)
