"""Services for routes and external deployments. Callers reach them as `gateway.services`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit, secrets
from apps.core.exceptions import InvalidInput, NotPossibleNow
from apps.gateway import inputs, selectors, upstream_urls
from apps.gateway.models import ExternalDeployment, GatewayRoute
from apps.serving.inputs import assign
from apps.serving.models import Deployment

LONGEST_SECRET = 4000


def save_route(
    actor: User | str, data: Mapping[str, Any], instance: GatewayRoute | None = None
) -> GatewayRoute:
    """Create a route, or change one (`instance`); keys that are left out keep their value or default.

    Keys: name, targets, fallback, queue_size, queue_seconds, record_bodies, body_days and the limits. Gateways use it
    within 2 s. Raises InvalidInput naming the field.
    """
    require(actor, Action.CONFIGURE)
    row = GatewayRoute.objects.get(pk=instance.pk) if instance is not None else GatewayRoute()
    wanted = dict(data)
    _fixed_name(row, wanted)
    if instance is None:
        wanted = {"targets": [], **wanted, "name": inputs.check_new_name(data.get("name"), external=False)}
    name = str(wanted.get("name", row.name))
    if "targets" in wanted:
        wanted["targets"] = inputs.targets(wanted["targets"], name)
    if "fallback" in wanted:
        wanted["fallback"] = inputs.fallback(wanted["fallback"], name, selectors.fallbacks())
    changes = assign(row, wanted, inputs.ROUTE_FIELDS)
    if instance is not None and not changes:
        return row
    with transaction.atomic():
        row.save()
        verb = "gatewayroute.created" if instance is None else "gatewayroute.changed"
        audit.record(actor, verb, row, detail={"changes": changes})
    return row


def delete_route(actor: User | str, route: GatewayRoute) -> None:
    """Forget the settings of a public name. A deployment of that name is called as without settings."""
    require(actor, Action.CONFIGURE)
    if not selectors.stands_without_route(route.name):
        _refuse_if_fallback(route.name)
    with transaction.atomic():
        audit.record(actor, "gatewayroute.deleted", route)
        route.delete()


def save_external(
    actor: User | str, data: Mapping[str, Any], instance: ExternalDeployment | None = None
) -> ExternalDeployment:
    """Create an external deployment, or change one; keys that are left out keep their value.

    Keys: name, base_url (a host of INFLIGHT_UPSTREAM_ALLOW), model, slots, max_sequence_tokens. Another host drops
    the secret: it was given for the old one. Raises InvalidInput naming the field.
    """
    require(actor, Action.CONFIGURE)
    row = ExternalDeployment.objects.get(pk=instance.pk) if instance is not None else ExternalDeployment()
    wanted = dict(data)
    _fixed_name(row, wanted)
    if instance is None:
        wanted = {
            "base_url": "",
            "model": "",
            **wanted,
            "name": inputs.check_new_name(data.get("name"), external=True),
        }
    if "base_url" in wanted:
        wanted["base_url"] = upstream_urls.check(str(wanted["base_url"] or ""))
    changes = assign(row, wanted, inputs.EXTERNAL_FIELDS)
    if instance is not None and not changes:
        return row
    if instance is not None and upstream_urls.origin(instance.base_url) != upstream_urls.origin(row.base_url):
        row.secret = ""
    with transaction.atomic():
        row.save()
        verb = "externaldeployment.created" if instance is None else "externaldeployment.changed"
        audit.record(actor, verb, row, detail={"changes": changes})
    return row


def set_external_secret(actor: User | str, external: ExternalDeployment, secret: str) -> ExternalDeployment:
    """Keep, encrypted, what is sent there as a bearer token; empty removes it. It is never shown again."""
    require(actor, Action.CONFIGURE)
    text = secret.strip()
    if len(text) > LONGEST_SECRET or not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidInput(
            "secret_form",
            _("A secret is printable ASCII without blanks, at most %(most)d characters.")
            % {"most": LONGEST_SECRET},
            field="secret",
            remedy=_("Copy it once more from where it was made."),
        )
    row = ExternalDeployment.objects.get(pk=external.pk)
    row.secret = secrets.encrypt(text) if text else ""
    with transaction.atomic():
        row.save(update_fields=["secret", "updated_at"])
        audit.record(actor, "externaldeployment.secret", row, detail={"kept": bool(text)})
    return row


def delete_external(actor: User | str, external: ExternalDeployment) -> None:
    """Delete an external deployment that no route names."""
    require(actor, Action.CONFIGURE)
    users = [
        route.name
        for route in GatewayRoute.objects.all()
        if any(target.get("external") == external.name for target in route.targets)
        or (route.name == external.name and not route.targets)
    ]
    if users:
        raise NotPossibleNow(
            "external_in_use",
            _("%(name)s is a target of: %(routes)s.")
            % {"name": external.name, "routes": ", ".join(sorted(users))},
            remedy=_("Take it out of these routes first."),
            facts={"routes": sorted(users)},
        )
    _refuse_if_fallback(external.name)
    with transaction.atomic():
        audit.record(actor, "externaldeployment.deleted", external)
        external.delete()


def _fixed_name(row: GatewayRoute | ExternalDeployment, wanted: dict[str, Any]) -> None:
    if row.pk and wanted.get("name", row.name) != row.name:
        raise InvalidInput(
            "name_fixed",
            _("The name cannot change: clients call it by that name."),
            field="name",
            remedy=_("Create another, and delete this one when nobody calls it any more."),
        )


def _refuse_if_fallback(name: str) -> None:
    if Deployment.objects.filter(name=name).exists():
        return
    users = sorted(own for own, other in selectors.fallbacks().items() if other == name)
    if users:
        raise NotPossibleNow(
            "fallback_in_use",
            _("%(name)s is the fallback of: %(routes)s.") % {"name": name, "routes": ", ".join(users)},
            remedy=_("Give these routes another fallback first."),
            facts={"routes": users},
        )
