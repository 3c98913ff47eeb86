"""How far the class of a request reaches with a deployment, for pages, previews and the API."""

from __future__ import annotations

from apps.serving.domain import priority_reach
from apps.serving.domain.priority_reach import Reach
from apps.serving.models import Deployment


def of(deployment: Deployment) -> Reach:
    """Which queue orders the deployment's requests by class, as it is configured now."""
    profile = deployment.batching
    classes = getattr(profile, "priority_classes", ())
    return priority_reach.of_strategy(profile.strategy, bool(classes))
