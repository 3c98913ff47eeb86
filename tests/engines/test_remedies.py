"""Remedies as data: what each changes in a profile, and when it is not offered."""

from __future__ import annotations

from typing import Any

import pytest

from apps.diagnosis.domain.table import RULES
from apps.engines.domain.remedies import REMEDIES, Situation, changed, changes

TRTLLM: dict[str, Any] = {
    "tp": 2,
    "quantization_profile": "fp8",
    "options": {"build": {"max_batch_size": 64}},
}


def told(
    diagnosis: str, fields: dict[str, Any], builder: str = "trtllm", **more: Any
) -> list[tuple[Any, ...]]:
    found = changes(diagnosis, builder, Situation(fields, **more))
    return [(change.field, change.old, change.new) for change in found]


@pytest.mark.parametrize(
    ("diagnosis", "fields", "more", "expected"),
    [
        (
            "gpu_out_of_memory",
            TRTLLM,
            {"valid_tp": (1, 2, 4, 8)},
            [
                ("options.build.max_batch_size", 64, 32),
                ("options.build.max_num_tokens", None, 4096),
                ("tp", 2, 4),
            ],
        ),
        ("gpu_out_of_memory", {"options": {"build": {"max_batch_size": 1, "max_num_tokens": 256}}}, {}, []),
        ("fp8_unsupported_gpu", TRTLLM, {}, [("quantization_profile", "fp8", None)]),
        ("fp8_unsupported_gpu", {"quantization_profile": None}, {}, []),
        ("plugin_dtype", {"options": {"build": {"gemm_plugin": "float16"}}}, {},
            [("options.build.gemm_plugin", "float16", "auto"),
             ("options.build.gpt_attention_plugin", None, "auto")]),
        ("parallel_sizes", {"tp": 8}, {"valid_tp": (1, 2, 4)}, [("tp", 8, 4)]),
        ("parallel_sizes", {"tp": 1}, {"valid_tp": (1, 2)}, []),
        ("host_out_of_memory", {"options": {"build": {"workers": 4}}}, {}, [("options.build.workers", 4, 1)]),
        ("host_out_of_memory", {"options": {}}, {}, []),
        (
            "unknown_flag",
            {"options": {"build": {"max_output_len": 2048}}},
            {"facts": {"flag": "--max_output_len", "rewrite": {"max_seq_len": 4096}}},
            [("options.build.max_seq_len", None, 4096), ("options.build.max_output_len", 2048, None)],
        ),
        ("unknown_flag", {"options": {}}, {"facts": {"flag": "--other"}}, []),
        ("no_such_diagnosis", TRTLLM, {}, []),
    ],
)  # fmt: skip
def test_changes(
    diagnosis: str, fields: dict[str, Any], more: dict[str, Any], expected: list[tuple[Any, ...]]
) -> None:
    assert told(diagnosis, fields, **more) == expected


def test_weights_of_llamacpp_get_narrower() -> None:
    seen = ["F16"]
    while found := told("disk_full", {"quantization": seen[-1]}, "llamacpp"):
        seen.append(found[0][2])
    assert seen == ["F16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0"]
    assert told("disk_full", {"quantization": "BF16"}, "llamacpp") == [("quantization", "BF16", "Q8_0")]


def test_a_change_is_what_the_profile_is_saved_with() -> None:
    fields = {"options": {"build": {"a": 1, "workers": 4}, "convert": {"b": 2}}}
    found = changes("host_out_of_memory", "trtllm", Situation(fields))[0]
    assert changed(fields, found) == {"options": {"build": {"a": 1, "workers": 1}, "convert": {"b": 2}}}
    removed = changes(
        "streamingllm_removed", "trtllm", Situation({"options": {"build": {"streamingllm": "enable"}}})
    )
    assert changed({"options": {"build": {"streamingllm": "enable"}}}, removed[0]) == {
        "options": {"build": {}}
    }


def test_every_remedy_belongs_to_a_diagnosis() -> None:
    assert {remedy.diagnosis for remedy in REMEDIES} <= {rule.id for rule in RULES}
