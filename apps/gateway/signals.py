"""What raises the table's version: rows of this app, and whatever moves an instance into or out of service."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db.models import Model
from django.db.models.signals import post_delete, post_save

from apps.core.transitions import state_changed
from apps.gateway import table
from apps.gateway.models import ExternalDeployment, GatewayKey, GatewayRoute
from apps.registry.models import Checkpoint
from apps.serving import states
from apps.serving.models import Deployment, Instance, Revision

_SAVED: tuple[type[Model], ...] = (GatewayKey, GatewayRoute, ExternalDeployment, Deployment)
_MOVED: tuple[type[Model], ...] = (Deployment, Revision, Instance, Checkpoint)


def _changed(sender: Any, **kwargs: Any) -> None:
    table.bump()


def _person_saved(sender: Any, created: bool, update_fields: Any = None, **kwargs: Any) -> None:
    # A sign-in writes last_login alone.
    if not created and (update_fields is None or "is_active" in update_fields):
        table.bump()


def _moved(sender: Any, instance: Any, from_state: str, to_state: str, **kwargs: Any) -> None:
    """Instances matter while they serve; the rows of deployment and revision say who gets which share."""
    if isinstance(instance, Instance) and states.SERVING not in (from_state, to_state):
        return
    table.bump()


def connect() -> None:
    """Called once when Django is ready."""
    for model in _SAVED:
        post_save.connect(_changed, sender=model, dispatch_uid=f"gateway.saved.{model.__name__}")
        post_delete.connect(_changed, sender=model, dispatch_uid=f"gateway.deleted.{model.__name__}")
    post_save.connect(_person_saved, sender=User, dispatch_uid="gateway.person.saved")
    for model in _MOVED:
        state_changed.connect(_moved, sender=model, dispatch_uid=f"gateway.moved.{model.__name__}")
