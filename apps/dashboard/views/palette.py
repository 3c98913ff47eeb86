"""The command palette's JSON."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache

from apps.dashboard import palette as entries
from apps.dashboard.access import actions_of, person

_MOST_LETTERS = 100


@never_cache
def palette(request: HttpRequest) -> HttpResponse:
    """{"items": [...]} for ?q=; whoever has no role gets an empty list."""
    words = request.GET.get("q", "")[:_MOST_LETTERS]
    found = entries.items(person(request), actions_of(request), words)
    return JsonResponse({"items": [item.as_dict() for item in found]})
