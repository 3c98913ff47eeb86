"""Telling a person's open sockets at once that their session or roles changed; they check for themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_out
from django.db import transaction
from django.db.models.signals import m2m_changed, post_save

from apps.realtime.groups import user_group
from apps.realtime.publisher import publisher


def recheck(user_id: int) -> None:
    """Have every socket of a person look again at session and roles, after the commit."""
    transaction.on_commit(lambda: publisher.send(user_group(user_id), {"type": "access.changed"}))


def _on_signed_out(sender: Any, user: User | None, **kwargs: Any) -> None:
    if user is not None:
        recheck(user.pk)


def _on_user_saved(
    sender: Any, instance: User, created: bool, update_fields: Iterable[str] | None, **kwargs: Any
) -> None:
    # Each sign-in saves last_login alone.
    if not created and set(update_fields or ()) != {"last_login"}:
        recheck(instance.pk)


def _on_groups_changed(
    sender: Any, instance: Any, action: str, reverse: bool, pk_set: set[int] | None, **kwargs: Any
) -> None:
    if action not in {"post_add", "post_remove", "post_clear"}:
        return
    for user_id in (pk_set or ()) if reverse else (instance.pk,):
        recheck(user_id)


def connect() -> None:
    """Listen; called once when Django is ready. What is missed here the sockets' own check finds (base.py)."""
    model = get_user_model()
    user_logged_out.connect(_on_signed_out, dispatch_uid="realtime.signed_out")
    post_save.connect(_on_user_saved, sender=model, dispatch_uid="realtime.user_saved")
    m2m_changed.connect(
        _on_groups_changed, sender=model.groups.through, dispatch_uid="realtime.groups_changed"
    )
