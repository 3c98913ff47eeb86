"""The REST API: each operation once well and once refused, by role and by state."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client

from apps.chat.services import create_conversation
from apps.engines import states as engine_states
from apps.engines.models import BuildProfile
from apps.serving import states as serving_states
from apps.serving.models import Deployment
from tests import objects
from tests.people import client_of, person
from tests.specs.api import ok, refused, send

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator() -> Client:
    return client_of(person("operator"))


@pytest.fixture
def viewer() -> Client:
    return client_of(person("viewer"))


def test_checkpoints(operator: Client) -> None:
    objects.gguf_file("tiny")
    made = ok(send(operator, "POST", "/checkpoints", {"name": "tiny", "source": {"demo": "tiny"}}), 201)
    assert (made["state"], made["format"], made["reason"]) == ("ready", "gguf", None)
    assert made["facts"]["family"] == "llama"
    assert ok(send(operator, "GET", "/checkpoints"))["items"][0]["name"] == "tiny"
    assert ok(send(operator, "GET", "/checkpoints?state=refused"))["items"] == []
    assert ok(send(operator, "GET", "/checkpoints/tiny"))["source"] == {"demo": "tiny"}
    assert ok(send(operator, "POST", "/checkpoints/tiny/inspect"))["state"] == "ready"
    path = str(objects.gguf_file("tiny"))
    assert ok(send(operator, "PUT", "/checkpoints/tiny", {"source": {"path": path}}))["path"] == path
    ok(send(operator, "DELETE", "/checkpoints/tiny"), 204)
    refused(send(operator, "GET", "/checkpoints/tiny"), 404, "checkpoint_unknown")


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"name": "Big", "source": {"demo": "tiny"}}, "name_invalid", "name"),
        ({"name": "a", "source": {"demo": "none-such"}}, "demo_missing", "source.demo"),
        ({"name": "a", "source": {"path": "/etc/passwd"}}, "path_outside_roots", "source.path"),
        ({"name": "a", "source": {"path": "relative"}}, "path_not_absolute", "source.path"),
        ({"name": "a", "source": {}}, "invalid_input", "source"),
        ({"name": "a", "source": {"dmo": "tiny"}}, "invalid_input", "source.dmo"),
        ({"name": "a"}, "invalid_input", "source"),
    ],
)
def test_checkpoints_that_cannot_be(operator: Client, body: object, code: str, field: str) -> None:
    refused(send(operator, "POST", "/checkpoints", body), 422, code, field)


def test_build_profiles(operator: Client) -> None:
    objects.checkpoint()
    body = {"name": "q8", "checkpoint": "tiny", "quantization": "Q8_0"}
    assert ok(send(operator, "POST", "/build-profiles", body), 201)["builder"] == "llamacpp"
    refused(send(operator, "POST", "/build-profiles", body), 422, "name_taken", "name")
    assert ok(send(operator, "GET", "/build-profiles"))["count"] == 1
    changed = ok(send(operator, "PUT", "/build-profiles/q8", {"checkpoint": "tiny"}))
    assert changed["quantization"] == "F16"
    unknown = send(operator, "PUT", "/build-profiles/q8", {"checkpoint": "none-such"})
    refused(unknown, 422, "checkpoint_unknown", "checkpoint")
    wrong = {"checkpoint": "tiny", "quantization": "Q8"}
    message = refused(
        send(operator, "PUT", "/build-profiles/q8", wrong), 422, "invalid_input", "quantization"
    )
    assert "Did you mean Q8_0?" in message["message"]
    assert ok(send(operator, "GET", "/build-profiles/q8"))["name"] == "q8"
    ok(send(operator, "DELETE", "/build-profiles/q8"), 204)
    refused(send(operator, "DELETE", "/build-profiles/q8"), 404, "build_profile_unknown")


def test_a_profile_in_use_stays(operator: Client) -> None:
    objects.deployment()
    refused(send(operator, "DELETE", "/build-profiles/f16"), 409, "build_profile_in_use")
    refused(send(operator, "DELETE", "/batching-profiles/inflight-16"), 409, "batching_profile_in_use")


def test_builds(operator: Client) -> None:
    objects.build_profile()
    started = ok(send(operator, "POST", "/builds", {"profile": "f16"}), 201)
    assert (started["number"], started["state"], started["requested_by"]) == (1, "queued", "operator")
    assert started["progress"] is None
    assert ok(send(operator, "POST", "/builds", {"profile": "f16"}), 201)["number"] == 1
    assert ok(send(operator, "GET", "/builds?state=queued&profile=f16"))["count"] == 1
    assert ok(send(operator, "GET", "/builds?state=failed"))["count"] == 0
    refused(send(operator, "POST", "/builds/1/retry"), 409, "build_not_ended")
    assert ok(send(operator, "POST", "/builds/1/cancel"))["state"] == "cancelled"
    refused(send(operator, "POST", "/builds/1/cancel"), 409, "build_ended")
    assert ok(send(operator, "POST", "/builds/1/retry"), 201)["number"] == 2
    assert ok(send(operator, "GET", "/builds/1"))["actions"] == ["retry"]
    refused(send(operator, "GET", "/builds/77"), 404, "build_unknown")
    refused(send(operator, "POST", "/builds", {"profile": "none-such"}), 404, "build_profile_unknown")
    refused(send(operator, "GET", "/builds/0"), 422, "invalid_input", "number")
    refused(send(operator, "GET", "/builds/99999999999999999999"), 422, "invalid_input", "number")


def test_a_build_log_by_offset(operator: Client, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    objects.build(objects.build_profile(), engine_states.RUNNING, log_path=str(log))
    assert ok(send(operator, "GET", "/builds/1/log")) == {"text": "", "start": 0, "offset": 0, "size": 0}
    log.write_bytes("öne\n".encode() + b"x" * 2000 + "€".encode()[:2])
    first = ok(send(operator, "GET", "/builds/1/log?limit=1024"))
    assert (first["start"], first["offset"], first["size"]) == (0, 1024, 2007)
    rest = ok(send(operator, "GET", f"/builds/1/log?offset={first['offset']}"))
    assert rest["offset"] == 2005
    assert first["text"] + rest["text"] == "öne\n" + "x" * 2000
    log.write_bytes(log.read_bytes() + "€".encode()[2:])
    assert ok(send(operator, "GET", "/builds/1/log?offset=2005"))["text"] == "€"
    assert ok(send(operator, "GET", "/builds/1/log?offset=-3"))["text"] == "€"
    assert ok(send(operator, "GET", "/builds/1/log?offset=99999"))["start"] == 2008
    refused(send(operator, "GET", "/builds/1/log?limit=1"), 422, "invalid_input", "limit")


def test_engines(operator: Client) -> None:
    made = objects.engine(objects.build_profile())
    assert ok(send(operator, "GET", "/engines"))["items"][0]["size_bytes"] == 12_345
    assert ok(send(operator, "GET", f"/engines/{made.fingerprint[:12]}"))["fingerprint"] == made.fingerprint
    refused(send(operator, "GET", "/engines/none-such"), 404, "engine_unknown")
    assert ok(send(operator, "DELETE", f"/engines/{made.fingerprint}"))["state"] == "deleted"
    assert not Path(made.path).exists()


def test_batching_profiles(operator: Client) -> None:
    made = ok(send(operator, "POST", "/batching-profiles", {"name": "one", "strategy": "none"}), 201)
    assert (made["strategy"], made["max_batch_size"]) == ("none", 16)
    assert made["findings"][0]["id"] == "batch_size_without_effect"
    changed = ok(send(operator, "PUT", "/batching-profiles/one", {"max_batch_size": 4}))
    assert (changed["strategy"], changed["max_batch_size"]) == ("inflight", 4)
    message = refused(
        send(operator, "PUT", "/batching-profiles/one", {"max_batch_siz": 4}),
        422,
        "invalid_input",
        "max_batch_siz",
    )
    assert message["message"] == "max_batch_siz is not a known field. Did you mean max_batch_size?"
    too_large = send(operator, "PUT", "/batching-profiles/one", {"max_batch_size": 257})
    assert refused(too_large, 422, "invalid_input", "max_batch_size")["message"].endswith(
        "at most 256, not 257."
    )
    assert ok(send(operator, "GET", "/batching-profiles"))["count"] == 1
    assert ok(send(operator, "GET", "/batching-profiles/one"))["deployments"] == []
    wanted = {"max_batch_size": 8, "engine": "trtllm", "trtllm": {"max_num_tokens": 64}}
    plan = ok(send(operator, "POST", "/batching-profiles/one/plan", wanted))
    assert plan["changes"][0] == {"field": "max_batch_size", "before": 4, "after": 8}
    assert plan["idle"] == {"trtllm.max_num_tokens": "The engine's build fixed it; see the build profile."}
    assert plan["sentences"] == ["No deployment uses it: nothing restarts or reloads."]
    wrong = send(operator, "PUT", "/batching-profiles/one", {"trtllm": {"max_beam_width": 0}})
    assert (
        "max_beam_width: 0 is not from 1 to 64" in refused(wrong, 422, "invalid_input", "trtllm")["message"]
    )
    stale = send(operator, "PUT", f"/batching-profiles/one?confirm={plan['token']}", {"max_batch_size": 9})
    refused(stale, 409, "change_is_another")
    ok(send(operator, "PUT", f"/batching-profiles/one?confirm={plan['token']}", wanted))
    ok(send(operator, "POST", "/batching-profiles/one/roll-back", {"version": 2}))
    refused(
        send(operator, "POST", "/batching-profiles/one/roll-back", {"version": 9}),
        404,
        "version_unknown",
        "version",
    )
    listed = ok(send(operator, "GET", "/batching-profiles/one/versions"))
    assert [row["number"] for row in listed["items"]] == [4, 3, 2, 1]
    assert ok(send(operator, "GET", "/batching-profiles/one"))["max_batch_size"] == 4
    ok(send(operator, "DELETE", "/batching-profiles/one"), 204)
    refused(send(operator, "GET", "/batching-profiles/one"), 404, "batching_profile_unknown", "batching")


def test_deployments(operator: Client) -> None:
    objects.build_profile()
    objects.batching()
    body = {
        "name": "demo",
        "build": "f16",
        "batching": "inflight-16",
        "placement": {"device": "cpu", "share": 50},
    }
    made = ok(send(operator, "POST", "/deployments", body), 201)
    assert (made["state"], made["desired"], made["changed"]) == ("stopped", "stopped", None)
    assert made["placement"] == {"device": "cpu", "share": 50}
    put = {"build": "f16", "batching": "inflight-16", "replicas": 2}
    assert ok(send(operator, "PUT", "/deployments/demo", put))["placement"] == {"device": "any"}
    refused(
        send(operator, "PUT", "/deployments/demo", {**put, "build": "none-such"}),
        422,
        "build_profile_unknown",
        "build_profile",
    )
    waiting = ok(send(operator, "POST", "/deployments/demo/deploy"))
    assert (waiting["state"], waiting["waiting_build"]["number"]) == ("waiting", 1)
    refused(send(operator, "DELETE", "/deployments/demo"), 409, "deployment_running")
    assert ok(send(operator, "POST", "/deployments/demo/stop"))["state"] == "stopped"
    assert ok(send(operator, "GET", "/deployments"))["count"] == 1
    ok(send(operator, "DELETE", "/deployments/demo"), 204)
    refused(send(operator, "POST", "/deployments/demo/deploy"), 404, "deployment_unknown", "deployment")


def test_revisions_files_and_roll_back(operator: Client) -> None:
    deployed = objects.deployment()
    objects.engine(BuildProfile.objects.get())
    assert ok(send(operator, "POST", "/deployments/demo/deploy"))["target_revision"] == 1
    old = objects.revision(Deployment.objects.get(pk=deployed.pk), number=2, state=serving_states.SUPERSEDED)
    rows = ok(send(operator, "GET", "/deployments/demo/revisions"))["items"]
    assert [row["number"] for row in rows] == [2, 1]
    files = ok(send(operator, "GET", "/deployments/demo/files"))
    assert files["revision"] is None
    assert 'name: "demo"' in files["files"]["demo/config.pbtxt"]
    assert ok(send(operator, "GET", "/deployments/demo/files?revision=2"))["revision"] == 2
    refused(send(operator, "GET", "/deployments/demo/files?revision=9"), 404, "revision_unknown", "revision")
    rolled = ok(send(operator, "POST", "/deployments/demo/roll-back", {"revision": old.number}))
    assert rolled["target_revision"] == 2
    refused(
        send(operator, "POST", "/deployments/demo/roll-back", {"revision": 2}),
        409,
        "revision_is_current",
        "revision",
    )


def test_instances(operator: Client, tmp_path: Path) -> None:
    log = tmp_path / "triton.log"
    log.write_text("started\n", encoding="utf-8")
    row = objects.deployment()
    Deployment.objects.filter(pk=row.pk).update(desired="running", state="ready")
    live = objects.instance(objects.revision(row), log_path=str(log))
    assert ok(send(operator, "GET", "/instances?deployment=demo&state=serving"))["count"] == 1
    assert ok(send(operator, "GET", f"/instances/{live.uid}"))["may_restart"] is True
    assert ok(send(operator, "GET", f"/instances/{live.uid}/log"))["text"] == "started\n"
    assert ok(send(operator, "POST", f"/instances/{live.uid}/restart"))["stop_requested_at"] is not None
    refused(send(operator, "POST", "/instances/none-such/restart"), 404, "instance_unknown")


def test_metrics_of_the_last_hour(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    live = objects.instance(objects.revision(objects.deployment()))
    sample = {"at": 1.5, "requests_running": 2.0, "ttft_p99_ms": None}
    asked: list[tuple[str, float]] = []

    def read(key: str, since: float) -> list[dict[str, float | None]]:
        asked.append((key, since))
        return [sample]

    monkeypatch.setattr("apps.telemetry.store.read", read)
    monkeypatch.setattr("apps.telemetry.store.is_alive", lambda: None)
    for path in ("/metrics", "/deployments/demo/metrics", f"/instances/{live.uid}/metrics"):
        assert ok(send(operator, "GET", f"{path}?seconds=60")) == {"alive": None, "samples": [sample]}
    keys = [key for key, _since in asked]
    assert keys == [
        "samples:fleet",
        f"samples:deployment:{live.deployment_id}",
        f"samples:instance:{live.pk}",
    ]
    refused(send(operator, "GET", "/metrics?seconds=3601"), 422, "invalid_input", "seconds")
    refused(send(operator, "GET", "/deployments/none-such/metrics"), 404, "deployment_unknown", "deployment")


def test_nodes(operator: Client) -> None:
    objects.node("n1")
    assert ok(send(operator, "GET", "/nodes"))["items"][0]["gpus"][0]["free_share"] == 100
    assert ok(send(operator, "POST", "/nodes/n1/cordon"))["cordoned"] is True
    assert ok(send(operator, "POST", "/nodes/n1/uncordon"))["cordoned"] is False
    assert ok(send(operator, "GET", "/nodes/n1"))["beat_age_seconds"] is None
    refused(send(operator, "POST", "/nodes/none-such/cordon"), 404, "node_unknown")


def test_conversations_are_private(operator: Client) -> None:
    objects.deployment()
    made = ok(send(operator, "POST", "/conversations", {"deployment": "demo", "title": " Hello  you "}), 201)
    assert (made["title"], made["owner"]) == ("Hello you", "operator")
    number = made["id"]
    assert ok(send(operator, "GET", f"/conversations/{number}"))["turns"] == []
    assert ok(send(operator, "PATCH", f"/conversations/{number}", {"title": "Other"}))["title"] == "Other"
    stranger = client_of(person("operator", name="stranger"))
    assert ok(send(stranger, "GET", "/conversations"))["count"] == 0
    for method in ("GET", "DELETE"):
        refused(
            send(stranger, method, f"/conversations/{number}"), 404, "unknown_conversation", "conversation"
        )
    ok(send(operator, "DELETE", f"/conversations/{number}"), 204)
    assert ok(send(operator, "GET", "/conversations"))["count"] == 0
    refused(send(operator, "POST", "/turns/none-such/stop"), 404, "unknown_turn", "turn")


def test_viewers_read_and_nothing_else(viewer: Client) -> None:
    boss = person("administrator")
    row = objects.deployment()
    live = objects.instance(objects.revision(row))
    objects.build(BuildProfile.objects.get())
    objects.node()
    mine = create_conversation(boss, row)
    for path in ("checkpoints", "build-profiles", "builds", "engines", "batching-profiles", "deployments"):
        ok(send(viewer, "GET", f"/{path}"))
    for method, path, body in (
        ("POST", "/checkpoints", {"name": "x", "source": {"demo": "tiny"}}),
        ("PUT", "/checkpoints/tiny", {"source": {"demo": "tiny"}}),
        ("POST", "/checkpoints/tiny/inspect", None),
        ("DELETE", "/checkpoints/tiny", None),
        ("POST", "/build-profiles", {"name": "x", "checkpoint": "tiny"}),
        ("PUT", "/build-profiles/f16", {"checkpoint": "tiny"}),
        ("DELETE", "/build-profiles/f16", None),
        ("POST", "/builds", {"profile": "f16"}),
        ("POST", "/builds/1/cancel", None),
        ("POST", "/builds/1/retry", None),
        ("DELETE", f"/engines/{live.revision.engine.fingerprint}", None),
        ("POST", "/batching-profiles", {"name": "x"}),
        ("PUT", "/batching-profiles/inflight-16", {}),
        ("POST", "/batching-profiles/inflight-16/plan", {}),
        ("POST", "/batching-profiles/inflight-16/roll-back", {"version": 1}),
        ("DELETE", "/batching-profiles/inflight-16", None),
        ("POST", "/deployments", {"name": "x", "build": "f16", "batching": "inflight-16"}),
        ("PUT", "/deployments/demo", {"build": "f16", "batching": "inflight-16"}),
        ("DELETE", "/deployments/demo", None),
        ("POST", "/deployments/demo/deploy", None),
        ("POST", "/deployments/demo/stop", None),
        ("POST", "/deployments/demo/roll-back", {"revision": 1}),
        ("POST", f"/instances/{live.uid}/restart", None),
        ("POST", "/nodes/n1/cordon", None),
        ("POST", "/nodes/n1/uncordon", None),
        ("POST", "/conversations", {"deployment": "demo"}),
        ("POST", "/specs/apply", {"documents": "a: 1"}),
    ):
        refused(send(viewer, method, path, body), 403, "role_missing")
    refused(send(viewer, "GET", f"/conversations/{mine.pk}"), 404, "unknown_conversation", "conversation")
