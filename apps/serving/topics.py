"""Live topics of this app: deployments, deployment:<id>, log:instance:<id>."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.core.exceptions import NotFound
from apps.realtime import topics
from apps.serving import selectors, serialize
from apps.serving.models import Instance


def register() -> None:
    """Register them; called once, from AppConfig.ready."""
    topics.register("deployments", permission=Action.VIEW, snapshot=deployments_snapshot, keyed=False)
    topics.register("deployment", permission=Action.VIEW, snapshot=deployment_snapshot)
    topics.register_log("log:instance", permission=Action.VIEW, path=instance_log)


def deployments_snapshot(key: int) -> dict[str, Any]:
    """Every deployment."""
    return {"deployments": [serialize.deployment_dict(row) for row in selectors.deployments()]}


def deployment_snapshot(key: int) -> dict[str, Any]:
    """One deployment with its revisions, newest first."""
    row = selectors.deployments().filter(pk=key).first()
    if row is None:
        raise NotFound("deployment_unknown", _("This deployment does not exist (any more)."))
    revisions = row.revisions.select_related("engine__checkpoint", "created_by", "deployment")
    return {
        "deployment": serialize.deployment_dict(row),
        "revisions": [serialize.revision_dict(revision) for revision in revisions],
    }


def instance_log(key: int) -> str:
    """Where an instance's log is read; empty before its first start."""
    row = Instance.objects.select_related("node").filter(pk=key).first()
    if row is None:
        raise NotFound("instance_unknown", _("This server does not exist (any more)."))
    return selectors.log_address(row)
