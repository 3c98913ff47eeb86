"""What is kept on the disk and taken in from elsewhere: clean-up with its dry run, pins, policy, imported engines."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.core.exceptions import InflightError, NotFound
from apps.dashboard import facts, formats, pages
from apps.dashboard.access import person
from apps.dashboard.engine_forms import ImportForm, PolicyForm
from apps.dashboard.pages import action, page
from apps.engines import imports, retention, services
from apps.engines.domain.retention import KINDS, Decision
from apps.engines.models import Build, Engine

# Rows of one page; the largest come first, and the sums count all.
SHOWN = 200


@page(Action.VIEW)
def clean_up(request: HttpRequest) -> HttpResponse:
    """The dry run: what would go, what size it has, and why the rest stays."""
    return _clean_up_page(request, PolicyForm(initial=retention.policy_dict(retention.policy_row())))


def _clean_up_page(request: HttpRequest, form: PolicyForm, status: int = 200) -> HttpResponse:
    found = retention.plan_clean_up()
    going = [each for each in found if each.remove]
    staying = [each for each in found if not each.remove]
    row = retention.policy_row()
    bytes_going = sum(each.item.size_bytes for each in going)
    context = {
        "title": _("Clean-up"),
        "here": "builds",
        "going": going[:SHOWN],
        "going_more": max(0, len(going) - SHOWN),
        "staying": staying[:SHOWN],
        "staying_more": max(0, len(staying) - SHOWN),
        "bytes_going": bytes_going,
        "sums": [(kind, *_sum(found, kind)) for kind in KINDS],
        "links": _links(found),
        "form": form,
        "policy": row,
        "confirm": _("%(n)s things of %(size)s are removed. What came into use meanwhile stays.")
        % {"n": len(going), "size": formats.filesize(bytes_going)},
    }
    return render(request, "pages/clean_up.html", context, status=status)


def _sum(found: list[Decision], kind: str) -> tuple[int, int]:
    mine = [each.item.size_bytes for each in found if each.item.kind == kind]
    return len(mine), sum(mine)


def _links(found: list[Decision]) -> dict[str, str]:
    """Page of each item that has one: the newest build of an engine, the build of a log."""
    engines = [each.item.key for each in found if each.item.kind == "engine"]
    numbers = Build.objects.filter(engine__fingerprint__in=engines).order_by("number")
    links = {
        f"engine:{fingerprint}": reverse("engines:build", args=[number])
        for fingerprint, number in numbers.values_list("engine__fingerprint", "number")
    }
    for each in found:
        if each.item.kind == "log":
            links[each.id] = reverse("engines:build", args=[int(each.item.key.split("-")[0])])
    return links


@action(Action.OPERATE)
def clean(request: HttpRequest) -> HttpResponse:
    """Remove what was ticked of the dry run."""
    cleaned = services.clean_up(person(request), request.POST.getlist("item"))
    text = _("%(n)s things were removed, %(size)s are free.") % {
        "n": len(cleaned.removed),
        "size": formats.filesize(cleaned.bytes),
    }
    if cleaned.failed:
        first, why = cleaned.failed[0]
        text += " " + _("%(n)s could not be: %(title)s: %(why)s") % {
            "n": len(cleaned.failed),
            "title": first.item.title,
            "why": why,
        }
    return pages.done(request, text, to=reverse("engines:clean_up"), stay=False)


@action(Action.OPERATE)
def pin(request: HttpRequest) -> HttpResponse:
    """Keep something from every clean-up, or let it go."""
    kind, _colon, key = request.POST.get("item", "").partition(":")
    pinned = request.POST.get("pinned") == "1"
    services.set_pinned(person(request), kind, key, pinned)
    text = _("It is kept from every clean-up.") if pinned else _("A clean-up may remove it.")
    return pages.done(request, text, to=reverse("engines:clean_up"), stay=False)


@action(Action.CONFIGURE)
def policy(request: HttpRequest) -> HttpResponse:
    """Change how long things are kept."""
    form = PolicyForm(request.POST)
    if form.is_valid():
        try:
            services.save_retention_policy(person(request), form.cleaned_data)
        except InflightError as error:
            pages.show_in(form, error)
        else:
            return pages.done(request, _("The policy is saved."), to=reverse("engines:clean_up"), stay=False)
    return _clean_up_page(request, form, status=422)


@page(Action.CONFIGURE)
def import_engine(request: HttpRequest) -> HttpResponse:
    """Look at a folder, then take it in."""
    if request.method != "POST":
        return _import_page(request, ImportForm(initial={"path": request.GET.get("path", "")}))
    form = ImportForm(request.POST)
    if not form.is_valid():
        return _import_page(request, form, status=422)
    data = {name: str(value or "") for name, value in form.cleaned_data.items()}
    try:
        if "look" in request.POST:
            return _import_page(request, form, looked=imports.look_at_engine(data["path"]))
        engine = services.import_engine(person(request), data)
    except InflightError as error:
        pages.show_in(form, error)
        return _import_page(request, form, status=422)
    return HttpResponseRedirect(reverse("engines:engine", args=[engine.pk]), status=303)


def _import_page(
    request: HttpRequest, form: ImportForm, status: int = 200, looked: imports.Looked | None = None
) -> HttpResponse:
    context: dict[str, Any] = {
        "title": _("Import an engine"),
        "here": "builds",
        "form": form,
        "looked": looked,
    }
    if looked is not None:
        context["rows"] = facts.engine_folder(looked)
        context["findings"] = looked.engine.findings
    return render(request, "pages/engine_import.html", context, status=status)


@page(Action.VIEW)
def engine(request: HttpRequest, pk: int) -> HttpResponse:
    """An engine's page: that of its newest build, or its own where nothing here built it."""
    row = Engine.objects.select_related("checkpoint", "node").filter(pk=pk).first()
    if row is None:
        raise NotFound(
            "engine_unknown",
            _("There is no engine %(number)s.") % {"number": pk},
            remedy=_("See the list of builds."),
        )
    number = row.builds.order_by("-number").values_list("number", flat=True).first()
    if number is not None:
        return HttpResponseRedirect(reverse("engines:build", args=[number]))
    context = {
        "title": str(row),
        "here": "builds",
        "row": row,
        "facts": facts.engine(row),
        "limits": facts.imported(row),
    }
    return render(request, "pages/engine.html", context)
