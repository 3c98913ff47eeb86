"""Settings of somebody's configuration as fields of a batching profile, and edited fields back into it."""

from __future__ import annotations

from typing import Any

import pytest

from apps.serving.domain import pbtxt
from apps.serving.domain.adopting import settings

DEFAULTS: dict[str, Any] = {
    "strategy": "inflight",
    "max_batch_size": 16,
    "max_queue_delay_microseconds": 0,
    "max_queue_size": 256,
    "preferred_batch_sizes": [],
    "queue_timeout_microseconds": 0,
    "preserve_ordering": False,
    "timeout_action": "reject",
    "allow_timeout_override": True,
    "priority_classes": [],
    "default_priority_class": "",
    "trtllm": {},
}
DYNAMIC = """
backend: "python" max_batch_size: 8
dynamic_batching {
  max_queue_delay_microseconds: 500 preferred_batch_size: [ 4, 8 ]
  priority_levels: 3 default_priority_level: 2
  default_queue_policy { max_queue_size: 32 default_timeout_microseconds: 1000000 allow_timeout_override: true }
  priority_queue_policy { key: 1 value { max_queue_size: 4 } }
}
parameters { key: "own" value { string_value: "kept" } }
"""
ENGINE = """
backend: "tensorrtllm" max_batch_size: 64 dynamic_batching { preferred_batch_size: [ 64 ] }
parameters { key: "gpt_model_type" value { string_value: "inflight_fused_batching" } }
parameters { key: "batch_scheduler_policy" value { string_value: "max_utilization" } }
parameters { key: "kv_cache_free_gpu_mem_fraction" value { string_value: "0.85" } }
parameters { key: "enable_kv_cache_reuse" value { string_value: "TRUE" } }
parameters { key: "max_beam_width" value { string_value: "${max_beam_width}" } }
"""


def test_what_a_profile_has_fields_for_becomes_its_fields() -> None:
    found = settings.of_model(pbtxt.parse(DYNAMIC), "python")
    assert found.values == {
        "strategy": "dynamic",
        "max_batch_size": 8,
        "max_queue_delay_microseconds": 500,
        "preferred_batch_sizes": [4, 8],
        "max_queue_size": 32,
        "queue_timeout_microseconds": 1_000_000,
        "allow_timeout_override": True,
        "priority_classes": [{"name": "high", "max_queue_size": 4}, {"name": "normal"}, {"name": "low"}],
        "default_priority_class": "normal",
    }
    assert ("dynamic_batching.default_queue_policy.max_queue_size", "32", "max_queue_size") in [
        (one.where, one.value, one.field) for one in found.mapped
    ]


def test_parameters_of_an_engine_become_typed_and_open_ones_stay() -> None:
    found = settings.of_model(pbtxt.parse(ENGINE), "tensorrt_llm")
    assert found.values["trtllm"] == {
        "batch_scheduler_policy": "max_utilization",
        "kv_cache_free_gpu_mem_fraction": 0.85,
        "enable_kv_cache_reuse": True,
    }
    assert (found.values["strategy"], found.values["engine"]) == ("inflight", "trtllm")
    assert found.values["max_batch_size"] == 64


@pytest.mark.parametrize(("text", "kind"), [(DYNAMIC, "python"), (ENGINE, "tensorrt_llm")])
def test_an_adopted_profile_that_nobody_edited_changes_nothing(text: str, kind: str) -> None:
    config = pbtxt.parse(text)
    profile = {**DEFAULTS, **settings.of_model(config, kind).values}
    assert settings.apply(config, kind, profile, DEFAULTS) == []
    assert config == pbtxt.parse(text)


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("max_batch_size", 4, "max_batch_size: 4"),
        ("max_queue_delay_microseconds", 0, None),
        ("max_queue_size", 256, "max_queue_size: 256"),
        ("queue_timeout_microseconds", 5, "default_timeout_microseconds: 5"),
        ("preferred_batch_sizes", [2], "preferred_batch_size: 2"),
        ("timeout_action", "delay", "timeout_action: DELAY"),
        ("priority_classes", [], None),
    ],
)
def test_an_edited_field_is_written_and_the_rest_stays(field: str, value: Any, shown: str | None) -> None:
    config = pbtxt.parse(DYNAMIC)
    profile = {**DEFAULTS, **settings.of_model(config, "python").values, field: value}
    assert settings.apply(config, "python", profile, DEFAULTS) == []
    text = pbtxt.render(config)
    assert text != pbtxt.render(pbtxt.parse(DYNAMIC))
    assert shown is None or shown in text
    assert 'string_value: "kept"' in text


def test_a_setting_of_the_engine_is_written_where_the_engine_reads_it() -> None:
    config = pbtxt.parse(ENGINE)
    own = settings.of_model(config, "tensorrt_llm").values
    profile = {**DEFAULTS, **own, "trtllm": {"enable_kv_cache_reuse": False, "max_beam_width": 2}}
    settings.apply(config, "tensorrt_llm", profile, DEFAULTS)
    values = pbtxt.parameters(config)
    assert (values["enable_kv_cache_reuse"], values["max_beam_width"]) == ("false", "2")
    # Taken out of the profile: the backend's own default.
    assert values["batch_scheduler_policy"] == ""


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ('backend: "python" max_batch_size: 0', "max_batch_size", 8),
        ('backend: "python" max_batch_size: 1', "preferred_batch_sizes", [1]),
        ('backend: "x" max_batch_size: 4 sequence_batching { }', "strategy", "dynamic"),
    ],
)
def test_a_field_without_a_place_is_said_and_written_nowhere(text: str, field: str, value: Any) -> None:
    config = pbtxt.parse(text)
    profile = {**DEFAULTS, **settings.of_model(config, "python").values, field: value}
    assert settings.apply(config, "python", profile, DEFAULTS) == [field]
    assert config == pbtxt.parse(text)


def test_our_own_model_gives_its_profile_back() -> None:
    text = 'backend: "python" max_batch_size: 1 ' + "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }} '
        for key, value in {
            "strategy": "inflight",
            "slots": 12,
            "context_per_slot": 2048,
            "threads": 3,
        }.items()
    )
    assert settings.of_model(pbtxt.parse(text), "llamacpp").values == {
        "strategy": "inflight",
        "max_batch_size": 12,
        "max_seq_len": 2048,
        "threads": 3,
    }
