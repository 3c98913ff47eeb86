"""Batching profiles in the admin: typed settings, what does nothing, the preview, confirmation, versions."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from apps.core.models import AuditEntry
from apps.serving import services
from apps.serving.domain.trtllm import settings
from apps.serving.models import BatchingProfile
from tests import objects
from tests.people import client_of, person

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
DATA: dict[str, Any] = {
    "name": "small",
    "engine": "llamacpp",
    "strategy": "inflight",
    "max_batch_size": 4,
    "max_queue_delay_microseconds": 0,
    "max_seq_len": 512,
    "max_queue_size": 8,
    "queue_timeout_microseconds": 0,
    "timeout_action": "reject",
    "allow_timeout_override": "on",
    "preferred_batch_sizes": "",
    "threads": 2,
}


@pytest.fixture
def operator() -> Client:
    return client_of(person("operator"))


def change_url(row: BatchingProfile) -> str:
    return reverse("admin:serving_batchingprofile_change", args=[row.pk])


def add(client: Client, **more: Any) -> BatchingProfile:
    response = client.post(reverse("admin:serving_batchingprofile_add"), DATA | more)
    assert response.status_code == 302, response.context["adminform"].form.errors
    return BatchingProfile.objects.get(name=(DATA | more)["name"])


def errors_of(response: Any) -> dict[str, list[str]]:
    return {key: list(value) for key, value in response.context["adminform"].form.errors.items()}


def asked(client: Client, row: BatchingProfile, **more: Any) -> Any:
    """The page that asks before a change."""
    response = client.post(change_url(row), DATA | more)
    assert response.templates[0].name == "admin/inflight/profile_confirm.html", errors_of(response)
    return response


def confirm(client: Client, page: Any, url: str, **more: Any) -> Any:
    text = page.content.decode()
    hidden = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', text)
    kept = {name: html.unescape(value) for name, value in hidden if name != "csrfmiddlewaretoken"}
    return client.post(url, kept | more)


def preview(client: Client, **more: Any) -> str:
    response = client.post(reverse("admin:serving_batchingprofile_preview"), DATA | more)
    assert response.status_code == 200
    return html.unescape(" ".join(response.content.decode().split()))


def idle(text: str) -> dict[str, str]:
    """{form field: reason} of the marks that a preview swaps in."""
    found = re.findall(r'<span class="inf-idle" id="idle-(\w+)" hx-swap-oob="true">(.*?)</span>', text)
    return {name: reason for name, reason in found if reason}


def test_a_profile_is_made_with_settings_and_classes(operator: Client) -> None:
    row = add(
        operator,
        engine="trtllm",
        trtllm_kv_cache_free_gpu_mem_fraction="0.85",
        trtllm_enable_chunked_context="true",
        trtllm_enable_kv_cache_reuse="false",
        trtllm_batch_scheduler_policy="max_utilization",
        use_classes="on",
        high_max_queue_size="64",
        default_priority_class="low",
    )
    assert row.trtllm == {
        "kv_cache_free_gpu_mem_fraction": 0.85,
        "enable_kv_cache_reuse": False,
        "batch_scheduler_policy": "max_utilization",
        "enable_chunked_context": True,
    }
    assert row.priority_classes == [
        {"name": "high", "max_queue_size": 64},
        {"name": "normal"},
        {"name": "low"},
    ]
    shown = operator.get(change_url(row)).context["adminform"].form
    assert shown.get_initial_for_field(shown.fields["high_max_queue_size"], "high_max_queue_size") == 64
    assert operator.get(change_url(row)).status_code == 200


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("trtllm_kv_cache_free_gpu_mem_fraction", "1.5"),
        ("trtllm_max_attention_window_size", "wide"),
        ("trtllm_decoding_mode", "magic"),
        ("trtllm_max_beam_width", "0"),
        ("high_max_queue_size", "-1"),
        ("preferred_batch_sizes", "8"),
        ("max_batch_size", "0"),
    ],
)
def test_a_fault_is_shown_at_its_field(field: str, value: str, operator: Client) -> None:
    response = operator.post(reverse("admin:serving_batchingprofile_add"), DATA | {field: value})
    assert list(errors_of(response)) == [field]
    assert not BatchingProfile.objects.exists()


def test_what_a_choice_needs_is_asked_for_at_the_missing_field(operator: Client) -> None:
    response = operator.post(
        reverse("admin:serving_batchingprofile_add"), DATA | {"trtllm_decoding_mode": "lookahead"}
    )
    assert set(errors_of(response)) == {f"trtllm_{key}" for key in settings.LOOKAHEAD}


def test_fields_say_why_they_do_nothing_and_follow_the_engine(operator: Client) -> None:
    embedded = idle(preview(operator))
    assert (
        embedded["max_queue_delay_microseconds"]
        == "Requests join the running batch at once; Triton forms none."
    )
    assert "max_batch_size" not in embedded
    assert "trtllm_enable_chunked_context" in embedded
    dynamic = idle(preview(operator, strategy="dynamic"))
    assert "max_queue_delay_microseconds" not in dynamic
    assert "timeout_action" in dynamic
    assert dynamic["low_max_queue_size"] == "Only where the queue is ordered by class."
    assert "low_max_queue_size" not in idle(preview(operator, strategy="dynamic", use_classes="on"))
    assert "timeout_action" not in idle(preview(operator, strategy="dynamic", queue_timeout_microseconds=5))
    engine = idle(preview(operator, engine="trtllm", trtllm_max_tokens_in_paged_kv_cache="1000"))
    assert engine["trtllm_kv_cache_free_gpu_mem_fraction"].startswith("The number of tokens decides")
    assert "batches them in flight" in engine["preferred_batch_sizes"]
    assert "trtllm_enable_chunked_context" not in engine
    checkpoint = idle(preview(operator, engine="llmapi"))
    assert checkpoint["trtllm_multi_block_mode"] == "The PyTorch backend has no such argument."
    assert "max_seq_len" not in checkpoint


def test_the_preview_says_what_follows(operator: Client) -> None:
    objects.checkpoint()
    shown = preview(operator)
    assert "a longer prompt is refused" in shown
    assert "<dt>tokens of all slots</dt><dd>2048</dd>" in shown
    assert "<dt>tiny</dt>" in shown
    assert "example/config.pbtxt" in shown
    assert "A prompt longer than 8,192 tokens will be refused" in preview(operator, engine="trtllm")
    assert 'key: "gpt_model_type"' in preview(operator, engine="trtllm")
    assert "model.yaml" in preview(operator, engine="llmapi")
    wrong = preview(operator, max_batch_size=300)
    assert "Saving would be refused" in wrong
    assert "Maximum batch size: Ensure this value is less than or equal to 256." in wrong
    assert "Saving would be refused" not in preview(operator, name="")
    assert not BatchingProfile.objects.exists()


def test_every_field_has_words_and_a_preset_fills_them_in(operator: Client) -> None:
    page = operator.get(
        reverse("admin:serving_batchingprofile_add"), {"engine": "trtllm", "preset": "throughput"}
    )
    form = page.context["adminform"].form
    assert form.get_initial_for_field(form.fields["max_batch_size"], "max_batch_size") == 256
    assert form.initial["trtllm_batch_scheduler_policy"] == "max_utilization"
    for name, field in form.fields.items():
        assert field.help_text, name
    text = page.content.decode()
    assert "Cost: " in text
    assert "Shown by requests_paused" in text
    assert reverse("gateway:routes") in text


def test_a_change_is_confirmed_with_what_restarts(operator: Client) -> None:
    row = add(operator)
    demo = objects.deployment(batching=row)
    page = asked(operator, row, max_batch_size=2)
    shown = html.unescape(" ".join(page.content.decode().split()))
    assert "<dt>max_batch_size</dt><dd><del>4</del> <ins>2</ins></dd>" in shown
    assert f"{demo.name} is stopped: nothing restarts" in shown
    row.refresh_from_db()
    assert row.max_batch_size == 4
    assert confirm(operator, page, change_url(row)).status_code == 302
    row.refresh_from_db()
    assert row.max_batch_size == 2
    assert AuditEntry.objects.get(verb="batchingprofile.changed").detail["changes"] == {
        "max_batch_size": [4, 2]
    }


def test_a_change_of_what_was_confirmed_is_asked_for_again(operator: Client) -> None:
    row = add(operator)
    page = asked(operator, row, max_batch_size=2)
    services.save_batching_profile("cli", {"max_batch_size": 3}, row)
    answer = confirm(operator, page, change_url(row))
    assert "not the change that was confirmed" in str(answer.context["adminform"].form.errors)
    row.refresh_from_db()
    assert row.max_batch_size == 3


def test_saving_the_same_asks_nothing(operator: Client) -> None:
    row = add(operator)
    assert operator.post(change_url(row), DATA).status_code == 302
    assert row.versions.count() == 1


def test_versions_say_who_and_lead_back(operator: Client) -> None:
    row = add(operator)
    services.save_batching_profile(person("operator", name="ann"), {"threads": 7}, row)
    address = reverse("admin:serving_batchingprofile_versions", args=[row.pk])
    shown = operator.get(address).content.decode()
    assert "Version 2" in shown
    assert "ann" in shown
    back = reverse("admin:serving_batchingprofile_roll_back", args=[row.pk, 1])
    page = operator.get(back)
    assert "<dt>threads</dt>" in page.content.decode()
    assert confirm(operator, page, back).status_code == 302
    row.refresh_from_db()
    assert (row.threads, row.versions.count()) == (2, 3)
    assert (
        operator.get(reverse("admin:serving_batchingprofile_roll_back", args=[row.pk, 99])).status_code == 302
    )


def test_a_viewer_sees_versions_and_cannot_go_back(operator: Client) -> None:
    row = add(operator)
    viewer = client_of(person("viewer"))
    address = reverse("admin:serving_batchingprofile_versions", args=[row.pk])
    assert viewer.get(address).status_code == 200
    back = reverse("admin:serving_batchingprofile_roll_back", args=[row.pk, 1])
    assert viewer.get(back).status_code == 403
    assert viewer.post(back, {"_confirmed": "x"}).status_code == 403
