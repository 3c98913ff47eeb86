"""Quality: what builds lost against their sources, gates, waivers."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.core.exceptions import InflightError, InvalidInput
from apps.dashboard import lists, logs, pages
from apps.dashboard.access import person
from apps.dashboard.loads import quality_figures
from apps.dashboard.loads.quality_forms import GateForm, QualityForm
from apps.dashboard.pages import action, page
from apps.engines import selectors as engines
from apps.loadtests import quality_gate, selectors, services
from apps.loadtests.models import QualityGate, QualityRun
from apps.loadtests.quality import GATE_FIELDS
from apps.loadtests.states import CANCELLED
from apps.serving import selectors as serving

# Results that the plot shows.
SHOWN = 100


@page(Action.VIEW)
def quality(request: HttpRequest) -> HttpResponse:
    """Speed gained beside quality lost, runs, gates with what they say of the newest engine."""
    rows = lists.page_of(request, selectors.quality_runs())
    context = {
        "title": _("Quality"),
        "here": "loads",
        "plot": quality_figures.speed_and_loss(selectors.quality_runs()[:SHOWN]),
        "page": rows,
        "rows": [(row, _short(row)) for row in rows],
        "gates": [_gate_line(gate) for gate in selectors.quality_gates()],
    }
    return render(request, "pages/quality.html", context)


def _short(row: QualityRun) -> dict[str, str]:
    if not row.result:
        return {}
    shown = zip(quality_figures.FIGURES, quality_figures.figures(row.result), strict=True)
    return {name: item["value"] for name, item in shown}


def _gate_line(gate: QualityGate) -> dict[str, Any]:
    engine = engines.newest_engine(gate.build_profile)
    verdict = quality_gate.verdict_of(engine, gate.build_profile) if engine is not None else None
    return {"gate": gate, "engine": engine, "verdict": verdict}


@page(Action.OPERATE)
def new(request: HttpRequest) -> HttpResponse:
    """Start a quality run."""
    if request.method != "POST":
        initial = {"engine": request.GET.get("engine", ""), "deployment": request.GET.get("deployment", "")}
        if initial["deployment"]:
            initial["method"] = "answers"
        return _form(request, QualityForm(initial=initial))
    form = QualityForm(request.POST)
    if form.is_valid():
        try:
            row = _started(request, form.cleaned_data)
        except InflightError as error:
            answers = form.cleaned_data["method"] == "answers"
            pages.show_in(form, error, {} if answers else {"baseline": "baseline_engine"})
        else:
            return _begun(request, row)
    return _form(request, form, 422)


def _started(request: HttpRequest, data: dict[str, Any]) -> QualityRun:
    tokens = data["answer_tokens"]
    if data["method"] == "answers":
        deployment, baseline = (_chosen(data, field) for field in ("deployment", "baseline"))
        return services.start_answer_run(
            person(request),
            serving.deployment(deployment),
            serving.deployment(baseline),
            answer_tokens=tokens,
        )
    return services.start_quality_run(
        person(request),
        engines.engine(_chosen(data, "engine")),
        engines.engine(data["baseline_engine"]) if data["baseline_engine"] else None,
        windows=data["windows"],
        answer_tokens=tokens,
    )


def _chosen(data: dict[str, Any], field: str) -> str:
    if not data[field]:
        raise InvalidInput("required", _("Nothing is chosen."), field=field, remedy=_("Choose one."))
    return str(data[field])


def _form(request: HttpRequest, form: QualityForm, status: int = 200) -> HttpResponse:
    context = {"title": _("New quality run"), "here": "loads", "form": form}
    return render(request, "pages/quality_new.html", context, status=status)


def _begun(request: HttpRequest, row: QualityRun) -> HttpResponse:
    text = _("Quality run #%(number)s is queued.") % {"number": row.number}
    return pages.done(request, text, to=reverse("loadtests:quality_run", args=[row.number]), stay=False)


@page(Action.VIEW)
def run(request: HttpRequest, number: int) -> HttpResponse:
    """One quality run: figures with their intervals, the worst answers and passages."""
    row = selectors.quality_run(number)
    verdict = quality_gate.verdict_of(row.engine) if row.engine is not None else None
    counts = verdict is not None and verdict.run is not None and verdict.run.pk == row.pk
    of_checkpoint = selectors.quality_runs().filter(engine__checkpoint__engines=row.engine_id or 0).distinct()
    context = {
        "title": row.title,
        "here": "loads",
        "row": row,
        "result": row.result,
        "verdict": verdict,
        "counts": counts,
        "figures": quality_figures.figures(row.result, verdict if counts else None) if row.result else [],
        "perplexities": quality_figures.perplexities(row.result) if row.result else "",
        "answers": quality_figures.answers(row.result) if row.result else [],
        "plot": quality_figures.speed_and_loss(of_checkpoint[:SHOWN]) if row.result else None,
        "command": ["manage.py", "quality", "show", str(row.number)],
        "topic": f"log:qualityrun:{row.number}",
        "log": logs.tail(row.log_path),
        "log_url": reverse("loadtests:quality_log", args=[row.number]),
    }
    return render(request, "pages/quality_run.html", context)


@page(Action.VIEW)
def log(request: HttpRequest, number: int) -> HttpResponseBase:
    """A window of a quality run's log."""
    return logs.response(request, selectors.quality_run(number).log_path, f"quality-run-{number}.txt")


@page(Action.CONFIGURE)
def new_gate(request: HttpRequest) -> HttpResponse:
    """Make a gate."""
    if request.method != "POST":
        initial = {
            "build_profile": request.GET.get("profile", ""),
            "blocking": True,
            "max_perplexity_ratio": 1.05,
        }
        return _gate_form(request, GateForm(initial=initial))
    return _save_gate(request, None)


@page(Action.CONFIGURE)
def gate(request: HttpRequest, name: str) -> HttpResponse:
    """Change a gate."""
    row = selectors.quality_gate(name)
    if request.method != "POST":
        initial = {key: getattr(row, key) for key in GATE_FIELDS}
        return _gate_form(
            request, GateForm(initial={**initial, "build_profile": row.build_profile.name}), row
        )
    return _save_gate(request, row)


def _save_gate(request: HttpRequest, row: QualityGate | None) -> HttpResponse:
    form = GateForm(request.POST)
    if form.is_valid():
        try:
            saved = services.save_quality_gate(person(request), form.cleaned_data, row)
        except InflightError as error:
            pages.show_in(form, error)
        else:
            text = _("Gate %(name)s is saved.") % {"name": saved.name}
            return pages.done(request, text, to=reverse("loadtests:quality"), stay=False)
    return _gate_form(request, form, row, 422)


def _gate_form(
    request: HttpRequest, form: GateForm, row: QualityGate | None = None, status: int = 200
) -> HttpResponse:
    title = _("Quality gate %(name)s") % {"name": row.name} if row else _("New quality gate")
    context = {"title": title, "here": "loads", "form": form, "row": row}
    return render(request, "pages/quality_gate.html", context, status=status)


@action(Action.OPERATE)
def cancel(request: HttpRequest, number: int) -> HttpResponse:
    """Cancel a run."""
    row = services.cancel_quality_run(person(request), selectors.quality_run(number))
    text = (
        _("Quality run #%(number)s is cancelled.")
        if row.state == CANCELLED
        else _("Quality run #%(number)s is being cancelled.")
    )
    to = reverse("loadtests:quality_run", args=[number])
    return pages.done(request, text % {"number": number}, to=to)


@action(Action.OPERATE)
def repeat(request: HttpRequest, number: int) -> HttpResponse:
    """Run a comparison again."""
    return _begun(request, services.repeat_quality_run(person(request), selectors.quality_run(number)))


@action(Action.OPERATE)
def delete(request: HttpRequest, number: int) -> HttpResponse:
    """Delete a run."""
    services.delete_quality_run(person(request), selectors.quality_run(number))
    text = _("Quality run #%(number)s is deleted.") % {"number": number}
    return pages.done(request, text, to=reverse("loadtests:quality"), stay=False)


@action(Action.CONFIGURE)
def delete_gate(request: HttpRequest, name: str) -> HttpResponse:
    """Delete a gate."""
    services.delete_quality_gate(person(request), selectors.quality_gate(name))
    text = _("Gate %(name)s is deleted.") % {"name": name}
    return pages.done(request, text, to=reverse("loadtests:quality"), stay=False)


@action(Action.ADMINISTER)
def waive(request: HttpRequest, fingerprint: str) -> HttpResponse:
    """Let an engine pass."""
    engine = engines.engine(fingerprint)
    services.waive_quality_gate(person(request), engine, request.POST.get("why", ""))
    text = _("%(engine)s may be deployed whatever its gate says.") % {"engine": engine}
    return pages.done(request, text, to=reverse("loadtests:quality"))


@action(Action.ADMINISTER)
def end_waiver(request: HttpRequest, fingerprint: str) -> HttpResponse:
    """Let the gate hold for an engine again."""
    engine = engines.engine(fingerprint)
    services.end_quality_waiver(person(request), engine)
    text = _("The gate holds for %(engine)s again.") % {"engine": engine}
    return pages.done(request, text, to=reverse("loadtests:quality"))
