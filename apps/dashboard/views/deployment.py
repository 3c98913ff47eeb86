"""One deployment: live charts, instances, configuration, access. Each tab has an address of its own."""

from __future__ import annotations

import difflib
import time
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.core.exceptions import NotFound
from apps.dashboard import gateway_calls, logs
from apps.dashboard.charts import deployment as deployment_charts
from apps.dashboard.charts import ranges
from apps.dashboard.pages import page
from apps.serving import preview, reach, revisions, selectors
from apps.serving.adoption import kept_plan
from apps.serving.models import Deployment, Instance, Revision
from apps.serving.serialize import instance_dict

REVISIONS_SHOWN = 50
GONE_SHOWN = 20


def _tabs(row: Deployment, current: str) -> list[dict[str, Any]]:
    names = {
        "deployment": _("Live"),
        "instances": _("Instances"),
        "configuration": _("Configuration"),
        "rollout": _("Roll-out"),
        "scaling": _("Scaling"),
        "advice": _("Advice"),
        "access": _("Access"),
    }
    return [
        {"label": label, "url": reverse(f"serving:{view}", args=[row.name]), "current": view == current}
        for view, label in names.items()
    ]


def tab_context(row: Deployment, tab: str) -> dict[str, Any]:
    """Context of the frame around every tab."""
    target = selectors.target_revision(row)
    live = list(selectors.shown_instances(row))
    return {
        "title": row.name,
        "here": "deployments",
        "row": row,
        "tabs": _tabs(row, tab),
        "instances": live,
        "serving": sum(1 for instance in live if instance.state == "serving"),
        "wanted": row.servers_of(target),
        "target": target,
        "changed": _changed(row, target),
        "running": row.desired == Deployment.Desired.RUNNING,
        "deletable": row.state in ("stopped", "failed"),
        "confirm_stop": {
            "question": _("Stop %(name)s?") % {"name": row.name},
            "text": _("New requests are refused at once, those in flight finish, then the servers exit and free "
            "their memory."),
        },
        "confirm_delete": {
            "question": _("Delete deployment %(name)s?") % {"name": row.name},
            "text": _("Its revisions, its instances' history and the conversations with it are deleted. Engines and "
            "profiles stay."),
        },
    }  # fmt: skip


def _changed(row: Deployment, target: Revision | None) -> bool:
    """Whether deploying now would make another revision."""
    wanted = revisions.present(row)
    if target is None or wanted is None:
        return False
    return any(getattr(target, key) != value for key, value in wanted.items())


@page(Action.VIEW)
def live(request: HttpRequest, name: str) -> HttpResponse:
    """The four golden signals, batching, hardware and cost over a range of the URL."""
    row = selectors.deployment(name)
    now = time.time()
    context = {
        **tab_context(row, "deployment"),
        **deployment_charts.context(row, ranges.parse(request.GET, now), now),
    }
    return render(request, "pages/deployment_live.html", context)


@page(Action.VIEW)
def live_data(request: HttpRequest, name: str) -> HttpResponse:
    """The same as JSON: a zoomed range in finer steps, or (?only=cards) what live samples do not carry."""
    row = selectors.deployment(name)
    whole = request.GET.get("only") != "cards"
    return JsonResponse(deployment_charts.data(row, ranges.parse(request.GET, time.time()), whole))


@page(Action.VIEW)
def instances(request: HttpRequest, name: str) -> HttpResponse:
    """Servers of a deployment, one of them with its log."""
    row = selectors.deployment(name)
    context = tab_context(row, "instances")
    shown = context["instances"]
    gone = list(row.instances.filter(state="gone").select_related("revision", "node", "gpu")[:GONE_SHOWN])
    wanted = request.GET.get("instance", "")
    chosen = next((each for each in [*shown, *gone] if each.uid == wanted), shown[0] if shown else None)
    context |= {
        "gone": gone,
        "chosen": chosen,
        "details": {each.uid: instance_dict(each) for each in shown},
        **(_log(chosen) if chosen else {}),
    }
    return render(request, "pages/deployment_instances.html", context)


def _log(instance: Instance) -> dict[str, Any]:
    tail = logs.tail(selectors.log_address(instance))
    return {
        "log": tail,
        "topic": f"log:instance:{instance.pk}",
        "log_url": reverse("serving:log", args=[instance.deployment.name, instance.uid]),
        "failure": (instance.diagnosis or {}).get("diagnosis"),
    }


@page(Action.VIEW)
def log(request: HttpRequest, name: str, uid: str) -> HttpResponseBase:
    """The log of one server."""
    instance = Instance.objects.select_related("node").filter(deployment__name=name, uid=uid).first()
    if instance is None:
        raise NotFound(
            "instance_unknown",
            _("%(name)s has no server %(uid)s.") % {"name": name, "uid": uid},
            remedy=_("It may be gone; reload the page."),
        )
    return logs.response(request, selectors.log_address(instance), f"{name}-{uid}.log")


@page(Action.VIEW)
def configuration(request: HttpRequest, name: str) -> HttpResponse:
    """The configuration, the files that Triton reads, earlier revisions and the difference to one of them."""
    row = selectors.deployment(name)
    history = list(
        row.revisions.select_related("engine__checkpoint", "created_by", "deployment")[:REVISIONS_SHOWN]
    )
    chosen = _chosen(request, history)
    files = preview.rendered_files(row)
    context = {
        **tab_context(row, "configuration"),
        "reach": reach.of(row),
        "files": files.items(),
        "revisions": history,
        "chosen": chosen,
        "differences": revisions.history_changes(history),
        "difference": _difference(chosen, files) if chosen else [],
        "findings": preview.batching_findings(row.batching, row.checkpoint) if row.checkpoint else [],
        "plan": kept_plan(row),
    }
    return render(request, "pages/deployment_configuration.html", context)


def _chosen(request: HttpRequest, history: list[Revision]) -> Revision | None:
    wanted = request.GET.get("revision", "")
    return next((each for each in history if str(each.number) == wanted), None)


def _difference(revision: Revision, files: dict[str, str]) -> list[str]:
    """Unified diff from a revision's files to those of the configuration as it stands."""
    before = preview.rendered_files(revision)
    lines: list[str] = []
    for path in {**before, **files}:
        old, new = before.get(path, ""), files.get(path, "")
        found = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3)
        lines += [line for line in found if not line.startswith(("---", "+++"))]
    return lines


@page(Action.VIEW)
def access(request: HttpRequest, name: str) -> HttpResponse:
    """How to chat with the deployment."""
    row = selectors.deployment(name)
    question = "What is the capital of France?"
    context = {
        **tab_context(row, "access"),
        "chat_argv": ["python", "manage.py", "chat", "--deployment", row.name, question],
        "chat_json_argv": ["python", "manage.py", "chat", "--deployment", row.name, "--json", question],
        "read_command": 'curl --header "Authorization: Bearer $INFLIGHT_TOKEN" '
        f"{settings.INFLIGHT_WEB_URL}/api/v1/deployments/{row.name}",
        "flags": {
            "--deployment": _("Public name of the deployment"),
            "--json": _("Print the answer and what was measured as JSON"),
        },
        "endpoints": selectors.endpoints(row),
        "calls": gateway_calls.calls(row.name),
        "base_url": gateway_calls.base_url(),
    }
    return render(request, "pages/deployment_access.html", context)
