"""What every list page does: filters out of the URL, one page of rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from django.core.paginator import Page, Paginator
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest

from apps.core.states import StateMachine

PAGE_ROWS = 50
Row = TypeVar("Row", bound=Model)


def page_of(request: HttpRequest, rows: QuerySet[Row], size: int = PAGE_ROWS) -> Page[Row]:
    """The page that ?page= asks for, the last one where it asks for more. Two queries."""
    return Paginator(rows, size).get_page(request.GET.get("page"))


def search(rows: QuerySet[Row], words: str, columns: Iterable[str]) -> QuerySet[Row]:
    """Rows in which every word of the search appears in one of the columns."""
    for word in words.split():
        found = Q()
        for column in columns:
            found |= Q(**{f"{column}__icontains": word})
        rows = rows.filter(found)
    return rows


def in_state(request: HttpRequest, rows: QuerySet[Row], machine: StateMachine) -> QuerySet[Row]:
    """Rows in the state that ?state= names; `active` stands for all that move."""
    wanted = request.GET.get("state", "")
    if wanted == "active" and "active" not in machine.values:
        return rows.filter(state__in=machine.active)
    return rows.filter(state=wanted) if wanted in machine.values else rows


def filters(request: HttpRequest, machine: StateMachine, **more: Any) -> dict[str, Any]:
    """Context of the filter bar: what the URL says now, and the states to choose from."""
    given = {key: value for key, value in request.GET.items() if value and key != "page"}
    return {"given": given, "states": machine.values, "filtered": bool(given), **more}
