"""Which settings act, for every engine and strategy; what follows from a profile, in sentences; presets."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from apps.serving.domain import acting, batching, consequences, field_words, presets
from apps.serving.domain.acting import EngineKind
from apps.serving.domain.consequences import Limits
from apps.serving.domain.trtllm import settings, spec
from apps.serving.domain.trtllm.render import configuration

BASE: dict[str, Any] = {
    "name": "p",
    "strategy": "inflight",
    "max_batch_size": 8,
    "max_queue_delay_microseconds": 0,
    "max_seq_len": 4096,
    "max_queue_size": 16,
    "threads": 0,
}
KINDS: tuple[EngineKind, ...] = get_args(EngineKind)


def active(engine: EngineKind, **values: Any) -> set[str]:
    return {field for field, reason in acting.acts(BASE | values, engine).items() if reason is None}


@pytest.mark.parametrize("engine", KINDS)
def test_every_field_has_an_answer_and_words(engine: EngineKind) -> None:
    answers = acting.acts(BASE, engine)
    assert set(answers) == {*acting.FIELDS, *(f"trtllm.{key}" for key in settings.PROFILE), acting.GPUS}
    assert all(reason is None or reason.endswith(".") for reason in answers.values())
    for field in answers.keys() - {acting.GPUS}:
        assert field_words.words(field).meaning.endswith(".")


@pytest.mark.parametrize(
    ("strategy", "more", "without"),
    [
        ("none", set(), {"max_batch_size", "priority_classes", "max_queue_delay_microseconds"}),
        ("inflight", {"max_batch_size"}, {"priority_classes", "preferred_batch_sizes"}),
        ("static", {"max_queue_delay_microseconds", "priority_classes"}, {"preferred_batch_sizes"}),
        ("dynamic", {"preferred_batch_sizes", "queue_timeout_microseconds"}, {"timeout_action"}),
    ],
)
def test_the_embedded_engine_by_strategy(strategy: str, more: set[str], without: set[str]) -> None:
    found = active("llamacpp", strategy=strategy)
    assert {"strategy", "max_seq_len", "threads", "max_queue_size"} | more <= found
    assert not found & without
    assert not any(field.startswith("trtllm.") for field in found)


def test_what_depends_on_another_field() -> None:
    assert "timeout_action" in active("llamacpp", strategy="dynamic", queue_timeout_microseconds=5)
    ordered = active("llamacpp", strategy="dynamic", queue_timeout_microseconds=5, preserve_ordering=True)
    assert not {"timeout_action", "priority_classes"} & ordered
    by_class = [{"name": "low", "queue_timeout_microseconds": 5}]
    assert {"timeout_action", "default_priority_class"} <= active(
        "llamacpp", strategy="dynamic", priority_classes=by_class
    )


@pytest.mark.parametrize(
    ("chosen", "field", "acts"),
    [
        ({}, "kv_cache_free_gpu_mem_fraction", True),
        ({"max_tokens_in_paged_kv_cache": 9}, "kv_cache_free_gpu_mem_fraction", False),
        ({}, "lookahead_ngram_size", False),
        ({"decoding_mode": "lookahead"}, "lookahead_ngram_size", True),
        ({}, "eagle_choices", False),
        ({"decoding_mode": "eagle"}, "eagle_choices", True),
        ({}, "cuda_graph_cache_size", False),
        ({"cuda_graph_mode": True}, "cuda_graph_cache_size", True),
        ({}, "kv_cache_onboard_blocks", False),
        ({"kv_cache_host_memory_bytes": 5}, "kv_cache_onboard_blocks", True),
        ({}, "max_num_tokens", False),
        ({}, "speculative_decoding_fast_logits", False),
    ],
)
def test_the_engine_backend_by_setting(chosen: dict[str, Any], field: str, acts: bool) -> None:
    assert (f"trtllm.{field}" in active("trtllm", trtllm=chosen)) == acts


def test_triton_fields_do_nothing_under_tensorrt_llm() -> None:
    for engine in ("trtllm", "llmapi"):
        found = acting.acts(BASE, engine)
        for field in (
            "preferred_batch_sizes",
            "max_queue_delay_microseconds",
            "priority_classes",
            "max_queue_size",
        ):
            assert found[field] == acting.TAKEN_AT_ONCE
        assert found["strategy"]
        assert found[acting.GPUS]


def test_what_acts_for_the_checkpoint_recipe_reaches_its_file_and_nothing_else_does() -> None:
    plain = configuration(spec.parse({"recipe": "checkpoint", "model": "/x"}))
    samples: dict[str, Any] = {"bool": False, "fraction": 0.5, "ints": "64", "int": 40, "text": "{0}"}
    for key, item in settings.PROFILE.items():
        value = item.choices[-1] if item.choices else samples[item.form]
        chosen = {key: value}
        if item.key == "kv_cache_onboard_blocks":
            chosen["kv_cache_host_memory_bytes"] = 5
        if item.key == "sink_token_length":
            chosen["max_attention_window_size"] = "64"
        made = configuration(spec.parse({"recipe": "checkpoint", "model": "/x", "settings": chosen}))
        assert (made != plain) == (f"trtllm.{key}" in active("llmapi", trtllm=chosen)), key


def test_only_what_is_set_is_told() -> None:
    assert acting.set_without_effect(BASE, "trtllm") == {}
    given = BASE | {
        "strategy": "dynamic",
        "threads": 2,
        "preferred_batch_sizes": [4],
        "trtllm": {"max_num_tokens": 64},
    }
    assert set(acting.set_without_effect(given, "trtllm")) == {
        "strategy",
        "threads",
        "preferred_batch_sizes",
        "trtllm.max_num_tokens",
    }


@pytest.mark.parametrize(
    ("engine", "values", "limits", "sentence"),
    [
        ("llamacpp", {}, Limits(), "A prompt and its answer together hold at most 4,096 tokens"),
        ("llamacpp", {"max_queue_size": 0}, Limits(), "every further request is refused at once"),
        ("llamacpp", {"strategy": "static"}, Limits(), "waits up to 1,000 ms for a batch of exactly 8"),
        ("llamacpp", {"strategy": "dynamic"}, Limits(), "takes what has come, up to 8 requests at once"),
        (
            "llamacpp",
            {"strategy": "dynamic", "queue_timeout_microseconds": 2500},
            Limits(),
            "A request that waits longer than 2.5 ms is refused.",
        ),
        (
            "llamacpp",
            {"strategy": "dynamic", "queue_timeout_microseconds": 1000, "timeout_action": "delay"},
            Limits(),
            "moved behind the others, and never refused",
        ),
        (
            "trtllm",
            {},
            Limits(),
            "A prompt longer than 8,192 tokens will be refused (max_num_tokens, the build's",
        ),
        (
            "trtllm",
            {},
            Limits(131072, 8192),
            "A prompt longer than 8,192 tokens will be refused (max_num_tokens)",
        ),
        (
            "trtllm",
            {"trtllm": {"enable_chunked_context": True}},
            Limits(131072, 8192),
            "A prompt longer than 131,071 tokens will be refused.",
        ),
        ("trtllm", {"max_batch_size": 64}, Limits(max_batch_size=16), "At most 16 requests run together"),
        ("llmapi", {}, Limits(), "A prompt longer than 4,095 tokens will be refused."),
        (
            "llmapi",
            {"max_seq_len": 32768, "trtllm": {"max_num_tokens": 2048}},
            Limits(),
            "A prompt longer than 2,048 tokens will be refused",
        ),
        (
            "trtllm",
            {"trtllm": {"batch_scheduler_policy": "max_utilization"}},
            Limits(),
            "running answers are paused",
        ),
    ],
)
def test_what_follows_is_said(
    engine: EngineKind, values: dict[str, Any], limits: Limits, sentence: str
) -> None:
    assert sentence in " ".join(consequences.consequences(BASE | values, engine, limits))


@pytest.mark.parametrize("engine", KINDS)
@pytest.mark.parametrize("name", presets.PRESETS)
def test_a_preset_sets_only_what_acts(engine: EngineKind, name: str) -> None:
    values = BASE | presets.preset(name, engine)
    assert acting.set_without_effect(values, engine) == {}
    assert batching.facts(values).slots == values["max_batch_size"]


def test_presets_differ_and_an_unknown_one_is_empty() -> None:
    for engine in KINDS:
        assert len({presets.preset(name, engine)["max_batch_size"] for name in presets.PRESETS}) == 3
        assert presets.preset("fastest", engine) == {}


def test_the_guide_names_every_field() -> None:
    text = (Path(__file__).parents[2] / "docs/batching.md").read_text(encoding="utf-8")
    for name in (*acting.FIELDS, *settings.PROFILE, *settings.PLACED):
        assert f"| `{name}` |" in text, name
