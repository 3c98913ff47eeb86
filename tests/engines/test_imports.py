"""Engines from elsewhere: what is read of them, what is refused, and that their files are only linked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from apps.core.exceptions import InvalidInput, NotPossibleNow
from apps.engines import imports, sweep
from apps.engines.artefacts import delete_engine
from apps.engines.compatibility import engine_needs
from apps.engines.domain.engine_files import read_engine_folder
from apps.engines.models import Build, BuildProfile, Engine
from apps.engines.selectors import newest_engine
from tests import objects

CONFIG: dict[str, Any] = {
    "version": "1.2.1",
    "pretrained_config": {
        "architecture": "LlamaForCausalLM",
        "dtype": "bfloat16",
        "mapping": {"world_size": 2, "tp_size": 2, "pp_size": 1},
        "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
    },
    "build_config": {
        "max_batch_size": 64,
        "max_seq_len": 8192,
        "max_num_tokens": 4096,
        "kv_cache_type": "paged",
        "plugin_config": {
            "gpt_attention_plugin": "auto",
            "use_paged_context_fmha": True,
            "lora_plugin": None,
        },
        "speculative_decoding_mode": 8,
    },
}
SIZES = {"config.json": 10, "rank0.engine": 5, "rank1.engine": 6}


def changed(**parts: Any) -> str:
    """The configuration with some of its parts changed."""
    config = json.loads(json.dumps(CONFIG))
    for path, value in parts.items():
        *outer, last = path.split("__")
        inner = config
        for key in outer:
            inner = inner[key]
        inner[last] = value
    return json.dumps(config)


def test_what_a_folder_says() -> None:
    found = read_engine_folder(json.dumps(CONFIG), SIZES)
    assert not found.refused
    assert [each.id for each in found.findings] == ["provenance_unknown"]
    assert (found.version, found.tp, found.world_size, found.kv_cache_type) == ("1.2.1", 2, 2, "PAGED")
    assert found.limits == {"max_batch_size": 64, "max_seq_len": 8192, "max_num_tokens": 4096}
    assert found.plugins == {"gpt_attention_plugin": "auto", "use_paged_context_fmha": True}
    assert found.speculation == "lookahead_decoding"


@pytest.mark.parametrize(
    ("config", "sizes", "id", "refused"),
    [
        (None, {}, "engine_config_json_unreadable", True),
        ("version https://git-lfs", SIZES, "engine_config_json_unreadable", True),
        ("[]", SIZES, "engine_config_json_unreadable", True),
        ('{"architecture": "LlamaForCausalLM"}', SIZES, "engine_config_json_unreadable", True),
        (changed(), {"config.json": 1, "rank0.engine": 5}, "engine_missing", True),
        (changed(), {**SIZES, "rank1.engine": 0}, "engine_missing", True),
        (changed(), {**SIZES, "rank2.engine": 9}, "ranks_left_over", False),
        (changed(pretrained_config__mapping__world_size=4), SIZES, "world_size_differs", True),
        (changed(version="none"), SIZES, "engine_version_unknown", False),
        (changed(build_config__kv_cache_type="CONTINUOUS"), SIZES, "engine_not_for_inflight_batching", True),
        (changed(build_config__kv_cache_type=None), SIZES, "kv_cache_type_missing", False),
        (changed(build_config__plugin_config__use_paged_context_fmha=False), SIZES, "capability_switched_off", False),
        (changed(build_config__plugin_config__gpt_attention_plugin="disable"), SIZES,
            "engine_not_for_inflight_batching", True),
    ],
)  # fmt: skip
def test_what_is_found(config: str | None, sizes: dict[str, int], id: str, refused: bool) -> None:
    found = read_engine_folder(config, sizes)
    assert id in [each.id for each in found.findings]
    assert found.refused is refused


@pytest.fixture
def folder(db: None, tmp_path: Path, settings: Any) -> Path:
    """An engine's folder inside the allowed ones of a home of its own."""
    settings.INFLIGHT_HOME = tmp_path
    made = tmp_path / "checkpoints" / "engine-from-elsewhere"
    made.mkdir(parents=True)
    (made / "config.json").write_text(json.dumps(CONFIG))
    for rank in range(2):
        (made / f"rank{rank}.engine").write_bytes(b"plan" * (rank + 1))
    (made / "notes.txt").write_text("left alone")
    return made


def profile() -> BuildProfile:
    made = objects.build_profile("imported")
    BuildProfile.objects.filter(pk=made.pk).update(builder="trtllm", quantization="", dtype="auto")
    return BuildProfile.objects.get(pk=made.pk)


def test_an_import_links_and_deletes_nothing_of_the_source(folder: Path) -> None:
    engine = imports.import_engine("test", {"path": str(folder), "checkpoint": objects.checkpoint().name})
    place = Path(engine.path)
    assert place.parent == Path(settings.INFLIGHT_HOME) / "engines"
    assert sorted(path.name for path in place.iterdir()) == [
        "config.json",
        "manifest.json",
        "rank0.engine",
        "rank1.engine",
    ]
    assert sweep.is_whole(engine)
    assert (engine.provenance, engine.quantization, engine.size_bytes) == (
        "imported",
        "fp8",
        len(json.dumps(CONFIG)) + 12,
    )
    needs = engine_needs(engine)
    assert (needs.recipe, needs.tensorrt_llm, needs.tensorrt, needs.sm, needs.world_size) == (
        "engine",
        "1.2.1",
        None,
        None,
        2,
    )
    with pytest.raises(NotPossibleNow):
        imports.import_engine("test", {"path": str(folder), "checkpoint": "tiny"})
    delete_engine("test", engine)
    assert not place.exists()
    assert (folder / "rank1.engine").read_bytes() == b"plan" * 2


def test_deployments_of_a_profile_use_what_was_imported_for_it(folder: Path) -> None:
    row = profile()
    engine = imports.import_engine("test", {"path": str(folder), "checkpoint": "tiny", "profile": "imported"})
    build = Build.objects.get(engine=engine)
    assert (build.state, build.profile, build.builder, build.reused) == ("succeeded", row, "trtllm", True)
    assert newest_engine(row) == engine


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"checkpoint": "tiny"}, "path"),
        ({"path": "/etc", "checkpoint": "tiny"}, "path"),
        ({"path": "relative", "checkpoint": "tiny"}, "path"),
        ({"path": "{home}/checkpoints/nowhere", "checkpoint": "tiny"}, "path"),
        ({"path": "{home}/checkpoints/../../etc", "checkpoint": "tiny"}, "path"),
        ({"path": "{home}/checkpoints", "checkpoint": "tiny"}, "path"),
        ({"path": "{folder}", "checkpoint": "nobody"}, "checkpoint"),
        ({"path": "{folder}", "checkpoint": "tiny", "profile": "f16"}, "profile"),
        ({"path": "{folder}", "checkpoint": "tiny", "other": 1}, "other"),
    ],
)
def test_refusals_name_the_field(folder: Path, data: dict[str, Any], field: str) -> None:
    objects.build_profile("f16")
    filled = {
        key: value.format(home=settings.INFLIGHT_HOME, folder=folder) if isinstance(value, str) else value
        for key, value in data.items()
    }
    with pytest.raises(InvalidInput) as caught:
        imports.import_engine("test", filled)
    assert caught.value.field == field
    assert not Engine.objects.exists()
