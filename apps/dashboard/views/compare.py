"""Compare: the same questions to several engines, side by side; and the prompt sets that it asks."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.chat import comparisons, exports, prompt_sets, selectors, services, sharing
from apps.chat.compare_api import download
from apps.chat.comparison_inputs import LEAST_SIDES, MOST_SIDES
from apps.core.exceptions import InvalidInput
from apps.dashboard import compare_page, lists, pages
from apps.dashboard.access import person
from apps.dashboard.pages import action, page

CONVERSATIONS_SHOWN = 30
_NUMBERS: dict[str, type] = {"max_tokens": int, "temperature": float, "seed": int}


@page(Action.CHAT)
def compare(request: HttpRequest) -> HttpResponse:
    """My comparisons, and a new one; `?conversation=` begins it with a saved conversation."""
    given = request.GET.get("conversation", "")
    chosen = selectors.conversation(person(request), int(given)) if given.isdecimal() else None
    rows = lists.search(comparisons.comparisons(person(request)), request.GET.get("q", ""), ["title"])
    context = {
        "title": _("Compare"),
        "here": "playground",
        "page": lists.page_of(request, rows),
        "filtered": bool(request.GET.get("q")),
        "given": request.GET,
        "engines": compare_page.engines(),
        "choices": range(MOST_SIDES),
        "least": LEAST_SIDES,
        "sets": prompt_sets.prompt_sets(),
        "conversations": selectors.conversations(person(request))[:CONVERSATIONS_SHOWN],
        "chosen": chosen,
    }
    return render(request, "pages/compare.html", context)


@action(Action.CHAT)
def new(request: HttpRequest) -> HttpResponse:
    """Begin a comparison."""
    row = services.create_comparison(person(request), _given(request))
    words = _("It is asked now; the comparison is kept here.")
    return pages.done(request, words, to=reverse("chat:comparison", args=[row.pk]) + "?run", stay=False)


@page(Action.CHAT)
def comparison(request: HttpRequest, pk: int) -> HttpResponse:
    """One comparison."""
    row = comparisons.comparison(person(request), pk)
    mine = row.owner_id == person(request).pk
    context = {
        "title": str(row),
        "here": "playground",
        "mine": mine,
        "link": sharing.link_of(row),
        "shared": False,
        **compare_page.context(row, mine),
    }
    return render(request, "pages/comparison.html", context)


@action(Action.CHAT)
def repeat(request: HttpRequest, pk: int) -> HttpResponse:
    """The same comparison once more."""
    row = services.repeat_comparison(person(request), comparisons.comparison(person(request), pk))
    words = _("A new comparison of the same questions.")
    return pages.done(request, words, to=reverse("chat:comparison", args=[row.pk]) + "?run", stay=False)


@action(Action.CHAT)
def rename(request: HttpRequest, pk: int) -> HttpResponse:
    """Give a comparison another title."""
    row = comparisons.comparison(person(request), pk)
    services.rename_comparison(person(request), row, request.POST.get("title", ""))
    return pages.done(request, _("Renamed."), to=reverse("chat:comparison", args=[pk]), stay=False)


@action(Action.CHAT)
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a comparison."""
    services.delete_comparison(person(request), comparisons.comparison(person(request), pk))
    return pages.done(request, _("The comparison is deleted."), to=reverse("chat:compare"), stay=False)


@action(Action.CHAT)
def share(request: HttpRequest, pk: int) -> HttpResponse:
    """Make the link to a comparison."""
    services.share(person(request), comparisons.comparison(person(request), pk))
    words = _("Shared: the link is on this page.")
    return pages.done(request, words, to=reverse("chat:comparison", args=[pk]), stay=False)


@page(Action.CHAT)
def export(request: HttpRequest, pk: int, wanted: str) -> HttpResponse:
    """A comparison as a file."""
    return download(comparisons.comparison(person(request), pk), wanted)


@action(Action.CONFIGURE)
def save_prompt_set(request: HttpRequest) -> HttpResponse:
    """Make a prompt set, or change the one of that name."""
    name = request.POST.get("name", "").strip()
    found = prompt_sets.prompt_sets().filter(name=name).first()
    data: dict[str, Any] = {
        "description": request.POST.get("description", "").strip(),
        "prompts": prompt_sets.from_lines(request.POST.get("prompts", "")),
    }
    services.save_prompt_set(person(request), data if found else {"name": name, **data}, found)
    return pages.done(request, _("The prompt set is saved."), to=reverse("chat:compare"), stay=False)


@action(Action.CONFIGURE)
def delete_prompt_set(request: HttpRequest, name: str) -> HttpResponse:
    """Delete a prompt set."""
    services.delete_prompt_set(person(request), prompt_sets.prompt_set(name))
    return pages.done(request, _("The prompt set is deleted."), to=reverse("chat:compare"), stay=False)


@page(Action.VIEW)
def shared(request: HttpRequest, uid: str) -> HttpResponse:
    """What a link shows: a conversation or a comparison, to look at."""
    link, target = sharing.shown(person(request), uid)
    context: dict[str, Any] = {
        "title": str(target),
        "here": "playground",
        "link": link,
        "shared": True,
        "mine": False,
        "revocable": link.created_by_id == person(request).pk,
    }
    if link.comparison is not None:
        return render(
            request, "pages/comparison.html", context | compare_page.context(link.comparison, mine=False)
        )
    assert link.conversation is not None  # noqa: S101 - the table's own constraint
    value = exports.conversation_value(link.conversation)
    return render(request, "pages/shared_conversation.html", context | {"talk": value})


@page(Action.VIEW)
def export_shared(request: HttpRequest, uid: str, wanted: str) -> HttpResponse:
    """What a link shows, as a file."""
    _link, target = sharing.shown(person(request), uid)
    return download(target, wanted)


@action(Action.CHAT)
def revoke(request: HttpRequest, uid: str) -> HttpResponse:
    """Revoke a link."""
    link = services.revoke_link(person(request), sharing.link(uid))
    to = (
        reverse("chat:comparison", args=[link.comparison_id])
        if link.comparison_id
        else reverse("chat:conversation", args=[link.conversation_id])
    )
    return pages.done(request, _("The link is revoked."), to=to, stay=False)


@action(Action.CHAT)
def share_conversation(request: HttpRequest, pk: int) -> HttpResponse:
    """Make the link to a conversation, and go to what it shows."""
    link = services.share(person(request), selectors.conversation(person(request), pk))
    words = _("Shared: copy this page's address. Whoever is signed in and has it sees this.")
    return pages.done(request, words, to=reverse("chat:shared", args=[link.uid]), stay=False)


@page(Action.CHAT)
def export_conversation(request: HttpRequest, pk: int, wanted: str) -> HttpResponse:
    """A conversation as a file."""
    return download(selectors.conversation(person(request), pk), wanted)


def _given(request: HttpRequest) -> dict[str, Any]:
    """The form in the shape of comparison_inputs.ComparisonFields."""
    data = request.POST
    given: dict[str, Any] = {
        "sides": [_side(value) for value in data.getlist("side") if value],
        "mode": data.get("mode", "together"),
        "title": data.get("title", ""),
        "chained": data.get("chained") == "on",
    }
    source = data.get("source", "prompts")
    if source == "set":
        given["prompt_set"] = data.get("prompt_set") or None
    elif source == "conversation":
        given |= {"conversation": _number("conversation", data.get("conversation", ""), int)}
        given["recorded"] = data.get("recorded") == "on"
    else:
        given["prompts"] = prompt_sets.from_lines(data.get("prompts", ""))
    if data.get("system_prompt", "").strip():
        given["system_prompt"] = data["system_prompt"]
    params = {
        name: found
        for name, kind in _NUMBERS.items()
        if (found := _number(name, data.get(name, ""), kind)) is not None
    }
    if params:
        given["params"] = params
    return given


def _side(value: str) -> dict[str, Any]:
    if value.startswith("external:"):
        return {"external": value.removeprefix("external:")}
    name, _at, number = value.partition("@")
    return {"deployment": name, "revision": int(number) if number.isdecimal() else None}


def _number(field: str, text: str, kind: type) -> Any:
    if not text.strip():
        return None
    try:
        return kind(text)
    except ValueError as error:
        raise InvalidInput(
            "not_a_number",
            _("%(field)s is no number: %(text)s.") % {"field": field, "text": text[:40]},
            field=field,
            remedy=_("Write a number, or leave it empty for the engine's default."),
        ) from error
