"""The live topic `overview`: it says that something changed, and how much work runs.

Lists listen to it and not to `builds` or `deployments`: they look at one page of rows, and the whole of those topics,
sent to every open list at every change, would cost far more than the look.
"""

from __future__ import annotations

from typing import Any

from apps.accounts.roles import Action
from apps.engines.models import Build
from apps.engines.states import BUILD
from apps.realtime import groups, topics
from apps.serving.models import Deployment
from apps.serving.states import DEPLOYMENT


def register() -> None:
    """Register the topic, and let checkpoints and engines touch it too; called once, from AppConfig.ready."""
    topics.register("overview", permission=Action.VIEW, snapshot=snapshot, keyed=False)
    groups.route("checkpoint", lambda row: ["checkpoints", "overview"])
    groups.route("engine", lambda row: ["builds", "overview"])


def snapshot(key: int) -> dict[str, Any]:
    """How many builds and deployments are on their way."""
    return {
        "builds": Build.objects.filter(state__in=BUILD.active).count(),
        "deployments": Deployment.objects.filter(state__in=DEPLOYMENT.active).count(),
    }
