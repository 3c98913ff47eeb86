"""REST: keys, routes and external deployments of the gateway. Usage and requests are in api_records.py."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from apps.accounts import selectors as accounts
from apps.accounts.rest import REFUSALS, Number, Page, PageQuery, actor_of, page_of
from apps.accounts.roles import Action, require
from apps.gateway import selectors, serialize, services
from apps.gateway.api_records import router as records
from apps.gateway.schemas import External, Key, NewKey, Route
from apps.gateway.shapes import ExternalFields, KeyFields, RouteFields

router = Router()
router.add_router("", records)
KEYS, ROUTES, EXTERNALS = ["gateway keys"], ["gateway routes"], ["external deployments"]
_EXPIRES = "With a time zone; null: never."


class KeyBody(KeyFields):
    """A key to create."""

    name: str
    owner: str | None = Field(None, description="Account that answers for it; null: the caller.")
    expires_at: AwareDatetime | None = Field(None, strict=False, description=_EXPIRES)


class KeyChange(KeyFields):
    """All of a key but its owner; what is left out goes back to its default."""

    name: str
    expires_at: AwareDatetime | None = Field(None, strict=False, description=_EXPIRES)


class NewRoute(RouteFields):
    """A route to create."""

    name: str


class NewExternal(ExternalFields):
    """An external deployment to create; its secret is set by an operation of its own."""

    name: str


class SecretBody(BaseModel):
    """What is sent there as a bearer token."""

    model_config = ConfigDict(extra="forbid", strict=True)

    secret: str = Field(description="Empty: none any more.")


class KeyQuery(PageQuery):
    """Narrows the list of keys."""

    owner: str = Field("", max_length=150)


@router.get(
    "/gateway/keys", response={200: Page[Key], **REFUSALS}, operation_id="list_gateway_keys", tags=KEYS
)
def list_gateway_keys(request: HttpRequest, query: Query[KeyQuery]) -> dict[str, Any]:
    """Every key, newest first, without its text."""
    require(actor_of(request), Action.VIEW)
    rows = selectors.keys_of(accounts.person(query.owner)) if query.owner else selectors.keys()
    return page_of(rows, query, serialize.key_dict)


@router.post(
    "/gateway/keys", response={201: NewKey, **REFUSALS}, operation_id="create_gateway_key", tags=KEYS
)
def create_gateway_key(request: HttpRequest, body: KeyBody) -> Status[dict[str, Any]]:
    """Create a key. Its text is in this answer and never told again."""
    actor = actor_of(request)
    require(actor, Action.CONFIGURE)
    owner = accounts.person(body.owner) if body.owner else None
    row, text = services.create_key(actor, body.model_dump(exclude={"owner"}), owner)
    return Status(201, {**serialize.key_dict(row), "key": text})


@router.get(
    "/gateway/keys/{key_id}", response={200: Key, **REFUSALS}, operation_id="get_gateway_key", tags=KEYS
)
def get_gateway_key(request: HttpRequest, key_id: Number) -> dict[str, Any]:
    """One key without its text."""
    require(actor_of(request), Action.VIEW)
    return serialize.key_dict(selectors.key(key_id))


@router.put(
    "/gateway/keys/{key_id}", response={200: Key, **REFUSALS}, operation_id="change_gateway_key", tags=KEYS
)
def change_gateway_key(request: HttpRequest, key_id: Number, body: KeyChange) -> dict[str, Any]:
    """Change a key's name, models, priority, expiry and limits; its text stays. In force within 2 s."""
    require(actor_of(request), Action.CONFIGURE)
    row = services.change_key(actor_of(request), selectors.key(key_id), body.model_dump())
    return serialize.key_dict(row)


@router.post(
    "/gateway/keys/{key_id}/revoke",
    response={200: Key, **REFUSALS},
    operation_id="revoke_gateway_key",
    tags=KEYS,
)
def revoke_gateway_key(request: HttpRequest, key_id: Number) -> dict[str, Any]:
    """End a key; every gateway refuses it within 2 s. Operators end any, others their own."""
    require(actor_of(request), Action.VIEW)
    return serialize.key_dict(services.revoke_key(actor_of(request), selectors.key(key_id)))


@router.get(
    "/gateway/routes",
    response={200: Page[Route], **REFUSALS},
    operation_id="list_gateway_routes",
    tags=ROUTES,
)
def list_gateway_routes(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """Routes with settings of their own, by name. A deployment without is called by its name all the same."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.routes(), page, serialize.route_dict)


@router.post(
    "/gateway/routes", response={201: Route, **REFUSALS}, operation_id="create_gateway_route", tags=ROUTES
)
def create_gateway_route(request: HttpRequest, body: NewRoute) -> Status[dict[str, Any]]:
    """Create a route: one public name in front of one or more deployments."""
    row = services.save_route(actor_of(request), {"name": body.name, **_columns(body)})
    return Status(201, serialize.route_dict(row))


@router.get(
    "/gateway/routes/{name}", response={200: Route, **REFUSALS}, operation_id="get_gateway_route", tags=ROUTES
)
def get_gateway_route(request: HttpRequest, name: str) -> dict[str, Any]:
    """One route."""
    require(actor_of(request), Action.VIEW)
    return serialize.route_dict(selectors.route(name))


@router.put(
    "/gateway/routes/{name}",
    response={200: Route, **REFUSALS},
    operation_id="change_gateway_route",
    tags=ROUTES,
)
def change_gateway_route(request: HttpRequest, name: str, body: RouteFields) -> dict[str, Any]:
    """Change a route; what is left out goes back to its default. In force within 2 s."""
    require(actor_of(request), Action.CONFIGURE)
    row = services.save_route(actor_of(request), _columns(body), selectors.route(name))
    return serialize.route_dict(row)


@router.delete(
    "/gateway/routes/{name}",
    response={204: None, **REFUSALS},
    operation_id="delete_gateway_route",
    tags=ROUTES,
)
def delete_gateway_route(request: HttpRequest, name: str) -> Status[None]:
    """Forget a route's settings."""
    require(actor_of(request), Action.CONFIGURE)
    services.delete_route(actor_of(request), selectors.route(name))
    return Status(204, None)


@router.get(
    "/gateway/external-deployments",
    response={200: Page[External], **REFUSALS},
    operation_id="list_external_deployments",
    tags=EXTERNALS,
)
def list_external_deployments(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """Every external deployment, by name, without its secret."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.externals(), page, serialize.external_dict)


@router.post(
    "/gateway/external-deployments",
    response={201: External, **REFUSALS},
    operation_id="create_external_deployment",
    tags=EXTERNALS,
)
def create_external_deployment(request: HttpRequest, body: NewExternal) -> Status[dict[str, Any]]:
    """Create an external deployment on a host that INFLIGHT_UPSTREAM_ALLOW names."""
    row = services.save_external(actor_of(request), body.model_dump(mode="json"))
    return Status(201, serialize.external_dict(row))


@router.get(
    "/gateway/external-deployments/{name}",
    response={200: External, **REFUSALS},
    operation_id="get_external_deployment",
    tags=EXTERNALS,
)
def get_external_deployment(request: HttpRequest, name: str) -> dict[str, Any]:
    """One external deployment."""
    require(actor_of(request), Action.VIEW)
    return serialize.external_dict(selectors.external(name))


@router.put(
    "/gateway/external-deployments/{name}",
    response={200: External, **REFUSALS},
    operation_id="change_external_deployment",
    tags=EXTERNALS,
)
def change_external_deployment(request: HttpRequest, name: str, body: ExternalFields) -> dict[str, Any]:
    """Change it. Another host drops the secret, which was given for the old one."""
    require(actor_of(request), Action.CONFIGURE)
    external = selectors.external(name)
    row = services.save_external(actor_of(request), body.model_dump(mode="json"), external)
    return serialize.external_dict(row)


@router.put(
    "/gateway/external-deployments/{name}/secret",
    response={200: External, **REFUSALS},
    operation_id="set_external_secret",
    tags=EXTERNALS,
)
def set_external_secret(request: HttpRequest, name: str, body: SecretBody) -> dict[str, Any]:
    """Keep the secret that is sent there, encrypted. It is never shown again."""
    require(actor_of(request), Action.CONFIGURE)
    row = services.set_external_secret(actor_of(request), selectors.external(name), body.secret)
    return serialize.external_dict(row)


@router.delete(
    "/gateway/external-deployments/{name}",
    response={204: None, **REFUSALS},
    operation_id="delete_external_deployment",
    tags=EXTERNALS,
)
def delete_external_deployment(request: HttpRequest, name: str) -> Status[None]:
    """Delete one that no route names."""
    require(actor_of(request), Action.CONFIGURE)
    services.delete_external(actor_of(request), selectors.external(name))
    return Status(204, None)


def _columns(body: RouteFields) -> dict[str, Any]:
    found = body.model_dump(exclude={"name", "targets"})
    return {**found, "targets": [target.as_dict() for target in body.targets]}
