"""The tolerant reader against the official parser, and the schema's faults with their right form."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from apps.serving.domain import pbtxt
from apps.serving.domain.repository_check.one_config import read_config
from apps.serving.domain.repository_check.text_tree import TreeError, read_tree

LEGAL = [
    'name: "m" backend: "python"',
    'name: \'m\'; backend: "py" "thon",',
    'backend: "python" instance_group [ { count: 1 kind: KIND_CPU }, { count: 2 } ]',
    'backend: "python" instance_group: < count: 0x1 kind: 2 >',
    'backend: "python" parameters: [ { key: "a" value: { string_value: "x, y: z" } } ]',
    '# comment with { and "\nbackend: "python" input [] max_batch_size: 010',
    'backend: "python" dynamic_batching {}',
    'backend: "python" dynamic_batching { preferred_batch_size: [ ] preserve_ordering: f }',
    'backend: "python" input { name: "a" data_type: TYPE_BOOL dims: -1 dims: 4 }',
    'backend: "python" model_transaction_policy { decoupled: True }',
    "",
]


@pytest.mark.parametrize("text", LEGAL)
def test_every_legal_form_is_read_without_a_complaint_about_its_form(text: str) -> None:
    read = read_config(text, "m")
    assert read.readable
    assert [
        found.id for found in read.remarks if found.id in ("unknown_field", "wrong_value", "field_twice")
    ] == []


@pytest.mark.parametrize(
    ("text", "id", "right"),
    [
        ("dynamic_batching { priority_levels { level: 2 } }", "wrong_value", "default_priority_level: 2"),
        ("dynamic_batching { delay_ms: 5 }", "unknown_field", "max_queue_delay_microseconds"),
        ("dynamic_batching { preferred_batch_sizes: [ 4 ] }", "unknown_field", "preferred_batch_size"),
        ("dynamic_batching { max_queue_size: 5 }", "unknown_field", "default_queue_policy"),
        ('model_parameters { memory_pool: "1" }', "unknown_field", "parameters {"),
        ('parameters { key: "a" value: "b" }', "wrong_value", "string_value"),
        ('parameters: { a: "b" }', "unknown_field", ""),
        ("decoupled: true", "unknown_field", "model_transaction_policy"),
        ("instance_group { gpu_ids: 0 }", "unknown_field", "gpus: [ 0 ]"),
        ('instance_group { kind: "GPU" }', "wrong_value", "KIND_GPU"),
        ("instance_group { kind: kind_gpu }", "wrong_value", "KIND_GPU"),
        ('version_policy: "latest"', "wrong_value", "num_versions: 1"),
        ("response_cache { enabled: true }", "unknown_field", "enable: true"),
        ("scheduling_choice { }", "unknown_field", "dynamic_batching"),
        ("tensor_parallel_size: 2", "unknown_field", "engine"),
        ("dynamic_batching { default_queue_policy { timeout_action: reject } }", "wrong_value", "REJECT"),
        ("dynamic_batching { max_queue_delay_microseconds: -1 }", "wrong_value", ""),
        ("dynamic_batching { max_queue_delay_microseconds: 1e3 }", "wrong_value", ""),
        ('max_batch_size: "8"', "wrong_value", ""),
        ("max_batch_size: 08", "wrong_value", ""),
        ("max_batch_size: 3000000000", "wrong_value", ""),
        ('model_transaction_policy { decoupled: "true" }', "wrong_value", ""),
        ("max_batch_size: 1 max_batch_size: 2", "field_twice", ""),
        ("dynamic_batching { } sequence_batching { }", "exclusive_fields", ""),
        ("[foo.bar] { }", "unknown_field", ""),
        ("max_batch_sise: 4", "unknown_field", "max_batch_size"),
        ("name: m", "wrong_value", ""),
        ("max_batch_size: [ 1, 2 ]", "wrong_value", ""),
    ],
)
def test_what_the_schema_does_not_have_is_named_with_the_right_form(text: str, id: str, right: str) -> None:
    with pytest.raises(pbtxt.PbtxtError):
        pbtxt.parse(text)
    read = read_config(f'backend: "python"\n{text}', "m")
    found = next(remark for remark in read.remarks if remark.id == id)
    assert found.severity == "error"
    assert right in found.remedy
    assert ":2" in found.where
    # The rest of the file is still understood.
    assert read.config is not None
    assert read.config.backend == "python"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "name",
        "name:",
        'name: "open',
        "a { b: 1",
        "a ] b",
        "\x00",
        "name: @",
        "a {" * 100,
        "${all}",
        "]" * 9,
    ],
)
def test_broken_text_is_refused_with_a_place_and_never_with_a_traceback(text: str) -> None:
    read = read_config(text, "m")
    assert not read.readable
    assert [found.severity for found in read.errors()]
    assert all(found.message for found in read.errors())


def test_a_file_that_is_too_long_is_not_read() -> None:
    with pytest.raises(TreeError, match="longer"):
        read_tree(" " * 5_000_000)


@given(st.text(max_size=200))
def test_no_text_makes_it_fail(text: str) -> None:
    read = read_config(text, "m")
    assert read.readable or read.errors()


@given(
    st.lists(
        st.sampled_from(
            [
                "max_batch_size: 4",
                'parameters { key: "a" value { string_value: "b" } }',
                'input { name: "a" data_type: TYPE_BOOL dims: [ 1, -1 ] }',
                "dynamic_batching { priority_levels: 2 default_priority_level: 1 }",
                "instance_group [ { count: 1 kind: KIND_CPU } ]",
                "model_transaction_policy { decoupled: true }",
                "max_batch_size: x",
                "nonsense: 3",
                "dynamic_batching: 4",
                "input { dims: [ a ] }",
            ]
        ),
        max_size=5,
    )
)
def test_it_says_an_error_exactly_where_the_official_parser_does(parts: list[str]) -> None:
    text = "\n".join(parts)
    read = read_config(text, "m")
    form = {"unknown_field", "wrong_value", "field_twice", "exclusive_fields", "config_unreadable"}
    complains = any(found.id in form for found in read.remarks)
    try:
        text_format.Parse(text, pbtxt.ModelConfig())
    except text_format.ParseError:
        assert complains
    else:
        assert not complains
