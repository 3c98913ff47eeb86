"""/metrics, targets for a Prometheus, Grafana dashboards, the table in the documentation, and history from
outside."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from apps.accounts.roles import VIEWER
from apps.accounts.services import create_token
from apps.fleet.models import Node
from apps.telemetry import exporter, history, store
from apps.telemetry.domain import documentation, grafana
from apps.telemetry.domain.exported import FAMILIES, PREFIX
from apps.telemetry.domain.vocabulary import NAMES
from apps.telemetry.history import Scope
from apps.telemetry.prometheus_source import PrometheusSource, checked_url
from tests import people

ROOT = Path(__file__).parents[2]


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The newest samples by stream, instead of Redis."""
    newest: dict[str, Any] = {}
    monkeypatch.setattr(store, "newest_of", lambda keys, within: [newest.get(key) for key in keys])
    monkeypatch.setattr(store, "is_alive", lambda: True)
    return newest


def families(text: str) -> dict[str, list[Any]]:
    return {family.name: family.samples for family in text_string_to_metric_families(text)}


@pytest.mark.django_db
def test_the_exposition_of_the_control_plane(client: Client, samples: dict[str, Any]) -> None:
    Node.objects.create(node_id="n1", hostname="h", home="/", state="ready")
    samples["samples:fleet"] = {"at": time.time(), "requests_running": 3.0, "kv_use": None}
    found = families(client.get("/metrics").content.decode())
    assert set(found) <= FAMILIES
    states = {sample.labels["state"]: sample.value for sample in found["inflight_nodes"]}
    assert states["ready"] == 1
    assert states["lost"] == 0  # every state is there
    (running,) = found[f"{PREFIX}requests_running"]
    assert (running.labels, running.value) == ({"scope": "fleet", "scope_id": "0", "name": ""}, 3.0)
    assert f"{PREFIX}kv_use" not in found  # absent, never 0
    assert found["inflight_telemetry_up"][0].value == 1


@pytest.mark.django_db
def test_who_may_read_it(client: Client, samples: dict[str, Any], settings: Any) -> None:
    elsewhere = {"REMOTE_ADDR": "192.0.2.7"}
    assert client.get("/metrics").status_code == 200
    assert client.get("/metrics", **elsewhere).status_code == 401  # type: ignore[arg-type]
    assert client.get("/metrics", headers={"X-Forwarded-For": "192.0.2.7"}).status_code == 401
    settings.INFLIGHT_METRICS_ON_LOOPBACK = False
    refused = client.get("/metrics")
    assert (refused.status_code, refused["WWW-Authenticate"]) == (401, "Bearer")
    viewer = people.person(VIEWER)
    _token, secret = create_token(viewer, "prometheus")
    bearer = {"Authorization": f"Bearer {secret}"}
    assert client.get("/metrics", headers=bearer, **elsewhere).status_code == 200  # type: ignore[arg-type]
    assert client.get("/metrics", headers={"Authorization": "Bearer ifl_wrong"}).status_code == 401
    page = client.get("/metrics", headers={"Accept": "text/html,*/*"})
    assert (page.status_code, page["Location"]) == (302, "/metrics/")


def test_every_dashboard_is_current_and_asks_for_what_there_is() -> None:
    names = re.compile(r"\binflight_[a-z0-9_]+")
    for dashboard in grafana.DASHBOARDS:
        document = grafana.render(dashboard)
        path = ROOT / "deploy/grafana" / f"{dashboard.uid}.json"
        assert json.loads(path.read_text()) == document, "run manage.py export_vocabulary"
        asked = [name for text in grafana.expressions(document) for name in names.findall(text)]
        assert asked
        assert set(asked) <= FAMILIES
        assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])


def test_the_table_of_the_vocabulary_is_current() -> None:
    text = (ROOT / "docs/telemetry.md").read_text()
    assert documentation.replaced(text) == text, "run manage.py export_vocabulary"
    assert all(f"`{name}`" in text for name in NAMES)
    with pytest.raises(ValueError, match="marks"):
        documentation.replaced("nothing")


class Double(BaseHTTPRequestHandler):
    """Prometheus' query_range: a sine of our names, or what the test says."""

    asked: list[dict[str, list[str]]] = []
    answer: Any = None

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        type(self).asked.append(form)
        start, step = float(form["start"][0]), float(form["step"][0])
        values = [[start + number * step, "NaN" if number == 2 else str(number)] for number in range(5)]
        curve = {"metric": {"__name__": f"{PREFIX}requests_running", "scope": "fleet"}, "values": values}
        good = {"status": "success", "data": {"resultType": "matrix", "result": [curve]}}
        body = json.dumps(self.answer if self.answer is not None else good).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def prometheus(settings: Any) -> Iterator[type[Double]]:
    """A double of Prometheus on loopback, configured as the source."""
    Double.asked, Double.answer = [], None
    server = ThreadingHTTPServer(("127.0.0.1", 0), Double)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings.INFLIGHT_PROMETHEUS_URL = f"http://127.0.0.1:{server.server_port}/prefix/"
    yield Double
    server.shutdown()
    server.server_close()


@pytest.mark.django_db
def test_long_ranges_come_from_prometheus(prometheus: type[Double]) -> None:
    now = time.time()
    found = history.series(
        Scope("deployment", 7), now - 10 * 86_400, now, 200, ["requests_running", "kv_use"]
    )
    assert found.source == "prometheus"
    assert found.step_seconds == 4320
    assert [point["requests_running"] for point in found.points] == [0, 1, None, 3, 4]
    assert all(point["kv_use"] is None for point in found.points)
    (form,) = prometheus.asked
    assert form["query"] == [
        '{__name__=~"inflight_telemetry_requests_running|inflight_telemetry_kv_use",'
        'scope="deployment",scope_id="7"}'
    ]
    # What the finest steps hold is read here.
    assert history.series(Scope("deployment", 7), now - 3600, now).source == "10s"
    assert len(prometheus.asked) == 1


@pytest.mark.django_db
@pytest.mark.parametrize(
    "answer",
    [
        {"status": "error", "error": "query timed out"},
        {"status": "success", "data": {"resultType": "vector", "result": []}},
        {"status": "success", "data": {"resultType": "matrix", "result": [{"values": [[1, "x"]]}]}},
        ["nothing"],
    ],
)
def test_a_prometheus_that_does_not_answer_well_is_stood_in_for(
    prometheus: type[Double], answer: Any
) -> None:
    prometheus.answer = answer
    now = time.time()
    assert history.series(Scope("fleet"), now - 10 * 86_400, now).source in ("10m", "1h")


@pytest.mark.django_db
def test_a_prometheus_that_is_away_is_stood_in_for(settings: Any) -> None:
    settings.INFLIGHT_PROMETHEUS_URL = "http://127.0.0.1:9"
    now = time.time()
    assert history.series(Scope("fleet"), now - 10 * 86_400, now).source in ("10m", "1h")


@pytest.mark.parametrize("text", ["ftp://x", "prometheus:9090", "http://", "http://h:port", "http://h/?q=1"])
def test_a_bad_address_names_the_setting(text: str, settings: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match="INFLIGHT_PROMETHEUS_URL"):
        checked_url(text)
    settings.INFLIGHT_PROMETHEUS_URL = ""
    assert PrometheusSource.configured() is None
    assert checked_url("https://h:9090/p/") == "https://h:9090/p"


@pytest.mark.django_db
class TestApi:
    """The same figures over REST."""

    @pytest.fixture
    def api(self, client: Client) -> Client:
        """Signed in as somebody who may look."""
        client.force_login(people.person(VIEWER))
        return client

    def test_curves_as_json_and_csv(self, api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        now = time.time()
        sample = {"at": now - 5, "requests_running": 2.0, "kv_use": None}
        monkeypatch.setattr(store, "read_full", lambda *_given: [(sample, None)])
        query = {"since": now - 60, "until": now, "keys": "requests_running,kv_use"}
        found = api.get("/api/v1/telemetry/series", query).json()
        assert (found["source"], found["points"][-1]["requests_running"]) == ("raw", 2.0)
        text = api.get("/api/v1/telemetry/series", {**query, "format": "csv"})
        assert text["Content-Type"].startswith("text/csv")
        head, row = text.content.decode().splitlines()
        assert head == "at,requests_running,kv_use"
        assert row.endswith(",2.0,")  # unknown is empty, never 0

    def test_distribution_and_totals(self, api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        now = time.time()
        more = {"a": {"requests": 1}, "h": {"ttft": [[100, 1000], [0, 1, 2, 3], 50]}}
        monkeypatch.setattr(store, "read_full", lambda *_given: [({"at": now - 5}, more)])
        query = {"since": now - 60, "until": now}
        heat = api.get("/api/v1/telemetry/distribution", query).json()
        assert (heat["bounds"], heat["counts"]) == ([100, 1000, None], [[1, 0, 3]])
        text = api.get("/api/v1/telemetry/distribution", {**query, "format": "csv"}).content.decode()
        assert text.splitlines()[0] == "at,100,1000,+Inf"
        assert api.get("/api/v1/telemetry/window", query).json()["requests"] == 1

    @pytest.mark.parametrize(
        ("query", "code", "field"),
        [
            ({"keys": "nonsense"}, "key_unknown", "keys"),
            ({"since": 10, "until": 5}, "range_empty", "since"),
            ({"scope": "deployment"}, "name_missing", "name"),
            ({"scope": "deployment", "name": "none"}, "deployment_unknown", "deployment"),
            ({"scope": "gpu", "name": "GPU-none"}, "gpu_unknown", ""),
        ],
    )
    def test_refusals(self, api: Client, query: dict[str, Any], code: str, field: str) -> None:
        body = api.get("/api/v1/telemetry/series", query).json()
        assert (body["code"], body["field"]) == (code, field)

    def test_vocabulary_and_targets(self, api: Client, client: Client) -> None:
        found = api.get("/api/v1/telemetry/vocabulary").json()
        assert [key["name"] for key in found] == list(NAMES)
        assert api.get("/api/v1/telemetry/http_sd").json() == []
        client.logout()
        assert client.get("/api/v1/telemetry/http_sd").status_code == 401


def test_the_version_is_told() -> None:
    assert exporter._version()
