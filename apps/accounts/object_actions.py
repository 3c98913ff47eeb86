"""Buttons of the admin: each one calls a service and says what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.functional import Promise
from django.views.decorators.http import require_POST

from apps.accounts.roles import Action, may
from apps.core.exceptions import InflightError


def _always(row: Any) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ObjectAction:
    """One button. `run(user, row)` calls the service and returns the sentence that is shown.

    `available` says whether the row's state allows it now; the service decides in the end. `confirm`, where given,
    is the question asked before: it names what will happen.
    """

    name: str
    title: str | Promise
    needs: Action
    run: Callable[[User, Any], str]
    available: Callable[[Any], bool] = _always
    confirm: str | Promise = ""
    danger: bool = False


class ObjectActionsMixin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Shows `object_actions` on the page of a row and, for several rows, in the list."""

    object_actions: tuple[ObjectAction, ...] = ()

    def get_urls(self) -> list[URLPattern]:
        """One address for all buttons of a row."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_do"
        view = self.admin_site.admin_view(require_POST(self._do))
        return [path("<int:pk>/do/<slug:action>/", view, name=name), *super().get_urls()]

    def buttons_for(self, request: HttpRequest, row: Model) -> list[dict[str, Any]]:
        """Buttons that this person may press on this row, with their addresses."""
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_do"
        return [
            {"action": item, "url": reverse(name, args=[row.pk, item.name]), "available": item.available(row)}
            for item in self.object_actions
            if may(cast(User, request.user), item.needs)
        ]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """The same buttons for several rows. Rows are deleted one by one, each with its own page."""
        actions: dict[str, Any] = super().get_actions(request)
        actions.pop("delete_selected", None)
        for item in self.object_actions:
            if may(cast(User, request.user), item.needs):
                actions[item.name] = (self._bulk(item), item.name, str(item.title))
        return actions

    def _do(self, request: HttpRequest, pk: int, action: str) -> HttpResponse:
        item = next((item for item in self.object_actions if item.name == action), None)
        row = self.get_object(request, str(pk))
        if item is None or row is None:
            raise Http404
        if not may(cast(User, request.user), item.needs):
            raise PermissionDenied
        self._run(request, item, row)
        back = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[pk])
        return HttpResponseRedirect(back)

    def _run(self, request: HttpRequest, item: ObjectAction, row: Model) -> None:
        try:
            messages.success(request, item.run(cast(User, request.user), row))
        except InflightError as error:
            messages.error(request, f"{row}: {sentence_of(error)}")

    def _bulk(self, item: ObjectAction) -> Callable[..., HttpResponse | None]:
        def act(
            modeladmin: admin.ModelAdmin[Any], request: HttpRequest, rows: QuerySet[Any]
        ) -> HttpResponse | None:
            if item.confirm and "confirmed" not in request.POST:
                return self._confirmation(request, item, rows)
            for row in rows:
                self._run(request, item, row)
            return None

        return act

    def _confirmation(self, request: HttpRequest, item: ObjectAction, rows: QuerySet[Any]) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": item.title,
            "item": item,
            "rows": rows,
            "opts": self.opts,
            "checkbox_name": helpers.ACTION_CHECKBOX_NAME,
        }
        return TemplateResponse(request, "admin/inflight/confirm.html", context)


def sentence_of(error: InflightError) -> str:
    """What happened and what to do about it, in one line."""
    return f"{error.sentence} {error.remedy}".strip()
