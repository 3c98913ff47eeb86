"""The one way from a view to a service and back: role check, errors as pages, messages and toasts.

A page is `@page(Action.VIEW)`; an action is `@action(Action.OPERATE)`, answers POST only and returns `done(...)`.
Whatever InflightError a service raises becomes its sentence and remedy, with its status, in the same frame.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.contrib import messages
from django.forms import Form
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.accounts.roles import Action, require
from apps.core.exceptions import InflightError, InvalidInput, NotAllowed
from apps.dashboard.access import may

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponseBase]

_TITLES = {
    403: gettext_lazy("Not allowed"),
    404: gettext_lazy("Not found"),
    409: gettext_lazy("Not possible now"),
    422: gettext_lazy("Refused"),
    503: gettext_lazy("Out of reach"),
}


def page(needs: Action) -> Callable[[View[P]], View[P]]:
    """A view that people with `needs` may open, by GET or POST."""
    return _guard(needs, None)


def action(needs: Action) -> Callable[[View[P]], View[P]]:
    """A view that changes something: POST only."""
    return _guard(needs, "POST")


def _guard(needs: Action, method: str | None) -> Callable[[View[P]], View[P]]:
    def decorate(view: View[P]) -> View[P]:
        @wraps(view)
        def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            if method and request.method != method:
                return HttpResponseNotAllowed([method])
            try:
                if not may(request, needs):
                    require(request.user, needs)
                response = view(request, *args, **kwargs)
            except InflightError as error:
                response = refused(request, error)
            # The same address answers a page, its main column alone, or a toast.
            patch_vary_headers(response, ("X-Part", "HX-Request"))
            return response

        return guarded

    return decorate


def wants_fragment(request: HttpRequest) -> bool:
    """Whether htmx asked, so that a toast answers instead of a page."""
    return bool(getattr(request, "htmx", False))


def toast(response: HttpResponse, tone: str, text: str, more: str = "") -> HttpResponse:
    """Tell the browser to show a toast once it has the response."""
    response["HX-Trigger"] = json.dumps({"toast": {"tone": tone, "text": text, "more": more}})
    return response


def done(request: HttpRequest, text: str, *, to: str, stay: bool = True) -> HttpResponse:
    """An action went well: a toast where htmx asked and the page may stay, else a message and a redirect."""
    if wants_fragment(request) and stay:
        response = toast(HttpResponse(status=204), "ok", text)
        return _refresh(response)
    messages.success(request, text)
    if wants_fragment(request):
        response = HttpResponse(status=204)
        response["HX-Redirect"] = to
        return response
    return HttpResponseRedirect(to, status=303)


def _refresh(response: HttpResponse) -> HttpResponse:
    said = json.loads(response["HX-Trigger"])
    response["HX-Trigger"] = json.dumps({**said, "refresh": {}})
    return response


def warn(request: HttpRequest, text: str, error: InflightError) -> None:
    """A message for the next page: what was done, and why the rest was not."""
    messages.error(request, f"{text} {_sentence(error.sentence, error.remedy)}")


def refused(request: HttpRequest, error: InflightError) -> HttpResponse:
    """The error as a toast (htmx) or as a page in the frame."""
    if wants_fragment(request):
        response = toast(HttpResponse(status=error.status), "bad", error.sentence, error.remedy)
        response["HX-Reswap"] = "none"
        return response
    title = _TITLES.get(error.status, _("Refused"))
    context = {
        "error": error,
        "title": title,
        "back": "" if isinstance(error, NotAllowed) else _back(request),
    }
    return render(request, "error.html", context, status=error.status)


def _back(request: HttpRequest) -> str:
    """The page of ours that the person came from, or an empty text."""
    came_from = request.headers.get("Referer", "")
    good = url_has_allowed_host_and_scheme(came_from, {request.get_host()}, request.is_secure())
    return came_from if good else ""


def show_in(form: Form, error: InflightError, fields: dict[str, str] | None = None) -> None:
    """Put a service's refusal beside the field it blames, or above the form where it blames none.

    `fields` maps the service's field names to the form's, where they differ.
    """
    named = fields or {}
    lines: list[tuple[str, str]] = []
    if isinstance(error, InvalidInput) and error.findings:
        lines = [(f.where, _sentence(f.message, f.remedy)) for f in error.findings if f.severity == "error"]
    if not lines:
        lines = [(error.field, _sentence(error.sentence, error.remedy))]
    for where, text in lines:
        name = named.get(where, where)
        form.add_error(name if name in form.fields else None, text)


def _sentence(text: str, remedy: str) -> str:
    return f"{text} {remedy}".strip()
