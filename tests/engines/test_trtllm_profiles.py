"""Profiles of TensorRT-LLM builds: services, REST, YAML, forms, pasted commands, and what a build would freeze."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from apps.core.exceptions import InvalidInput, NotPossibleNow
from apps.core.models import AuditEntry
from apps.engines import requests, services
from apps.engines.domain.trtllm.spec import TrtllmSpec
from apps.engines.models import BuildProfile, QuantizationProfile
from apps.registry.domain.model_config import facts_of
from apps.registry.models import Checkpoint
from apps.specs import services as specs
from tests.engines.trtllm.test_compose import LLAMA
from tests.people import client_of, person
from tests.specs.api import ok, refused, send

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]

FP8: dict[str, Any] = {
    "name": "fp8-kv8",
    "format": "fp8",
    "kv_cache_dtype": "fp8",
    "calibration": {"dataset": "/data/cnn_dailymail", "size": 256},
    "options": {"seed": 7, "device_map": "auto"},
}
PROFILE: dict[str, Any] = {
    "name": "llama",
    "checkpoint": "llama",
    "builder": "trtllm",
    "recipe": "engine",
    "quantization": "fp8-kv8",
    "parallel": {"tp": 2},
    "target": {"gpu": "h100-sxm", "gpus": 2, "tensorrt_llm": "1.2.1"},
    "build": {"max_batch_size": 16, "max_seq_len": 8192, "max_num_tokens": 8192, "reduce_fusion": True},
    "convert": {},
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    folder = tmp_path / "llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    return Checkpoint.objects.create(
        name="llama",
        source={"path": str(folder)},
        path=str(folder),
        format="hf",
        state="ready",
        sha256="a" * 64,
        facts=facts_of(LLAMA).model_dump(mode="json"),
    )


@pytest.fixture
def profile(checkpoint: Checkpoint) -> BuildProfile:
    services.save_quantization_profile("cli", FP8)
    return services.save_build_profile("cli", PROFILE)


def test_only_what_differs_is_kept(profile: BuildProfile) -> None:
    assert profile.options == {
        "build": {"max_batch_size": 16, "max_seq_len": 8192, "reduce_fusion": "enable"}
    }
    quantization = profile.quantization_profile
    assert quantization is not None
    assert quantization.options == {"seed": 7}
    assert (profile.weight_format, profile.world_size, profile.quantization) == ("fp8", 2, "")
    verbs = AuditEntry.objects.order_by("id").values_list("verb", flat=True)
    assert list(verbs) == ["quantizationprofile.created", "buildprofile.created"]


def test_a_build_freezes_the_request(profile: BuildProfile, checkpoint: Checkpoint) -> None:
    spec = requests.spec_of(profile, sm=90, versions={"tensorrt_llm": "1.2.1"})
    assert TrtllmSpec.model_validate(spec.as_row()) == spec
    assert spec.request.quantization.kv_cache == "fp8"
    assert (spec.request.parallel.world, spec.request.model, spec.sm) == (2, checkpoint.path, 90)
    other = requests.spec_of(profile, sm=89, versions={"tensorrt_llm": "1.2.1"})
    profile.name = "renamed"
    same = requests.spec_of(profile, sm=90, versions={"tensorrt_llm": "1.2.1"})
    assert same.fingerprint() == spec.fingerprint() != other.fingerprint()
    facts = requests.model_facts(checkpoint)
    assert facts is not None
    assert facts.num_attention_heads == 32


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"parallel": {"tp": 3}}, "tp_illegal", "parallel.tp"),
        ({"build": {"max_output_len": 4}}, "unknown_flag", "build.max_output_len"),
        ({"target": {"gpu": "a100-80"}}, "fp8_unsupported_gpu", "quantization"),
        ({"quantization": "fp8"}, "quantization_profile_unknown", "quantization"),
        ({"options": {"build": {}}}, "not_of_this_builder", "options"),
        ({"recipe": "compiled"}, "build_profile_invalid", "recipe"),
        ({"builder": "llamacpp", "quantization": "F16", "recipe": "engine"}, "not_of_this_builder", "recipe"),
    ],
)
def test_what_cannot_be_built_is_refused(
    profile: BuildProfile, change: dict[str, Any], code: str, field: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        services.save_build_profile("cli", change, profile)
    assert (caught.value.code, caught.value.field) == (code, field)
    assert caught.value.remedy


def test_a_quantization_stays_good_for_those_who_use_it(profile: BuildProfile) -> None:
    row = QuantizationProfile.objects.get()
    with pytest.raises(InvalidInput) as caught:
        services.save_quantization_profile("cli", {"format": "nvfp4"}, row)
    assert "Build profile llama" in caught.value.sentence
    with pytest.raises(NotPossibleNow) as kept:
        services.delete_quantization_profile("cli", row)
    assert "llama" in kept.value.sentence
    services.delete_build_profile("cli", profile)
    services.delete_quantization_profile("cli", QuantizationProfile.objects.get())


def test_rest(checkpoint: Checkpoint) -> None:
    operator = client_of(person("operator"))
    made = ok(send(operator, "POST", "/quantization-profiles", FP8), 201)
    assert made["calibration"]["size"] == 256
    assert ok(send(operator, "POST", "/build-profiles", PROFILE), 201)["quantization"] == "fp8-kv8"
    changed = ok(send(operator, "PUT", "/quantization-profiles/fp8-kv8", {"format": "fp8"}))
    assert changed["kv_cache_dtype"] == "auto"
    refused(
        send(operator, "POST", "/quantization-profiles", {"name": "x", "format": "fp7"}),
        422,
        "invalid_input",
        "format",
    )
    refused(send(operator, "DELETE", "/quantization-profiles/fp8-kv8"), 409, "quantization_profile_in_use")
    read = ok(
        send(operator, "POST", "/build-commands/translate", {"command": "trtllm-build --max_output_len 64"})
    )
    assert read["profile"]["build"] == {"max_seq_len": 1088}
    wrong = {"command": "trt_llm_server --model m"}
    refused(send(operator, "POST", "/build-commands/translate", wrong), 422, "never_existed", "command")
    viewer = client_of(person("viewer"))
    refused(send(viewer, "POST", "/quantization-profiles", FP8), 403, "role_missing")


def test_documents_there_and_back(profile: BuildProfile) -> None:
    text = specs.export("cli", ["QuantizationProfile", "BuildProfile"])
    assert specs.plan("cli", text, "f").is_empty
    build = list(yaml.safe_load_all(text))[1]["spec"]
    assert build == {
        "builder": "trtllm",
        "checkpoint": "llama",
        "quantization": "fp8-kv8",
        "recipe": "engine",
        "parallel": {"tp": 2},
        "target": {"gpu": "h100-sxm", "gpus": 2, "tensorrtLlm": "1.2.1"},
        "build": {"max_batch_size": 16, "max_seq_len": 8192, "reduce_fusion": "enable"},
    }
    wider = text.replace("max_batch_size: 16", "max_batch_size: 32")
    assert [item.action for item in specs.plan("cli", wider, "f").objects] == ["unchanged", "update"]
    specs.apply("cli", wider, "f")
    profile.refresh_from_db()
    assert profile.options["build"]["max_batch_size"] == 32
    for broken, word in (
        (text.replace("tp: 2", "tp: 3"), "spec.parallel.tp"),
        (text.replace("reduce_fusion", "reduce_fushion"), "spec.build.reduce_fushion"),
        (text.replace("quantization: fp8-kv8", "quantization: fp9"), "spec.quantization"),
    ):
        with pytest.raises(InvalidInput) as caught:
            specs.plan("cli", broken, "f")
        assert word in caught.value.sentence


def form_of(client: Client, kind: str, address: str = "") -> dict[str, Any]:
    """What a browser would send back from a form as it is first drawn."""
    page = client.get(address or reverse(f"admin:engines_{kind}_add"))
    form = page.context["adminform"].form
    found = {}
    for name, field in form.fields.items():
        value = field.prepare_value(form.get_initial_for_field(field, name))
        if value not in (None, False, ""):
            found[name] = value
    return found


def test_the_forms_have_a_field_for_every_flag_and_keep_what_differs(checkpoint: Checkpoint) -> None:
    client = client_of(person("operator"))
    page = client.get(reverse("admin:engines_buildprofile_add")).content.decode()
    for name in ("build__max_batch_size", "build__gemm_plugin", "convert__load_by_shard"):
        assert f'name="{name}"' in page
    assert "Default 2048." in page
    assert "Not verified: its first release." in page
    data = form_of(client, "quantizationprofile") | {"name": "fp8-kv8", "kv_cache_dtype": "fp8"}
    data |= {"quantize__seed": "7", "calib_dataset": "/data/cnn_dailymail"}
    assert client.post(reverse("admin:engines_quantizationprofile_add"), data).status_code == 302
    quantization = QuantizationProfile.objects.get()
    assert (quantization.format, quantization.options) == ("fp8", {"seed": 7})
    data = form_of(client, "buildprofile") | {
        "name": "llama",
        "builder": "trtllm",
        "checkpoint": checkpoint.pk,
    }
    data |= {"quantization_profile": quantization.pk, "gpu": "h100-sxm", "tp": "2"}
    data |= {"build__max_batch_size": "16", "build__max_seq_len": "8192", "build__max_num_tokens": "8192"}
    data |= {"build__context_fmha": "", "build__weight_streaming": "on", "build__lora_target_modules": ""}
    assert client.post(reverse("admin:engines_buildprofile_add"), data).status_code == 302
    row = BuildProfile.objects.get()
    assert row.options == {"build": {"max_batch_size": 16, "max_seq_len": 8192, "weight_streaming": True}}
    change = reverse("admin:engines_buildprofile_change", args=[row.pk])
    again = form_of(client, "buildprofile", change)
    assert client.post(change, again | {"build__reduce_fusion": "enable"}).status_code == 302
    row.refresh_from_db()
    assert row.options["build"]["reduce_fusion"] == "enable"
    refusal = client.post(change, again | {"tp": "3"}).context["adminform"].form.errors
    assert refusal["tp"][0].startswith("tp 3:")
    seen = client_of(person("viewer")).get(change).content.decode()
    assert "weight_streaming" in seen


def test_the_preview_shows_commands_memory_and_findings_beside_fields(profile: BuildProfile) -> None:
    client = client_of(person("operator"))
    change = reverse("admin:engines_buildprofile_change", args=[profile.pk])
    data = form_of(client, "buildprofile", change)
    address = reverse("admin:engines_buildprofile_preview", args=[profile.pk])
    shown = client.post(address, data | {"build__max_num_tokens": "1024"}).content.decode()
    assert "trtllm-build" in shown
    assert "--reduce_fusion enable" in shown
    assert "It fits." in shown
    assert "Not verified: no command here was run" in shown
    assert 'data-where="build__max_num_tokens"' in shown
    assert "No node has a TensorRT-LLM toolchain." in shown
    refused_now = client.post(address, data | {"tp": "3"}).content.decode()
    assert 'data-where="tp" data-severity="error"' in refused_now
    large = {"build__max_batch_size": "2048", "build__max_num_tokens": "1000000", "gpu": "l4"}
    too_much = client.post(address, data | large).content.decode()
    assert "It does not fit on L4 24 GB." in too_much
    viewed = QuantizationProfile.objects.get()
    address = reverse("admin:engines_quantizationprofile_preview", args=[viewed.pk])
    change = reverse("admin:engines_quantizationprofile_change", args=[viewed.pk])
    data = form_of(client, "quantizationprofile", change)
    shown = client.post(address, data | {"group_size": "32", "format": "int4_awq"}).content.decode()
    assert 'data-where="group_size" data-severity="error"' in shown


def test_a_pasted_command_becomes_profiles(checkpoint: Checkpoint) -> None:
    client = client_of(person("operator"))
    address = reverse("engines:paste")
    text = (
        f"quantize.py --model_dir {checkpoint.path} --qformat fp8 --calib_dataset /data/cnn_dailymail --tp_size 2\n"
        "trtllm-build --checkpoint_dir /c --max_batch_size 8 --max_input_len 1024 "
        "--max_output_len 1024 --use_inflight_batching"
    )
    shown = client.post(address, {"command": text, "name": "pasted"}).content.decode()
    assert "--max_seq_len 2048" in shown
    assert "left out" in shown
    assert "build__max_batch_size=8" in shown
    saved = client.post(address, {"command": text, "name": "pasted", "save": "1"})
    row = BuildProfile.objects.get()
    assert saved.status_code == 303
    assert saved["Location"] == reverse("admin:engines_buildprofile_change", args=[row.pk])
    assert (row.weight_format, row.tp, row.checkpoint) == ("fp8", 2, checkpoint)
    assert row.options["build"]["max_seq_len"] == 2048
    never = client.post(address, {"command": "Builder(model_path='m', precision='fp16')", "name": "x"})
    assert never.status_code == 422
    assert "was never in TensorRT-LLM" in never.content.decode()
    nameless = client.post(address, {"command": "trtllm-build --max_seq_len 64", "name": "y", "save": "1"})
    assert "names no registered checkpoint" in nameless.content.decode()


def test_commands(profile: BuildProfile, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("quantization_profile", "list")
    assert "fp8-kv8" in capsys.readouterr().out
    file = tmp_path / "old.sh"
    file.write_text("trtllm-build --max_input_len 2048 --max_output_len 2048")
    call_command("translate_command", str(file), "--json")
    read = json.loads(capsys.readouterr().out)
    assert read["changes"][0]["now"] == "--max_seq_len 4096"
    file.write_text("trtllm_server --port 1")
    with pytest.raises(SystemExit) as ended:
        call_command("translate_command", str(file))
    assert ended.value.code == 1
    assert "There is no program trtllm_server." in capsys.readouterr().out
