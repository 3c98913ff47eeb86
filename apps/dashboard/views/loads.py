"""Load tests: list, form, run, compare, study."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.core.exceptions import InflightError, InvalidInput
from apps.dashboard import lists, logs, pages
from apps.dashboard.access import person
from apps.dashboard.loads import compared, run_export, run_figures
from apps.dashboard.loads.forms import FIELDS, LoadForm, StudyForm
from apps.dashboard.pages import page
from apps.dashboard.views.tuning import newest as newest_tunings
from apps.loadtests import comparing, generators, selectors, services
from apps.loadtests.domain.batching_study import explain
from apps.loadtests.domain.compare import DEFAULT_PRIMARY, METRICS
from apps.loadtests.models import LoadRun, ProductionMark, Study
from apps.loadtests.serialize import first_figures, generator_bound, study_progress
from apps.loadtests.states import LOADRUN
from apps.serving import selectors as serving
from apps.serving.models import Deployment

STUDIES_SHOWN = 10


@page(Action.VIEW)
def tests(request: HttpRequest) -> HttpResponse:
    """Runs, newest first; studies; scenarios under a name; what is production."""
    found = lists.search(selectors.runs(), request.GET.get("q", ""), ["target", "test__name"])
    listed = lists.page_of(request, lists.in_state(request, found, LOADRUN))
    marked = set(ProductionMark.objects.values_list("deployment_id", flat=True))
    context = {
        "title": _("Load tests"),
        "here": "loads",
        "page": listed,
        "rows": [(row, first_figures(row) or {}, generator_bound(row)) for row in listed],
        "filters": lists.filters(request, LOADRUN),
        "studies": [
            (row, study_progress(row, list(row.runs.all()))) for row in selectors.studies()[:STUDIES_SHOWN]
        ],
        "tunings": newest_tunings(STUDIES_SHOWN),
        "tests": selectors.load_tests(),
        "deployments": [(row, row.pk in marked) for row in Deployment.objects.order_by("name")],
    }
    return render(request, "pages/loads.html", context)


@page(Action.OPERATE)
def new(request: HttpRequest) -> HttpResponse:
    """Run a scenario once, or keep it under a name and run it."""
    if request.method != "POST":
        return _form(request, LoadForm(initial={"target": request.GET.get("target", "")}))
    form = LoadForm(request.POST)
    if form.is_valid():
        actor, allow = person(request), form.cleaned_data["allow"]
        generator = form.cleaned_data["generator"] or LoadRun.Generator.INFLIGHT
        try:
            scenario = form.scenario()
            if form.cleaned_data["name"]:
                test = services.save_load_test(
                    actor, {"name": form.cleaned_data["name"], "scenario": scenario}
                )
                row = services.start_run(actor, test, allow_production=allow, generator=generator)
            else:
                row = services.start_scenario(actor, scenario, allow_production=allow, generator=generator)
        except InflightError as error:
            pages.show_in(form, error, FIELDS)
        else:
            return _begun(request, row)
    return _form(request, form, 422)


def _form(request: HttpRequest, form: LoadForm, status: int = 200) -> HttpResponse:
    context = {"title": _("New load test"), "here": "loads", "form": form}
    return render(request, "pages/load_new.html", context, status=status)


def _begun(request: HttpRequest, row: LoadRun) -> HttpResponse:
    text = _("Run #%(number)s is queued.") % {"number": row.number}
    return pages.done(request, text, to=reverse("loadtests:run", args=[row.number]), stay=False)


@page(Action.VIEW)
def run(request: HttpRequest, number: int) -> HttpResponse:
    """One run: live while it goes on, then what it measured."""
    row = selectors.run(number)
    if request.GET.get("format"):
        return _run_exported(request, row)
    topic = f"log:loadrun:{row.number}"
    context = {
        "title": _("Run #%(number)s of %(target)s") % {"number": row.number, "target": row.target},
        "here": "loads",
        "row": row,
        "figures": first_figures(row) or {},
        "generator": (row.summary or {}).get("generator"),
        "counts": (row.summary or {}).get("counts_from"),
        "table": run_figures.table(row),
        "plots": run_figures.seconds(row),
        "cdfs": run_figures.distributions([(row.target, [row])]),
        "curves": run_figures.curves([(row.target, [row])], row.scenario.get("slo", {}).get("ttft_ms")),
        "beside": run_figures.beside(row),
        "other": _other(row),
        "capacity": _capacity(request, row),
        "asked": request.GET,
        "command": ["manage.py", "load_run", "repeat", str(row.number)],
        "topic": topic,
        "log": logs.tail(row.log_path),
        "log_url": reverse("loadtests:log", args=[row.number]),
        "metrics": {name: metric for name, metric in METRICS.items() if name.endswith("_ms")},
    }
    return render(request, "pages/load_run.html", context)


def _run_exported(request: HttpRequest, row: LoadRun) -> HttpResponse:
    """The run as a file: json, csv, md."""
    kind = request.GET["format"]
    if kind not in run_export.KINDS:
        raise _no_format(kind, run_export.KINDS)
    return _attached(run_export.as_text(row, kind), f"load-run-{row.number}.{kind}", run_export.KINDS[kind])


def _attached(text: str, name: str, mime: str) -> HttpResponse:
    response = HttpResponse(text, content_type=f"{mime}; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _no_format(kind: str, known: Iterable[str]) -> InvalidInput:
    return InvalidInput(
        "format",
        _("There is no format %(kind)s.") % {"kind": kind},
        field="format",
        remedy=", ".join(known),
    )


def _other(row: LoadRun) -> str:
    """The generator that may send the same load too: ours always, AIPerf where the target's node has it."""
    if row.generator == LoadRun.Generator.AIPERF:
        return LoadRun.Generator.INFLIGHT
    there = row.scenario.get("via") == "gateway" and generators.installed()
    return LoadRun.Generator.AIPERF if there else ""


def _capacity(request: HttpRequest, row: LoadRun) -> dict[str, Any]:
    """The answer to what the URL asks, or why there is none; empty where it asks nothing."""
    if not request.GET.get("rate"):
        return {}
    try:
        rate, bound = (float(request.GET.get(name, "")) for name in ("rate", "bound"))
        metric = request.GET.get("metric", "ttft_p99_ms")
        if metric not in METRICS or not metric.endswith("_ms"):
            raise ValueError(metric)
    except ValueError:
        return {"problem": _("Give requests per second and milliseconds as numbers.")}
    try:
        return comparing.capacity_of(row, rate, metric, bound)
    except InflightError as error:
        return {"problem": f"{error.sentence} {error.remedy}"}


@page(Action.VIEW)
def log(request: HttpRequest, number: int) -> HttpResponseBase:
    """A window of a run's log."""
    return logs.response(request, selectors.run(number).log_path, f"load-run-{number}.txt")


@page(Action.VIEW)
def compare(request: HttpRequest) -> HttpResponse:
    """Groups of runs against the first; by ?arm=1,3&arm=2,4, or ?run=1&run=2, each a group of its own."""
    given = [text for text in request.GET.getlist("arm") if text.strip()] or request.GET.getlist("run")
    primary = request.GET.get("primary", DEFAULT_PRIMARY)
    context: dict[str, Any] = {
        "title": _("Compare runs"),
        "here": "loads",
        "arms_text": ([*given, "", ""])[: max(2, len(given))],
        "chosen": primary,
        "metrics": METRICS,
        "recent": selectors.runs().filter(state="succeeded")[:20],
    }
    if not given:
        return render(request, "pages/load_compare.html", context)
    try:
        groups, labels = comparing.groups_of(given)
        found = comparing.compare_runs(groups, labels, primary)
    except InvalidInput as error:
        context |= {"problem": error}
        return render(request, "pages/load_compare.html", context, status=422)
    arms = list(zip(labels, groups, strict=True))
    title = _("%(labels)s") % {"labels": _(" against ").join(labels)}
    if request.GET.get("format"):
        return _exported(request, title, found, arms)
    context |= {**compared.context(found, arms), "title": title, "command": compared.command(arms, primary)}
    return render(request, "pages/load_compare.html", context)


def _exported(request: HttpRequest, title: str, found: dict[str, Any], arms: compared.Arms) -> HttpResponse:
    """The comparison as a file: html (stands alone), md, csv, json."""
    kind, text = request.GET["format"], ""
    if kind == "html":
        context = {**compared.context(found, arms), "title": title, "styles": _styles()}
        text, mime = str(render_to_string("pages/load_shared.html", context)), "text/html"
    elif kind == "md":
        text, mime = compared.as_markdown(title, found, arms), "text/markdown"
    elif kind == "csv":
        text, mime = compared.as_csv(found, arms), "text/csv"
    elif kind == "json":
        text, mime = compared.as_json(found, arms), "application/json"
    else:
        raise _no_format(kind, ("html", "md", "csv", "json"))
    return _attached(text, f"comparison.{kind}", mime)


def _styles() -> str:
    """The style sheets that a shared page carries with it."""
    from django.contrib.staticfiles import finders

    found = []
    for name in (
        "css/tokens.css",
        "css/base.css",
        "css/pieces/panels.css",
        "css/pieces/state.css",
        "css/pages/loads.css",
    ):
        path = finders.find(name)
        if isinstance(path, str):
            with open(path, encoding="utf-8") as file:
                found.append(file.read())
    return "\n".join(found)


@page(Action.VIEW)
def study(request: HttpRequest, number: int) -> HttpResponse:
    """One study: its runs while it goes on, its verdict when it is done."""
    row = selectors.study(number)
    members = list(row.runs.select_related("test", "study", "deployment", "requested_by").order_by("number"))
    arms = [
        (arm["label"], [run for run in members if run.arm == index]) for index, arm in enumerate(row.arms)
    ]
    if request.GET.get("format") and row.verdict:
        return _exported(request, row.title, row.verdict, arms)
    context: dict[str, Any] = {
        "title": row.title,
        "here": "loads",
        "row": row,
        "runs": [(run, row.arms[run.arm or 0]["label"], first_figures(run) or {}) for run in members],
        "progress": study_progress(row, members),
        "total": len(row.arms) * row.repeats,
    }
    if row.verdict:
        context |= compared.context(row.verdict, arms)
        context["command"] = ["manage.py", "study", "show", str(row.number)]
        if row.study_kind == Study.Kind.BATCHING:
            context["explained"] = explain(row.verdict)
    return render(request, "pages/load_study.html", context)


@page(Action.OPERATE)
def new_study(request: HttpRequest) -> HttpResponse:
    """Begin a study."""
    if request.method != "POST":
        initial = {
            "deployment": request.GET.get("deployment", ""),
            "kind": request.GET.get("kind", "batching"),
        }
        return _study_form(request, StudyForm(initial=initial))
    form = StudyForm(request.POST)
    if form.is_valid():
        try:
            row = _started(request, form)
        except InflightError as error:
            pages.show_in(form, error, {"load.concurrency": "clients", "target": "deployment"})
        else:
            text = _("Study #%(number)s has begun.") % {"number": row.number}
            return pages.done(request, text, to=reverse("loadtests:study", args=[row.number]), stay=False)
    return _study_form(request, form, 422)


def _started(request: HttpRequest, form: StudyForm) -> Study:
    data = form.cleaned_data
    common = {"repeats": data["repeats"], "primary": data["primary"], "allow_production": data["allow"]}
    if data["kind"] == "batching":
        deployment = serving.deployment(data["deployment"])
        return services.start_batching_study(person(request), deployment, full=data["full"], **common)
    return services.start_comparison(person(request), data["deployments"], form.scenario(), **common)


def _study_form(request: HttpRequest, form: StudyForm, status: int = 200) -> HttpResponse:
    context = {"title": _("New study"), "here": "loads", "form": form, "any": Deployment.objects.exists()}
    return render(request, "pages/load_study_new.html", context, status=status)
