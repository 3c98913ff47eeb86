"""What the frame of every page needs. Lazy: a template that does not ask costs no query."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from apps.accounts.roles import Action, roles_of
from apps.dashboard import health, navigation, work
from apps.dashboard.access import actions_of
from apps.dashboard.icons import SHAPES
from apps.telemetry.alerts import selectors as alerts

# A refresh of live regions asks for the main column alone.
PART_HEADER = "X-Part"


def frame(request: HttpRequest) -> dict[str, Any]:
    """Context of the frame: places, the person's actions as words, running work, health of live updates."""
    part = request.headers.get(PART_HEADER) == "main"
    base = {"frame_template": "frame_part.html" if part else "frame.html", "error_template": "alone.html"}
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {**base, "can": {}, "places": []}
    base["error_template"] = "error_in_frame.html"
    return {
        **base,
        "can": SimpleLazyObject(lambda: {a.name.lower(): a in actions_of(request) for a in Action}),
        "tones": tuple(SHAPES),
        "places": SimpleLazyObject(lambda: navigation.places(request)),
        "roles": SimpleLazyObject(lambda: sorted(roles_of(user))),
        "running_work": SimpleLazyObject(
            lambda: work.running() if Action.VIEW in actions_of(request) else []
        ),
        "live_problem": SimpleLazyObject(health.live_problem),
        "bell": SimpleLazyObject(alerts.raised),
    }
