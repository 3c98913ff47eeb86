"""What the frame of every page needs."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest


def frame(request: HttpRequest) -> dict[str, Any]:
    """Context of the frame: the person's actions, as plain words that templates can ask for."""
    from apps.accounts.roles import Action, may

    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {"can": {}}
    return {"can": {action.name.lower(): may(user, action) for action in Action}}
