"""What people do with the gateway. Each change is in every gateway process within 2 s (table.py)."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit
from apps.core.exceptions import InfrastructureError, NotFound
from apps.gateway import running
from apps.gateway.adaptive import save_adaptive
from apps.gateway.keys import change_key, create_key, revoke_key
from apps.gateway.models import RequestLog
from apps.gateway.routes import (
    delete_external,
    delete_route,
    save_external,
    save_route,
    set_external_secret,
)

__all__ = [
    "cancel_request",
    "change_key",
    "create_key",
    "delete_external",
    "delete_route",
    "revoke_key",
    "save_adaptive",
    "save_external",
    "save_route",
    "set_external_secret",
]


def cancel_request(actor: User | str, request_id: str) -> None:
    """End a request that runs or waits, wherever it is; its client is told. Raises NotFound where it is over."""
    require(actor, Action.OPERATE)
    found = next((item for item in running.snapshot() if item.request_id == request_id), None)
    if found is None:
        raise NotFound(
            "request_not_running",
            _("The request %(id)s does not run (any more).") % {"id": request_id[:128]},
            remedy=_("Reload the page; it shows those that run."),
        )
    if not running.request_cancel(request_id):
        raise InfrastructureError(
            "gateway_unreachable",
            _("No gateway process heard that the request shall end."),
            remedy=_("Try again; if it happens again, look at Redis and at the log of the gateway."),
        )
    row = RequestLog(request_id=request_id, pk=0)
    audit.record(actor, "request.cancelled", row, detail={"key": found.key_name, "model": found.route})
