"""What is done with builds beside starting and ending them: two compared, a remedy applied, one for another node."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.core.exceptions import InvalidInput, NotFound
from apps.dashboard import build_page, pages
from apps.dashboard.access import person
from apps.dashboard.pages import action, page
from apps.engines import rebuilds, remedies, selectors
from apps.engines.comparing import comparison
from apps.engines.models import Build
from apps.fleet.selectors import node as find_node

# Builds to choose from; others are typed.
CHOICES = 50


@page(Action.VIEW)
def compare(request: HttpRequest) -> HttpResponse:
    """Two builds side by side: ?a=12&b=15; without both, which two."""
    if not (request.GET.get("a") and request.GET.get("b")):
        given = {name: request.GET.get(name, "") for name in ("a", "b")}
        newest = selectors.builds()[:CHOICES]
        context = {"title": _("Compare two builds"), "here": "builds", "given": given, "newest": newest}
        return render(request, "pages/build_compare_which.html", context)
    left, right = (_asked(request, name) for name in ("a", "b"))
    found = comparison(left, right)
    shown: dict[str, Any] = {
        "title": _("Compare #%(a)s and #%(b)s") % {"a": left.number, "b": right.number},
        "here": "builds",
        "left": left,
        "right": right,
        "sides": (left, right),
        "found": found,
        "verdict": build_page.verdict(found),
        "sections": build_page.sections(found),
    }
    return render(request, "pages/build_compare.html", shown)


def _asked(request: HttpRequest, name: str) -> Build:
    number = request.GET.get(name, "").removeprefix("#")
    if not number.isdecimal() or len(number) > 9:
        raise InvalidInput(
            "build_not_named",
            _("Two builds are compared, and %(name)s names none.") % {"name": name},
            field=name,
            remedy=_("Give two numbers: ?a=12&b=15. A build's page has links to compare it."),
        )
    return selectors.build(int(number))


@action(Action.CONFIGURE)
def apply_remedy(request: HttpRequest, number: int) -> HttpResponse:
    """Change the profile of a failed build as a remedy says, and build again."""
    row = remedies.apply_remedy(person(request), selectors.build(number), request.POST.get("remedy", ""))
    return pages.done(
        request,
        _("The profile is changed and build #%(number)s is queued.") % {"number": row.number},
        to=reverse("engines:build", args=[row.number]),
        stay=False,
    )


@action(Action.OPERATE)
def rebuild(request: HttpRequest, number: int) -> HttpResponse:
    """Build a build's engine for another node."""
    engine = selectors.build(number).engine
    if engine is None:
        raise NotFound(
            "engine_unknown",
            _("Build #%(number)s has no engine.") % {"number": number},
            remedy=_("Start a build of its profile."),
        )
    row = rebuilds.rebuild_for_node(person(request), engine, find_node(request.POST.get("node", "")))
    return pages.done(
        request,
        _("Build #%(number)s is queued.") % {"number": row.number},
        to=reverse("engines:build", args=[row.number]),
        stay=False,
    )
