"""Reads of this app. Nothing here changes a row."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from apps.core.exceptions import NotFound
from apps.gateway.models import ExternalDeployment, GatewayKey, GatewayRoute, RequestLog
from apps.serving.models import Deployment


def keys() -> QuerySet[GatewayKey]:
    """Every key, newest first, revoked ones included."""
    return GatewayKey.objects.select_related("owner", "created_by")


def key(pk: int) -> GatewayKey:
    """One key by its number, or NotFound."""
    found = keys().filter(pk=pk).first()
    if found is None:
        raise NotFound(
            "gateway_key_unknown",
            _("There is no key %(number)d.") % {"number": pk},
            remedy=_("The page Gateway lists those that exist."),
        )
    return found


def keys_of(person: User) -> QuerySet[GatewayKey]:
    """A person's own keys."""
    return keys().filter(owner=person)


def routes() -> QuerySet[GatewayRoute]:
    """Every route that has settings of its own, by name."""
    return GatewayRoute.objects.all()


def route(name: str) -> GatewayRoute:
    """The route of that name, or NotFound."""
    found = GatewayRoute.objects.filter(name=name).first()
    if found is None:
        raise NotFound(
            "gateway_route_unknown",
            _("There are no settings for a route %(name)s.") % {"name": name},
            field="route",
            remedy=_("A deployment needs none: it is called by its own name."),
        )
    return found


def externals() -> QuerySet[ExternalDeployment]:
    """Every external deployment, by name."""
    return ExternalDeployment.objects.all()


def external(name: str) -> ExternalDeployment:
    """The external deployment of that name, or NotFound."""
    found = ExternalDeployment.objects.filter(name=name).first()
    if found is None:
        raise NotFound(
            "external_deployment_unknown",
            _("There is no external deployment %(name)s.") % {"name": name},
            field="external",
            remedy=_("The page Gateway, Routes lists those that exist."),
        )
    return found


def public_names() -> list[str]:
    """Every name that a client may send as its model, sorted."""
    found: set[str] = set()
    for kind in (Deployment, ExternalDeployment, GatewayRoute):
        found |= set(kind._default_manager.values_list("name", flat=True))
    return sorted(found)


def fallbacks() -> dict[str, str]:
    """Public name -> its fallback, of those that have one."""
    rows = GatewayRoute.objects.exclude(fallback="").values_list("name", "fallback")
    return dict(rows)


def stands_without_route(name: str) -> bool:
    """Whether the name can be called without settings."""
    return (
        Deployment.objects.filter(name=name).exists() or ExternalDeployment.objects.filter(name=name).exists()
    )


def requests() -> QuerySet[RequestLog]:
    """Ended requests, newest first, without their texts."""
    return RequestLog.objects.defer("prompt", "answer")


def request(pk: int) -> RequestLog:
    """One ended request with its texts, or NotFound."""
    found = RequestLog.objects.filter(pk=pk).first()
    if found is None:
        raise NotFound(
            "request_unknown",
            _("There is no request %(number)d (any more).") % {"number": pk},
            remedy=_("Requests are kept for some days; the usage keeps their sums."),
        )
    return found
