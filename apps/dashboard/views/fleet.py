"""Fleet: the map of all nodes, and what may be done to a node or a slot."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.dashboard import lists, pages
from apps.dashboard.access import person
from apps.dashboard.fleet import bars
from apps.dashboard.fleet import map as fleet_map
from apps.dashboard.pages import action, page
from apps.fleet import selectors, services, states
from apps.fleet.models import Node

SEARCHED = ("node_id", "hostname", "labels", "gpus__product")
TROUBLED = Q(state__in=(states.SUSPECT, states.LOST))


@page(Action.VIEW)
def fleet(request: HttpRequest) -> HttpResponse:
    """Every node with its slots, as much of each as there is room for."""
    by = fleet_map.chosen_by(request.GET.get("by", ""))
    found = _found(request)
    shown = lists.page_of(request, fleet_map.ordered(found), fleet_map.MOST)
    counts = found.aggregate(troubled=Count("pk", filter=TROUBLED, distinct=True))
    hosts = fleet_map.hosts(list(shown), by)
    density = fleet_map.density(len(hosts))
    filters = lists.filters(request, states.NODE)
    filters["filtered"] = any(request.GET.get(name) for name in ("q", "state"))
    context: dict[str, Any] = {
        "title": _("Fleet"),
        "here": "fleet",
        "page": shown,
        "hosts": hosts,
        "by": by,
        "choices": _choices(request, by),
        "density": density,
        "bars": bars.markup(hosts) if density == "dense" else "",
        "totals": fleet_map.totals(hosts, shown.paginator.count, counts["troubled"]),
        "filters": filters,
    }
    return render(request, "pages/fleet.html", context)


def _found(request: HttpRequest) -> QuerySet[Node]:
    rows = Node.objects.all()
    words = request.GET.get("q", "")
    if words.strip():
        rows = rows.filter(pk__in=lists.search(Node.objects.all(), words, SEARCHED).values("pk"))
    return lists.in_state(request, rows, states.NODE)


def _choices(request: HttpRequest, by: str) -> list[dict[str, Any]]:
    given = request.GET.copy()
    given.pop("page", None)
    choices = []
    for name, label in fleet_map.BY.items():
        given["by"] = name
        choices.append({"name": name, "label": label, "url": f"?{given.urlencode()}", "current": name == by})
    return choices


def _node_page(node_id: str) -> str:
    return reverse("fleet:node", args=[node_id])


@action(Action.OPERATE)
def cordon(request: HttpRequest, node_id: str) -> HttpResponse:
    """Take no new work on a node."""
    reason = request.POST.get("reason", "")
    node = services.set_cordoned(person(request), selectors.node(node_id), True, reason)
    return pages.done(request, _("%(node)s takes no new work.") % {"node": node}, to=_node_page(node_id))


@action(Action.OPERATE)
def uncordon(request: HttpRequest, node_id: str) -> HttpResponse:
    """Take new work again."""
    node = services.set_cordoned(person(request), selectors.node(node_id), False)
    return pages.done(request, _("%(node)s takes work again.") % {"node": node}, to=_node_page(node_id))


@action(Action.OPERATE)
def probe(request: HttpRequest, node_id: str) -> HttpResponse:
    """Look at a node's toolchains again."""
    node = services.probe_toolchains(person(request), selectors.node(node_id))
    return pages.done(
        request, _("%(node)s looks at its toolchains.") % {"node": node}, to=_node_page(node_id)
    )


@action(Action.CONFIGURE)
def price(request: HttpRequest, node_id: str, index: int) -> HttpResponse:
    """Say what a slot costs per hour."""
    slot = services.set_price(person(request), selectors.slot(node_id, index), request.POST.get("price", ""))
    known = slot.price_per_hour is not None
    text = _("The price of %(slot)s is kept.") if known else _("The price of %(slot)s is not known any more.")
    return pages.done(request, text % {"slot": slot}, to=_node_page(node_id))
