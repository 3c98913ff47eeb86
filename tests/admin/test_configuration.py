"""Configuration in the admin: saved, refused, deleted and previewed by the services."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from apps.core.models import AuditEntry
from apps.engines.models import Build, BuildProfile
from apps.registry.models import Checkpoint
from apps.serving.models import Deployment
from tests import objects
from tests.people import client_of, person

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


@pytest.fixture
def operator() -> Client:
    return client_of(person("operator"))


def post(client: Client, name: str, data: dict[str, Any], pk: int | None = None) -> Any:
    url = reverse(f"admin:{name}_change", args=[pk]) if pk else reverse(f"admin:{name}_add")
    return client.post(url, data)


def saved(response: Any) -> None:
    errors = response.context["adminform"].form.errors if response.context else {}
    assert response.status_code == 302, errors


def errors_of(response: Any) -> dict[str, list[str]]:
    assert response.status_code == 200
    return {key: list(value) for key, value in response.context["adminform"].form.errors.items()}


def preview(client: Client, name: str, data: dict[str, Any], pk: int | None = None) -> str:
    response = client.post(reverse(f"admin:{name}_preview", args=[pk] if pk else []), data)
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


def test_build_profiles(operator: Client) -> None:
    data = {
        "name": "q8",
        "checkpoint": objects.checkpoint().pk,
        "builder": "llamacpp",
        "quantization": "Q8_0",
    }
    saved(post(operator, "engines_buildprofile", data))
    refused = errors_of(post(operator, "engines_buildprofile", {**data, "name": "q4", "builder": "trtllm"}))
    assert refused["checkpoint"][0].startswith("tiny is a GGUF file, which TensorRT-LLM does not read.")
    assert errors_of(post(operator, "engines_buildprofile", {**data, "name": "warmup"}))["name"]
    assert BuildProfile.objects.count() == 1


def test_checkpoints(operator: Client) -> None:
    objects.gguf_file("tiny")
    saved(
        post(operator, "registry_checkpoint", {"name": "tiny", "source_kind": "demo", "source_demo": "tiny"})
    )
    row = Checkpoint.objects.get()
    assert (row.state, row.source) == ("ready", {"demo": "tiny"})
    versions = row.version
    saved(post(operator, "registry_checkpoint", {"source_kind": "demo", "source_demo": "tiny"}, row.pk))
    row.refresh_from_db()
    assert row.version == versions
    path = str(objects.gguf_file("tiny"))
    saved(post(operator, "registry_checkpoint", {"source_kind": "path", "source_path": path}, row.pk))
    row.refresh_from_db()
    assert row.source == {"path": path}


@pytest.mark.parametrize(
    ("data", "field", "words"),
    [
        ({"source_kind": "demo", "source_demo": "none-such"}, "source_demo", "is not in"),
        ({"source_kind": "path", "source_path": "/etc/passwd"}, "source_path", "lies outside the folders"),
        ({"source_kind": "path", "source_path": ""}, "source_path", ""),
        ({"source_kind": "huggingface", "source_repo": "nope"}, "source_repo", ""),
        ({"source_kind": "archive", "source_archive": "/etc/a.zip"}, "__all__", "needs the role code-author"),
    ],
)
def test_a_refusal_stands_at_its_field_with_the_remedy(
    operator: Client, data: dict[str, str], field: str, words: str
) -> None:
    response = post(operator, "registry_checkpoint", {"name": "tiny", **data})
    refused = errors_of(response)
    assert list(refused) == [field]
    assert words in refused[field][0]
    assert 'value="tiny"' in response.content.decode()
    assert not Checkpoint.objects.exists()


def test_deployments(operator: Client) -> None:
    profile, batching = objects.build_profile(), objects.batching()
    data = {
        "name": "demo",
        "build_profile": profile.pk,
        "batching": batching.pk,
        "replicas": 2,
        "device": "cpu",
        "share": 30,
    }
    saved(post(operator, "serving_deployment", data))
    row = Deployment.objects.get()
    assert (row.placement, row.replicas, row.state) == ({"device": "cpu", "share": 30}, 2, "stopped")
    saved(post(operator, "serving_deployment", {**data, "name": "other", "share": ""}, row.pk))
    row.refresh_from_db()
    assert (row.name, row.placement) == ("demo", {"device": "cpu"})
    assert errors_of(post(operator, "serving_deployment", {**data, "name": "x", "replicas": 0}))["replicas"]
    assert errors_of(post(operator, "serving_deployment", {**data, "name": "x", "share": 200}))["share"]


def test_service_level_roll_out_and_scaling_of_a_deployment(operator: Client) -> None:
    row = objects.deployment()
    data = {
        "build_profile": row.build_profile_id,
        "batching": row.batching_id,
        "replicas": 1,
        "device": "any",
        "slo_ttft_ms": "400",
        "slo_error_percent": "1",
        "canary": "10:300, 50:600",
        "drain_seconds": "60",
        "max_replicas": "3",
        "scaling_targets": "in_flight=8",
        "scaling_schedule": "0 8 * * mon-fri Europe/Berlin 2..3",
    }
    saved(post(operator, "serving_deployment", data, row.pk))
    row.refresh_from_db()
    assert row.slo == {"ttft_ms": 400.0, "error_rate": 0.01}
    assert row.rollout["drain_seconds"] == 60
    assert row.scaling["targets"] == [{"metric": "in_flight", "value": 8.0}]
    page = operator.get(reverse("admin:serving_deployment_change", args=[row.pk])).content.decode()
    for text in ("10:300, 50:600", "in_flight=8", "0 8 * * mon-fri Europe/Berlin 2..3"):
        assert text in page, text
    # What fits each field but not together is said at the field to blame.
    for wrong, field in (
        ({"max_surge": "0", "canary": ""}, "canary"),
        ({"canary": "50:60, 10:60"}, "canary"),
        ({"slo_window_seconds": "1"}, "slo_window_seconds"),
        ({"max_replicas": ""}, "min_replicas"),
        ({"scaling_schedule": "0 8 * * * Mars/Olympus 1..2"}, "scaling_schedule"),
    ):
        assert list(errors_of(post(operator, "serving_deployment", {**data, **wrong}, row.pk))) == [field]


def test_status_is_read_only(operator: Client) -> None:
    row = objects.deployment()
    data = {
        "build_profile": row.build_profile_id,
        "batching": row.batching_id,
        "replicas": 1,
        "device": "any",
        "state": "ready",
        "desired": "running",
        "version": 99,
    }
    saved(post(operator, "serving_deployment", data, row.pk))
    row.refresh_from_db()
    assert (row.state, row.desired, row.version) == ("stopped", "stopped", 1)


def test_deleting_goes_through_the_service(operator: Client) -> None:
    row = objects.deployment()
    profile = reverse("admin:engines_buildprofile_delete", args=[row.build_profile_id])
    answer = operator.post(profile, {"post": "yes"}, follow=True)
    assert "f16 is still used by: demo." in answer.content.decode()
    assert "Give those another build profile" in answer.content.decode()
    operator.post(reverse("admin:serving_deployment_delete", args=[row.pk]), {"post": "yes"})
    assert not Deployment.objects.exists()
    assert AuditEntry.objects.filter(verb="deployment.deleted", actor_label="operator").exists()
    operator.post(profile, {"post": "yes"})
    assert not BuildProfile.objects.exists()


def test_buttons(operator: Client) -> None:
    row = objects.deployment()

    def press(name: str, pk: int, action: str) -> str:
        answer = operator.post(reverse(f"admin:{name}_do", args=[pk, action]), follow=True)
        assert answer.status_code == 200
        return " ".join(str(message) for message in answer.context["messages"])

    assert (
        press("registry_checkpoint", row.build_profile.checkpoint_id, "inspect")
        == "tiny was inspected: ready."
    )
    assert press("engines_buildprofile", row.build_profile_id, "build") == "Build #1 of f16: queued."
    build = Build.objects.get()
    assert press("engines_build", build.pk, "cancel") == "Build #1 was cancelled."
    assert "There is nothing to cancel." in press("engines_build", build.pk, "cancel")
    assert press("engines_build", build.pk, "retry") == "Build #2 tries #1 again."
    waits = "demo: waiting. Waits for build #2 to make its engine."
    assert press("serving_deployment", row.pk, "deploy") == waits
    assert press("serving_deployment", row.pk, "stop") == "demo: stopped."
    node = objects.node()
    assert press("fleet_node", node.pk, "cordon") == "n1.local gets no new work."
    assert press("fleet_node", node.pk, "uncordon") == "n1.local gets new work again."
    revision = objects.revision(row, state="superseded")
    assert "goes back to revision 1" in press("serving_revision", revision.pk, "roll_back")
    live = objects.instance(revision)
    assert "finishes its requests" in press("serving_instance", live.pk, "restart")
    assert "is still used by" in press("engines_engine", revision.engine_id, "delete_files")


def test_buttons_for_several_rows_ask_first(operator: Client) -> None:
    objects.deployment("one")
    objects.deployment("two")
    Deployment.objects.update(desired="running", state="waiting")
    url = reverse("admin:serving_deployment_changelist")
    data = {"action": "stop", "_selected_action": list(Deployment.objects.values_list("pk", flat=True))}
    question = operator.post(url, data).content.decode()
    assert "those in flight finish, then the servers exit" in question
    assert Deployment.objects.filter(desired="running").count() == 2
    answer = operator.post(url, {**data, "confirmed": "1"}, follow=True)
    assert sorted(str(message) for message in answer.context["messages"]) == [
        "one: stopped.",
        "two: stopped.",
    ]
    data["action"] = "deploy"
    operator.post(url, data)
    assert Deployment.objects.filter(desired="running").count() == 2


def test_no_bulk_delete_goes_around_the_services(operator: Client) -> None:
    objects.deployment()
    page = operator.get(reverse("admin:serving_deployment_changelist")).content.decode()
    assert "delete_selected" not in page


def test_history_is_the_audit_trail(operator: Client) -> None:
    row = objects.deployment()
    answer = operator.get(reverse("admin:serving_deployment_history", args=[row.pk]), follow=True)
    assert answer.status_code == 200
    assert [entry.verb for entry in answer.context["cl"].result_list] == ["deployment.created"]


def test_the_way_to_the_page_of_an_object(operator: Client) -> None:
    row = objects.deployment()
    page = operator.get(reverse("admin:serving_deployment_change", args=[row.pk])).content.decode()
    assert f'href="{reverse("serving:deployment", args=["demo"])}"' in page


def test_preview_of_a_build_profile(operator: Client) -> None:
    checkpoint = objects.checkpoint()
    data = {"name": "q8", "builder": "llamacpp", "quantization": "Q8_0"}
    assert "Fill in the fields" in preview(operator, "engines_buildprofile", data)
    data["checkpoint"] = str(checkpoint.pk)
    shown = preview(operator, "engines_buildprofile", data)
    assert "make a new engine" in shown
    assert "estimated size of the engine" in shown
    assert "# Convert to Q8_0" in shown
    assert "-m workers.builders.llamacpp_steps.convert --source" in shown
    objects.build(objects.build_profile("q8", quantization="Q8_0"), "queued", number=7)
    assert "join build #7" in preview(operator, "engines_buildprofile", {**data, "name": "again"})


def test_preview_of_a_deployment(operator: Client) -> None:
    row = objects.deployment()
    data: dict[str, Any] = {"build_profile": row.build_profile_id, "batching": row.batching_id, "replicas": 1}
    data["device"] = "any"
    assert "start a build of f16" in preview(operator, "serving_deployment", data, row.pk)
    objects.engine(row.build_profile)
    shown = preview(operator, "serving_deployment", data, row.pk)
    assert "start revision 1" in shown
    assert "name: &quot;demo&quot;" in shown
    operator.post(reverse("admin:serving_deployment_do", args=[row.pk, "deploy"]))
    assert "change nothing: revision 1 is this" in preview(operator, "serving_deployment", data, row.pk)
    changed = preview(operator, "serving_deployment", {**data, "replicas": 3, "device": "gpu"}, row.pk)
    assert "<dt>replicas</dt><dd><del>1</del> <ins>3</ins></dd>" in changed
    assert "<dt>placement.device</dt><dd><del>any</del> <ins>gpu</ins></dd>" in changed
    row.refresh_from_db()
    assert row.replicas == 1


def test_preview_of_a_checkpoint(operator: Client) -> None:
    objects.gguf_file("tiny")
    shown = preview(operator, "registry_checkpoint", {"source_kind": "demo", "source_demo": "tiny"})
    assert "<dt>family</dt><dd>llama</dd>" in shown
    assert "<dt>chat template</dt><dd>none</dd>" in shown
    missing = preview(operator, "registry_checkpoint", {"source_kind": "demo", "source_demo": "none-such"})
    assert "Not possible" in missing
    assert "Run make up" in missing


def test_the_first_paint_has_the_preview(operator: Client) -> None:
    row = objects.deployment()
    page = operator.get(reverse("admin:serving_deployment_change", args=[row.pk])).content.decode()
    assert "start a build of f16" in page
    assert f'hx-post="{reverse("admin:serving_deployment_preview", args=[row.pk])}"' in page
    assert "inf-preview-body" in operator.get(reverse("admin:serving_batchingprofile_add")).content.decode()


def test_lists_search_and_filter(operator: Client) -> None:
    row = objects.deployment()
    objects.build(row.build_profile)
    for name, query, found in (
        ("serving_deployment", "q=demo", 1),
        ("serving_deployment", "q=nothing", 0),
        ("serving_deployment", "state__exact=stopped", 1),
        ("engines_build", "state__exact=queued", 1),
        ("engines_build", "q=f16", 1),
        ("registry_checkpoint", "format__exact=hf", 0),
    ):
        page = operator.get(f"{reverse(f'admin:{name}_changelist')}?{query}")
        assert page.context["cl"].result_count == found, (name, query)
