"""`/metrics`: this control plane for a Prometheus, and the newest figure of every key of the vocabulary.

Readable with an API token of somebody who may look, and from this machine itself where the settings allow it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db.models import Count, Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from apps.accounts.roles import Action, may
from apps.accounts.services import authenticate_token
from apps.engines.models import Build
from apps.fleet.models import Gpu, Node
from apps.realtime.base import open_sockets
from apps.serving import states
from apps.serving.models import Deployment, Instance
from apps.telemetry import store
from apps.telemetry.domain.exported import PREFIX, help_of
from apps.telemetry.domain.vocabulary import KEYS

# A figure that is older says nothing about now: two scrapes of the slowest pace, and a little.
FRESH_SECONDS = 25.0


@login_not_required
@never_cache
@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """The exposition; 401 without a token from elsewhere. A browser is led to the page of the same name."""
    if "text/html" in request.headers.get("Accept", ""):
        return HttpResponseRedirect("/metrics/")
    if not _may_read(request):
        text = _("Send an API token: Authorization: Bearer ifl_...")
        refused = HttpResponse(f"{text}\n", status=401, content_type="text/plain; charset=utf-8")
        refused["WWW-Authenticate"] = "Bearer"
        return refused
    registry = CollectorRegistry()
    registry.register(ControlPlane())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def _may_read(request: HttpRequest) -> bool:
    scheme, _space, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        found = authenticate_token(token.strip())
        return found is not None and may(found.owner, Action.VIEW)
    if request.user.is_authenticated and may(request.user, Action.VIEW):
        return True
    # A proxy on this machine hands on requests of others.
    proxied = any(name in request.headers for name in ("Forwarded", "X-Forwarded-For", "X-Real-Ip"))
    return bool(settings.INFLIGHT_METRICS_ON_LOOPBACK) and not proxied and _is_loopback(request)


def _is_loopback(request: HttpRequest) -> bool:
    try:
        return ipaddress.ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False


class ControlPlane(Collector):
    """Everything that /metrics shows, read when it is asked for."""

    def collect(self) -> Iterator[Metric]:
        """Families of the control plane, then those of the vocabulary."""
        yield _one("inflight_info", "This control plane.", {"version": _version()}, 1.0)
        yield from _states()
        alive = store.is_alive()
        yield _one("inflight_redis_up", "Whether Redis answers.", {}, float(alive is not None))
        if alive is not None:
            yield _one("inflight_telemetry_up", "Whether the telemetry process writes.", {}, float(alive))
        sockets = GaugeMetricFamily(
            "inflight_websockets", "Open sockets of the web process that answers.", labels=["kind"]
        )
        for kind, number in open_sockets.items():
            sockets.add_metric([kind], number)
        yield sockets
        yield from _samples()


def _one(name: str, text: str, labels: dict[str, str], value: float) -> Metric:
    family = GaugeMetricFamily(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def _states() -> Iterator[Metric]:
    """Numbers of objects by state; every state is there, so that a 0 is seen."""
    models: Iterable[tuple[str, type[Model]]] = (
        ("builds", Build),
        ("deployments", Deployment),
        ("instances", Instance),
        ("nodes", Node),
    )
    for name, model in models:
        family = GaugeMetricFamily(f"inflight_{name}", f"{name.capitalize()} by state.", labels=["state"])
        counts = dict(model._default_manager.values_list("state").annotate(Count("pk")).order_by())
        for state in sorted({*model.machine.values, *counts}):  # type: ignore[attr-defined]
            family.add_metric([state], counts.get(state, 0))
        yield family


def _samples() -> Iterator[Metric]:
    """The newest figures of fleet, deployments, servers, GPUs and hosts; what is not told is left out."""
    scopes = list(_scopes())
    newest = store.newest_of([store.key_of(kind, number) for kind, number, _name in scopes], FRESH_SECONDS)
    for key in KEYS:
        family = GaugeMetricFamily(f"{PREFIX}{key.name}", help_of(key), labels=["scope", "scope_id", "name"])
        for (kind, number, name), sample in zip(scopes, newest, strict=True):
            value = sample.get(key.name) if sample is not None else None
            if value is not None:
                family.add_metric([kind, str(number), name], value)
        if family.samples:
            yield family


def _scopes() -> Iterator[tuple[str, int, str]]:
    yield "fleet", 0, ""
    for pk, name in Deployment.objects.values_list("pk", "name"):
        yield "deployment", pk, name
    rows = Instance.objects.filter(state__in=(states.SERVING, states.DRAINING)).values_list("pk", "uid")
    for pk, name in rows:
        yield "instance", pk, name
    for pk, name in Gpu.objects.exclude(uuid="").values_list("pk", "uuid"):
        yield "gpu", pk, name
    for pk, name in Node.objects.values_list("pk", "node_id"):
        yield "node", pk, name


def _version() -> str:
    try:
        return version("inflight")
    except PackageNotFoundError:  # run out of the checkout
        return "checkout"
