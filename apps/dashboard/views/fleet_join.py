"""Hosts that join: tokens, the one command with which a worker is installed, and what that command fetches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import FileResponse, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from apps.accounts.roles import Action
from apps.core.exceptions import InflightError, InvalidInput
from apps.dashboard import lists, pages
from apps.dashboard.access import person
from apps.dashboard.pages import action, page
from apps.fleet import join_handover, join_source, join_tokens

INSTALLER = Path("deploy/install_worker.py")
# What the form offers, in minutes.
MINUTES = (15, 60, 240, 1440)


@page(Action.ADMINISTER)
def join(request: HttpRequest) -> HttpResponse:
    """Make a token; the command that holds it is shown in this one answer."""
    context: dict[str, Any] = {"title": _("Add a host"), "here": "fleet", "minutes": MINUTES}
    context["plain"] = not settings.INFLIGHT_WEB_URL.startswith("https://")
    try:
        # What would be refused is said before anybody presses the button.
        join_handover.require_reachable()
    except InflightError as error:
        context["refused"] = error
    if request.method == "POST":
        try:
            row, raw = join_tokens.create_join_token(
                person(request),
                labels=labels_of(request.POST.get("labels", "")),
                minutes=_minutes(request.POST.get("minutes", "")),
            )
            context |= {"made": row, "command": join_tokens.install_command(raw)}
        except InvalidInput as error:
            context["error"] = error
    rows = lists.page_of(request, join_tokens.join_tokens())
    context |= {"page": rows, "tokens": [(row, join_tokens.state_of(row)) for row in rows]}
    return render(request, "pages/fleet_join.html", context)


def labels_of(text: str) -> dict[str, str]:
    """Labels as people write them: KEY=VALUE, apart by spaces, commas or lines. Raises InvalidInput."""
    found = {}
    for word in text.replace(",", " ").split():
        key, separator, value = word.partition("=")
        if not separator:
            raise InvalidInput(
                "label_unreadable",
                _("“%(label)s” is no label.") % {"label": word[:60]},
                field="labels",
                remedy=_("Write KEY=VALUE, for example zone=a."),
            )
        found[key] = value
    return found


def _minutes(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 6 else 0


@action(Action.ADMINISTER)
def revoke(request: HttpRequest, pk: int) -> HttpResponse:
    """End a token that no host has used."""
    row = join_tokens.revoke_join_token(person(request), join_tokens.join_token(pk))
    return pages.done(
        request, _("%(token)s lets no host in any more.") % {"token": row}, to=reverse("fleet:join")
    )


@login_not_required
@require_GET
def installer(request: HttpRequest) -> HttpResponse:
    """The program that the command runs; it holds no secret."""
    text = (settings.BASE_DIR / INSTALLER).read_text(encoding="utf-8")
    return HttpResponse(text, content_type="text/x-python; charset=utf-8")


@login_not_required
@require_GET
def source(request: HttpRequest) -> HttpResponse | FileResponse:
    """This installation's program as a tar archive, for who has a good join token (Authorization: Bearer)."""
    scheme, _space, raw = request.headers.get("Authorization", "").partition(" ")
    try:
        join_tokens.check_join_token(raw.strip() if scheme.lower() == "bearer" else "")
    except InflightError as error:
        return JsonResponse(error.as_dict(), status=error.status)
    return FileResponse(join_source.archive(), as_attachment=True, filename="inflight.tar.gz")
