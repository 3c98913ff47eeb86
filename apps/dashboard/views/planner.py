"""The planner: what a checkpoint needs of a GPU, priced again at each change. It changes nothing."""

from __future__ import annotations

from typing import Any

import yaml
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.core.exceptions import InflightError, InvalidInput
from apps.dashboard import planner
from apps.dashboard.pages import page
from apps.engines import memory_plans
from apps.engines.domain.memory.inputs import PlanInput
from apps.registry.models import Checkpoint


@page(Action.VIEW)
def view(request: HttpRequest) -> HttpResponse:
    """The page; its address holds the whole plan."""
    rows = planner.checkpoints()
    row = planner.chosen(request.GET, rows)
    context = {"title": _("Planner"), "here": "planner", "checkpoints": rows, **_priced(request, row)}
    given = context["given"] or PlanInput()
    context["choices"] = planner.choices(rows, given)
    return render(request, "pages/planner.html", context)


@page(Action.VIEW)
def result(request: HttpRequest) -> HttpResponse:
    """The plan alone, for the form's changes; tells the browser the address of what it shows."""
    row = planner.chosen(request.GET, planner.checkpoints())
    context = _priced(request, row)
    response = render(request, "pages/planner_result.html", context)
    if row is not None and context["given"] is not None:
        response["HX-Replace-Url"] = f"{reverse('planner:planner')}?{context['address']}"
    return response


def _priced(request: HttpRequest, row: Checkpoint | None) -> dict[str, Any]:
    """The plan, or the findings that refuse it."""
    context: dict[str, Any] = {"row": row, "given": None, "plan": None, "refused": [], "address": ""}
    try:
        context["given"] = given = planner.read(request.GET)
        if row is None:
            name = request.GET.get("checkpoint", "")
            if name:
                raise InvalidInput(
                    "checkpoint_unknown",
                    _("There is no checkpoint %(name)s that is ready.") % {"name": name},
                    field="checkpoint",
                    remedy=_("Choose one of the list."),
                )
            return context
        context["address"] = planner.address(row, given)
        found = memory_plans.answer(row, given)
    except InflightError as error:
        context["refused"] = planner.refusal(error)
        return context
    context["plan"] = found
    context["tiles"] = planner.tiles(found)
    context["carry"] = _carry(row, found)
    return context


def _carry(row: Checkpoint, found: memory_plans.Answer) -> dict[str, str]:
    """Addresses of the forms that take the plan over, or documents; empty where no builder makes such an engine."""
    documents = memory_plans.build_documents(row, found)
    if documents:
        return {"yaml": yaml.safe_dump_all(documents, sort_keys=False)}
    kind = found.quantization
    if kind is None or row.format != Checkpoint.Format.GGUF:
        return {}
    return {
        "build": f"{reverse('engines:new')}?checkpoint={row.name}&type={kind}",
        "batching": f"{reverse('admin:serving_batchingprofile_add')}?max_batch_size={found.given.max_batch_size}"
        f"&max_seq_len={found.max_seq_len}",
    }
