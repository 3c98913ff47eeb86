"""The tab Roll-out: both sides, the steps, what was decided with its figures, and crashes that outlive their rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.roles import OPERATOR, VIEWER
from apps.serving import autoscale, rollouts, services, states
from apps.serving.domain.autoscale import Decision
from apps.serving.models import CrashReport, Deployment, Revision
from tests import objects
from tests.pages.conftest import World


@pytest.fixture
def trial(world: World) -> Revision:
    """A canary in its first step."""
    row = world.deployment
    canary = [{"weight": 10, "seconds": 60}, {"weight": 50, "seconds": 60}]
    services.save_deployment("test", {"slo": {"ttft_ms": 500}, "rollout": {"canary": canary}}, row)
    old = row.revisions.get()
    new = objects.revision(row, 9, states.PENDING)
    objects.instance(new, "i-trial", http_port=1, grpc_port=2, metrics_port=3)
    Deployment.objects.update(active_revision=old, desired="running", state="ready")
    row.refresh_from_db()
    rollouts.set_step("ctl", row, new, 0, "Its first servers serve.", {"new": {"ttft_ms": 321.0}, "old": {}})
    CrashReport.objects.create(
        deployment=row, deployment_name=row.name, uid="i-dead", revision=9, was="serving", reason="crashed",
        sentence="The server was ended by signal 9.", exit_code=-9, log="last words",
    )  # fmt: skip
    return new


def test_both_revisions_stand_side_by_side_with_steps_figures_and_crashes(
    trial: Revision, sign_in: Callable[..., Client]
) -> None:
    page = sign_in(OPERATOR).get(reverse("serving:rollout", args=["demo"])).content.decode()
    for text in (
        "Revision 9 is being rolled out",
        "10 % of new requests for 60 s",
        "Step 1: 10 % of new requests. Its first servers serve.",
        "ttft_ms 321.00",
        "promised 500 ms",
        "Pause",
        "Promote",
        "signal 9",
        "last words",
    ):
        assert text in page, text


def test_the_buttons_pause_go_on_promote_and_go_back(trial: Revision, sign_in: Callable[..., Client]) -> None:
    client = sign_in(OPERATOR)
    for action in ("pause", "resume", "promote"):
        assert client.post(reverse(f"serving:{action}_rollout", args=["demo"])).status_code == 303
    trial.refresh_from_db()
    assert (trial.paused_at, trial.promoted_at is not None) == (None, True)
    number = trial.deployment.active_revision.number  # type: ignore[union-attr]
    assert client.post(reverse("serving:roll_back", args=["demo", number])).status_code == 303
    trial.refresh_from_db()
    assert (trial.state, trial.reason) == (states.SUPERSEDED, "called_off")
    assert client.post(reverse("serving:pause_rollout", args=["demo"])).status_code == 409


def test_a_viewer_has_no_buttons(trial: Revision, sign_in: Callable[..., Client]) -> None:
    page = sign_in(VIEWER).get(reverse("serving:rollout", args=["demo"])).content.decode()
    assert "Revision 9 is being rolled out" in page
    assert "Pause" not in page


def test_the_form_takes_service_level_and_steps(world: World, sign_in: Callable[..., Client]) -> None:
    client, url = sign_in(OPERATOR), reverse("serving:edit", args=["demo"])
    row = world.deployment
    known = {
        "build_profile": row.build_profile.name if row.build_profile else "",
        "batching": row.batching.name,
        "replicas": 1,
        "device": "any",
    }
    refused = client.post(url, {**known, "canary": "10-300"})
    assert refused.status_code == 422
    assert "10-300 is no step" in refused.content.decode()
    refused = client.post(url, {**known, "canary": "50:60, 10:60"})
    assert refused.status_code == 422
    assert "must grow" in refused.content.decode()
    saved = client.post(
        url, {**known, "canary": "10:300, 50:600", "slo_ttft_ms": "400", "slo_error_percent": "1"}
    )
    assert saved.status_code == 303
    row.refresh_from_db()
    assert row.rollout == {"canary": [{"weight": 10, "seconds": 300}, {"weight": 50, "seconds": 600}]}
    assert row.slo == {"ttft_ms": 400.0, "error_rate": 0.01}
    assert "10:300, 50:600" in client.get(url).content.decode()
    for wrong, said in (
        ({"scaling_targets": "cpu=3"}, "cpu=3 is no target"),
        ({"scaling_targets": "in_flight=3"}, "targets need max_replicas"),
        ({"scaling_schedule": "0 8 * * *"}, "0 8 * * * is no entry"),
        ({"scaling_schedule": "0 25 * * * UTC 1..2"}, "25 is no hour"),
        ({"idle_seconds": "60"}, "idle_seconds needs min_replicas 0"),
    ):
        refused = client.post(url, {**known, **wrong})
        assert (refused.status_code, said in refused.content.decode()) == (422, True), said
    schedule = "0 8 * * mon-fri Europe/Berlin 2..6\n0 20 * * * UTC ..1"
    scaling = {
        "max_replicas": "4",
        "scaling_targets": "in_flight=8, kv_use=0.8",
        "scaling_schedule": schedule,
    }
    assert client.post(url, {**known, **scaling}).status_code == 303
    row.refresh_from_db()
    assert row.scaling == {
        "max_replicas": 4,
        "targets": [{"metric": "in_flight", "value": 8.0}, {"metric": "kv_use", "value": 0.8}],
        "schedule": [
            {"at": "0 8 * * mon-fri", "timezone": "Europe/Berlin", "min_replicas": 2, "max_replicas": 6},
            {"at": "0 20 * * *", "max_replicas": 1},
        ],
    }
    shown = client.get(url).content.decode()
    assert "0 20 * * * UTC ..1" in shown
    assert "in_flight=8, kv_use=0.8" in shown


def test_scaling_shows_bounds_figures_and_every_decision(
    world: World, sign_in: Callable[..., Client]
) -> None:
    row, url = world.deployment, reverse("serving:scaling", args=["demo"])
    assert "Only people change its number of servers" in sign_in(VIEWER).get(url).content.decode()
    scaling = {
        "min_replicas": 0,
        "max_replicas": 4,
        "idle_seconds": 600,
        "targets": [{"metric": "ttft_ms", "value": 800}],
        "schedule": [{"at": "0 8 * * *", "min_replicas": 2}],
    }
    services.save_deployment("test", {"scaling": scaling}, row)
    Deployment.objects.update(
        active_revision=row.revisions.get(), desired="running", state="asleep", scaled_to=0
    )
    row.refresh_from_db()
    told = {"targets": {"ttft_ms": {"is": None, "wanted": 800.0}}}
    autoscale.change("autoscale", row, Decision(2, "load", "up_ttft_ms", "TTFT p90 is high.", told))
    page = sign_in(OPERATOR).get(url).content.decode()
    for text in (
        "0 8 * * * UTC",
        "at least 2",
        "TTFT p90 is high.",
        "target 800 ms",
        "600 s without a request",
    ):
        assert text in page, text
    assert "Wake" not in page
    Deployment.objects.update(scaled_to=0)
    assert "Wake" in sign_in(OPERATOR).get(url).content.decode()
    assert sign_in(OPERATOR).post(reverse("serving:wake", args=["demo"])).status_code == 303
    row.refresh_from_db()
    assert row.scaled_to == 1
