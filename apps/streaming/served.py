"""What serves a deployment, kept for a moment: questions that come one after the other read it once.

It is a quarter of a second old at most; a server that was told to end takes requests for longer than that. What this
process itself changes is seen at once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from django.db.models.signals import post_delete, post_save

from apps.core.transitions import state_changed
from apps.engines.models import BuildProfile, Engine
from apps.registry.models import Checkpoint
from apps.serving import selectors
from apps.serving.models import BatchingProfile, Deployment, Instance, Revision
from apps.streaming import capabilities

FRESH_SECONDS = 0.25
READ_FROM = (Deployment, Revision, Instance, BatchingProfile, BuildProfile, Engine, Checkpoint)


@dataclass(frozen=True, slots=True)
class Served:
    """A deployment with all that a question to it needs; `endpoints` have their shares of new requests."""

    deployment: Deployment
    capabilities: capabilities.Capabilities
    endpoints: tuple[tuple[selectors.Endpoint, float], ...]
    read_at: float


_known: dict[int, Served] = {}


def of(deployment_id: int) -> Served:
    """As the database said a moment ago; read anew where nothing served then. Raises Deployment.DoesNotExist."""
    found = _known.get(deployment_id)
    now = time.monotonic()
    if found is None or not found.endpoints or now - found.read_at > FRESH_SECONDS:
        found = _known[deployment_id] = _read(deployment_id, now)
    return found


def forget(**_signal: Any) -> None:
    """Something changed."""
    _known.clear()


def connect() -> None:
    """Listen to what this process changes; called once when Django is ready."""
    for model in READ_FROM:
        for signal in (state_changed, post_save, post_delete):
            signal.connect(forget, sender=model, dispatch_uid=f"streaming.served.{model.__name__}")


def _read(deployment_id: int, now: float) -> Served:
    row = Deployment.objects.select_related(
        "batching", "build_profile__checkpoint", "active_revision__engine__checkpoint"
    ).get(pk=deployment_id)
    return Served(row, capabilities.of(row), tuple(selectors.weighted_endpoints(row)), now)
