"""The list of builds as its page shows it: the filter out of the address, and what there is to choose from."""

from __future__ import annotations

from typing import Any

from django.db.models import F, QuerySet, Value
from django.http import HttpRequest
from django.utils.translation import gettext as _
from pydantic import ValidationError

from apps.core.exceptions import InvalidInput
from apps.dashboard import lists
from apps.engines.build_lists import ACTIVE, BuildFilter, narrowed, requesters
from apps.engines.models import Build, BuildProfile, Quantization, QuantizationProfile
from apps.engines.states import BUILD
from apps.fleet.models import Node
from apps.registry.models import Checkpoint

# As many names as a person looks through; more are typed.
CHOICES = 200
# Filters that stand behind "More" until one of them is set.
MORE = ("checkpoint", "builder", "recipe", "type", "node", "who")
# Columns that the list does not show, and that may be large.
UNSHOWN = ("diagnosis", "spec", "checkpoint__chat_template", "checkpoint__facts", "engine__manifest")


def filter_of(request: HttpRequest) -> BuildFilter:
    """What the address asks for; what it cannot mean is left out."""
    values = {name: request.GET.get(name, "") for name in BuildFilter.model_fields}
    while True:
        try:
            wanted = BuildFilter.model_validate(values)
            narrowed(Build.objects.none(), wanted)
        except ValidationError as error:
            bad = {str(found["loc"][0]) for found in error.errors()}
        except InvalidInput as error:
            bad = {error.field}
        else:
            return wanted
        values = {name: value for name, value in values.items() if name not in bad}


def rows_of(wanted: BuildFilter) -> QuerySet[Build]:
    """The builds that fit, newest first, without what the list does not show."""
    shown = Build.objects.select_related("checkpoint", "engine", "requested_by").defer(*UNSHOWN)
    return narrowed(shown, wanted)


def filters(request: HttpRequest, wanted: BuildFilter) -> dict[str, Any]:
    """Context of the filter bar. One query."""
    context = lists.filters(request, BUILD)
    names = _names()
    kinds = [
        *Quantization.values,
        *(kind for kind in QuantizationProfile.Format.values if kind not in Quantization.values),
    ]
    return context | {
        "states": (ACTIVE, *BUILD.values),
        "checkpoints": [name for name, _text in names["checkpoint"]],
        "selects": [
            _select("builder", _("Builder"), _("Any builder"), BuildProfile.Builder.choices, wanted),
            _select("recipe", _("Recipe"), _("Any recipe"), _recipes(), wanted),
            _select("type", _("Weight type"), _("Any type"), [(kind, kind) for kind in kinds], wanted),
            _select("node", _("Node"), _("Any node"), names["node"], wanted),
            _select("who", _("Asked for by"), _("Anybody"), names["who"], wanted),
        ],
        "periods": [
            ("24h", _("Last 24 hours")),
            ("7d", _("Last 7 days")),
            ("30d", _("Last 30 days")),
            ("90d", _("Last 90 days")),
        ],
        "more": any(getattr(wanted, name) for name in MORE),
    }


def _select(name: str, label: str, any_one: str, choices: Any, wanted: BuildFilter) -> dict[str, Any]:
    value = getattr(wanted, name)
    options = list(choices)
    if value and value not in dict(options):
        options.append((value, value))
    return {"name": name, "label": label, "any": any_one, "options": options, "value": value}


def _recipes() -> list[tuple[str, str]]:
    return [("engine", _("engine")), ("checkpoint", _("checkpoint"))]


def _names() -> dict[str, list[tuple[str, str]]]:
    """(value, text) of what is called by name, in one query: nodes, who asked for a build, checkpoints."""
    found: dict[str, list[tuple[str, str]]] = {"checkpoint": [], "node": [], "who": []}
    nodes = _called(Node.objects.all(), "node", "node_id", "hostname")
    people = _called(requesters(), "who", "username", "username")
    checkpoints = _called(Checkpoint.objects.all(), "checkpoint", "name", "name")
    rows = nodes.union(people, checkpoints, all=True).order_by("-of", "value")[: 3 * CHOICES]
    for kind, value, text in rows:
        found[kind].append((value, text or value))
    return {kind: rows[:CHOICES] for kind, rows in found.items()}


def _called(rows: QuerySet[Any], kind: str, value: str, text: str) -> QuerySet[Any, Any]:
    named: QuerySet[Any, Any] = rows.order_by().annotate(of=Value(kind), value=F(value), text=F(text))
    return named.values_list("of", "value", "text")
