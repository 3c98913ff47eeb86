"""Model configurations: rendered through protobuf, parsed with the place of an error, checked as Triton checks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.core.exceptions import InvalidInput
from apps.serving.domain import pbtxt

GOOD = """
name: "m"
backend: "python"
max_batch_size: 4
input { name: "a" data_type: TYPE_INT32 dims: 1 }
output { name: "b" data_type: TYPE_STRING dims: -1 }
instance_group { kind: KIND_CPU count: 1 }
"""

# Forms seen in the wild that Triton's parser refuses, each with the word that its error must name.
WRONG = [
    ("dynamic_batching { priority_levels { level: 2 } }", "priority_levels"),
    ("dynamic_batching { delay_ms: 5 }", "delay_ms"),
    ("dynamic_batching { preferred_batch_sizes: 4 }", "preferred_batch_sizes"),
    ("dynamic_batching { max_batch_size: 4 }", "max_batch_size"),
    ("dynamic_batching { max_queue_size: 4 }", "max_queue_size"),
    ("model_queue_policy { max_queue_size: 4 }", "model_queue_policy"),
    ("model_parameters { memory_pool: 4 }", "model_parameters"),
    ('parameters { key: "a" value: "b" }', "value"),
    ('parameters: { a: "b" }', "a"),
    ("decoupled: true", "decoupled"),
    ("instance_group { device: 0 }", "device"),
    ("instance_group { kind: kind_gpu }", "kind_gpu"),
    ('instance_group { kind: "GPU" }', "GPU"),
    ('version_policy: "latest"', "latest"),
    ("response_cache { enabled: true }", "enabled"),
    ("scheduling_choice { }", "scheduling_choice"),
    ("temperature: 0.5", "temperature"),
    ("dynamic_batching { default_queue_policy { timeout_action: reject } }", "reject"),
    ("dynamic_batching { max_queue_delay_microseconds: -1 }", "-1"),
    ("dynamic_batching { max_queue_delay_microseconds: 1.5 }", "1.5"),
    ('max_batch_size: "4"', "4"),
    ("dynamic_batching { } sequence_batching { }", "sequence_batching"),
    ("model_transaction_policy { decoupled: maybe }", "maybe"),
    ("name: 'a' name: 'b'", "name"),
]


@pytest.mark.parametrize(("text", "word"), WRONG)
def test_what_triton_cannot_read_is_refused_with_its_place(text: str, word: str) -> None:
    with pytest.raises(pbtxt.PbtxtError) as caught:
        pbtxt.parse(f'backend: "python"\n{text}\n', where="m/config.pbtxt")
    error = caught.value
    assert error.line == 2
    assert error.column > 0
    assert word in error.sentence
    assert error.sentence.startswith(f"m/config.pbtxt:2:{error.column}: ")
    assert error.remedy
    assert error.facts["line"] == 2


def test_a_good_configuration_comes_back_as_it_was() -> None:
    config = pbtxt.parse(GOOD)
    assert pbtxt.parse(pbtxt.render(config)) == config
    assert pbtxt.findings(config, "m") == []


@given(st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=200), max_size=5))
def test_any_parameter_text_survives(values: dict[str, str]) -> None:
    config = pbtxt.ModelConfig(name="m", backend="python")
    pbtxt.set_parameters(config, values)
    assert pbtxt.parameters(pbtxt.parse(pbtxt.render(config))) == values


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('name: "other" backend: "python"', "name_directory_mismatch"),
        ('name: "m"', "no_backend"),
        ('backend: "python" max_batch_size: -1', "negative_batch_size"),
        ('backend: "python" version_policy { latest { } }', "no_version_selected"),
        ('backend: "python" input { name: "a" dims: 1 }', "tensor_without_type"),
        ('backend: "python" input { name: "a" data_type: TYPE_BOOL }', "tensor_without_dims"),
        ('backend: "python" input { name: "a" data_type: TYPE_BOOL dims: 0 }', "tensor_dims"),
        ('backend: "python" output { data_type: TYPE_BOOL dims: 1 }', "tensor_without_name"),
        (
            'backend: "python" input { name: "a" data_type: TYPE_BOOL dims: 1 } '
            'input { name: "a" data_type: TYPE_BOOL dims: 1 }',
            "tensor_twice",
        ),
        ('backend: "python" dynamic_batching { preferred_batch_size: 4 }', "preferred_batch_size"),
        ('backend: "python" dynamic_batching { priority_levels: 2 }', "default_priority_level"),
        (
            'backend: "python" dynamic_batching { priority_queue_policy { key: 1 value { } } }',
            "priority_without_levels",
        ),
        (
            'backend: "python" dynamic_batching { priority_levels: 2 default_priority_level: 1 '
            "priority_queue_policy { key: 3 value { } } }",
            "priority_level",
        ),
        (
            'backend: "python" dynamic_batching { priority_levels: 2 default_priority_level: 1 '
            "preserve_ordering: true }",
            "ordering_with_priorities",
        ),
        ('backend: "python" instance_group { kind: KIND_CPU count: 1 gpus: 0 }', "gpus_with_kind"),
        ('backend: "python" instance_group { kind: KIND_CPU count: 0 }', "group_count"),
        ('backend: "python" instance_group { kind: KIND_GPU count: 1 profile: "x" }', "group_profile"),
        (
            'backend: "python" response_cache { enable: true } model_transaction_policy { decoupled: true }',
            "cache_with_decoupled",
        ),
        ('backend: "python" model_operations { op_library_filename: "x.so" }', "loads_library"),
        ('backend: "python" model_repository_agents { agents { name: "x" } }', "loads_library"),
    ],
)
def test_what_triton_would_refuse_or_ignore_is_found(text: str, found: str) -> None:
    findings = pbtxt.findings(pbtxt.parse(text), "m")
    assert found in [finding.id for finding in findings]
    assert all(finding.message and finding.remedy for finding in findings)


@pytest.mark.parametrize("name", ["demo", "a", "A.b-c_9", "x" * 128])
def test_names_that_triton_takes(name: str) -> None:
    assert pbtxt.check_model_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a..b", "a/b", "../a", "warmup", "configs", "ü", "x" * 129, "-a", "a\n", "a b"]
)
def test_names_that_would_leave_the_repository_or_mislead_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        pbtxt.check_model_name(name)
    assert caught.value.field == "name"


@pytest.mark.parametrize("version", ["1.bak", "0", "01", "7.tmp", "", "1000000000", "-1", "1\n"])
def test_versions_that_triton_would_misread_are_refused(version: str) -> None:
    with pytest.raises(InvalidInput):
        pbtxt.check_version(version)
    assert pbtxt.check_version("17") == "17"
