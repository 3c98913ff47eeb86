"""Dictionaries of rows, rendered files and notices, as pages and the API show them."""

from __future__ import annotations

import json

import pytest

from apps.core.exceptions import NotFound
from apps.realtime import topics
from apps.serving import preview, selectors, serialize, services, states
from apps.serving.domain import pbtxt
from apps.serving.models import Deployment
from tests import objects

pytestmark = pytest.mark.django_db


@pytest.fixture
def demo() -> Deployment:
    """A deployment that serves."""
    profile = objects.build_profile()
    objects.engine(profile)
    deployment = services.deploy("test", objects.deployment(build_profile=profile))
    revision = selectors.target_revision(deployment)
    assert revision is not None
    node = objects.node("n-test")
    objects.instance(
        revision,
        uid="i-1",
        node=node,
        gpu=node.gpus.get(),
        http_port=1,
        grpc_port=2,
        metrics_port=3,
        server_version="2.51.0",
        folder="/home/instances/i-1",
    )
    return deployment


def test_everything_is_json_with_iso_times(demo: Deployment) -> None:
    found = serialize.deployment_dict(selectors.deployment("demo"))
    assert json.loads(json.dumps(found)) == found
    assert found["created_at"].endswith("+00:00")
    assert found["active_revision"] is None
    assert (found["target_revision"], found["changed"]) == (1, False)
    assert found["actions"] == {
        "deploy": True,
        "stop": True,
        "roll_back": False,
        "pause": True,
        "delete": False,
        "chat": False,
    }
    [instance] = found["instances"]
    assert (instance["slot"], instance["node_id"], instance["deployment"]) == ("cpu0", "n-test", "demo")
    assert instance["serving_since"] is None
    assert instance["may_restart"]
    assert [notice["id"] for notice in instance["notices"]] == ["triton_has_known_holes"]


def test_a_change_that_is_not_deployed_shows(demo: Deployment) -> None:
    services.save_batching_profile("test", {"max_batch_size": 4}, demo.batching)
    assert serialize.deployment_dict(selectors.deployment("demo"))["changed"] is True


def test_revisions_and_profiles(demo: Deployment) -> None:
    revision = serialize.revision_dict(demo.revisions.get())
    assert (revision["number"], revision["active"], revision["engine"]["quantization"]) == (1, False, "F16")
    profile = serialize.batching_profile_dict(demo.batching)
    assert profile["deployments"] == ["demo"]
    assert profile["findings"] == []
    assert json.loads(json.dumps([revision, profile])) == [revision, profile]


def test_rendered_files_parse_whatever_they_come_from(demo: Deployment) -> None:
    engine = demo.revisions.get().engine
    for source, name, path in (
        (demo, "demo", f"{engine.path}/model.gguf"),
        (demo.revisions.get(), "demo", f"{engine.path}/model.gguf"),
        (demo.batching, "example", "<engine>/model.gguf"),
    ):
        [(where, text)] = preview.rendered_files(source).items()
        assert where == f"{name}/config.pbtxt"
        config = pbtxt.parse(text)
        assert pbtxt.parameters(config)["gguf_path"] == path
        assert pbtxt.findings(config, name) == []
    services.save_deployment("test", {"placement": {"device": "gpu"}}, demo)
    demo.refresh_from_db()
    assert "KIND_GPU" in preview.rendered_files(demo)["demo/config.pbtxt"]


def test_memory_of_a_profile(demo: Deployment) -> None:
    checkpoint = demo.build_profile.checkpoint
    checkpoint.facts = {}
    assert preview.kv_cache_bytes(demo.batching, checkpoint) is None
    checkpoint.facts = {"kv_bytes_per_token": 23_040}
    assert preview.kv_cache_bytes(demo.batching, checkpoint) == 16 * 1024 * 23_040


@pytest.mark.parametrize(
    ("version", "noticed"),
    [
        ("2.51.0", True),
        ("2.70.0", True),
        ("2.71.0", False),
        ("2.73.0dev", False),
        ("3.0.0", False),
        ("", False),
    ],
)
def test_notices_about_old_servers(version: str, noticed: bool) -> None:
    assert bool(preview.version_notices(version)) is noticed


def test_live_topics(demo: Deployment) -> None:
    kinds = topics.registered()
    assert {"deployments", "deployment", "log:instance"} <= set(kinds)
    topic, kind = topics.parse(f"deployment:{demo.pk}")
    found = kind.snapshot(topic.key)  # type: ignore[attr-defined]
    assert found["deployment"]["name"] == "demo"
    assert [row["number"] for row in found["revisions"]] == [1]
    topic, kind = topics.parse("deployments")
    assert [row["name"] for row in kind.snapshot(topic.key)["deployments"]] == ["demo"]  # type: ignore[attr-defined]
    topic, kind = topics.parse("log:instance:9999")
    with pytest.raises(NotFound):
        kind.path(topic.key)  # type: ignore[attr-defined]


def test_only_serving_instances_of_the_active_revision_are_routed_to(demo: Deployment) -> None:
    assert selectors.endpoints(demo) == []
    revision = demo.revisions.get()
    demo.active_revision = revision
    demo.save(update_fields=["active_revision"])
    [endpoint] = selectors.endpoints(demo)
    assert (endpoint.http_url, endpoint.grpc_url) == ("http://127.0.0.1:1", "127.0.0.1:2")
    assert endpoint.metrics_url == "http://127.0.0.1:3/metrics"
    assert (endpoint.model, endpoint.revision) == ("demo", 1)
    objects.instance(objects.revision(demo, 2, state=states.PENDING), uid="i-2")
    assert [found.uid for found in selectors.endpoints(demo)] == ["i-1"]
    assert [found.uid for found in selectors.scrape_targets()] == ["i-1"]
