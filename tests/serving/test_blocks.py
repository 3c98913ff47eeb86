"""Typed blocks to text and back: nothing is lost or made up, and what does not fit is refused by its field."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.core.exceptions import InvalidInput
from apps.serving.domain import blocks as b
from apps.serving.domain import pbtxt, server_release
from apps.serving.domain.block_messages import checked, compose, read
from apps.serving.domain.pbtxt import DataType

WORDS = st.text(min_size=1, max_size=12)
TYPES = st.sampled_from([name for name in DataType.keys() if name != "TYPE_INVALID"])  # noqa: SIM118
NUMBERS = st.integers(0, 2**31 - 1)
LONG = st.integers(0, 2**64 - 1)
# Protobuf keeps 32 bits of them.
FLOATS = st.floats(0, 1, width=32)
DIMS = st.lists(st.integers(-1, 2**40), max_size=3).map(tuple)


def many(strategy: st.SearchStrategy[Any], most: int = 2) -> st.SearchStrategy[Any]:
    return st.lists(strategy, max_size=most).map(tuple)


def by_name(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(WORDS, strategy, max_size=2)


SHAPES = st.none() | st.builds(b.Reshape, DIMS)
INPUTS = st.builds(b.Input, WORDS, TYPES, DIMS, SHAPES, st.booleans(), st.booleans())
OUTPUTS = st.builds(b.Output, WORDS, TYPES, DIMS, SHAPES, st.just("") | WORDS)
POLICIES = st.builds(b.QueuePolicy, st.sampled_from(["REJECT", "DELAY"]), LONG, st.booleans(), NUMBERS)
DYNAMIC = st.builds(
    b.DynamicBatching,
    many(NUMBERS),
    LONG,
    st.booleans(),
    LONG,
    LONG,
    st.none() | POLICIES,
    st.dictionaries(LONG, POLICIES, max_size=2),
)
LIMITERS = st.builds(b.RateLimiter, many(st.builds(b.Resource, WORDS, NUMBERS, st.booleans())), NUMBERS)
GROUPS = st.builds(
    b.InstanceGroup,
    st.sampled_from(["KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL"]),
    NUMBERS,
    many(NUMBERS),
    WORDS,
    st.none() | LIMITERS,
    many(WORDS),
    st.booleans(),
    WORDS,
)
VERSIONS = st.one_of(
    st.builds(b.VersionPolicy, latest=st.builds(b.Latest, NUMBERS)),
    st.builds(b.VersionPolicy, all=st.just(b.All())),
    st.builds(b.VersionPolicy, specific=st.builds(b.Specific, many(st.integers(1, 2**40)))),
)
ENSEMBLES = st.builds(
    b.Ensemble, many(st.builds(b.Step, WORDS, by_name(WORDS), by_name(WORDS), st.integers(-1, 99))), NUMBERS
)
CONTROLS = st.builds(
    b.SequenceControl,
    st.sampled_from(["CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_END", "CONTROL_SEQUENCE_CORRID"]),
    many(st.integers(-5, 5)),
    many(FLOATS),
    many(st.booleans()),
    TYPES,
)
BEGINNINGS = st.builds(b.InitialState, WORDS, TYPES, DIMS, st.just(True))
STATES = st.builds(b.State, WORDS, WORDS, TYPES, DIMS, many(BEGINNINGS, 1), st.booleans(), st.booleans())
SEQUENCES = st.builds(
    b.SequenceBatching,
    direct=st.none() | st.builds(b.Direct, LONG, FLOATS),
    max_sequence_idle_microseconds=LONG,
    control_input=many(st.builds(b.ControlInput, WORDS, many(CONTROLS))),
    state=many(STATES),
    iterative_sequence=st.booleans(),
) | st.builds(b.SequenceBatching, oldest=st.builds(b.Oldest, NUMBERS, many(NUMBERS), LONG, st.booleans()))
DATA = st.builds(b.WarmupInput, TYPES, DIMS, st.just(True)) | st.builds(
    b.WarmupInput, TYPES, DIMS, input_data_file=WORDS
)
WARMUPS = st.builds(b.Warmup, WORDS, NUMBERS, by_name(DATA), NUMBERS)
SWITCH = st.none() | st.builds(b.Switch, st.booleans())
ACCELERATORS = st.builds(b.Accelerators, many(st.builds(b.Accelerator, WORDS, by_name(WORDS))))
OPTIMIZATIONS = st.builds(
    b.Optimization,
    st.none() | st.builds(b.Graph, st.integers(-1, 3)),
    st.sampled_from(["PRIORITY_DEFAULT", "PRIORITY_MAX", "PRIORITY_MIN"]),
    st.none() | st.builds(b.Cuda, st.booleans(), st.booleans(), st.booleans()),
    st.none() | ACCELERATORS,
    SWITCH,
    SWITCH,
    NUMBERS,
    st.booleans(),
)
SCHEDULERS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"dynamic_batching": DYNAMIC}),
    st.fixed_dictionaries({"sequence_batching": SEQUENCES}),
    st.fixed_dictionaries({"ensemble_scheduling": ENSEMBLES}),
)
MODELS = st.builds(
    b.Model,
    WORDS,
    WORDS,
    WORDS,
    NUMBERS,
    many(INPUTS),
    many(OUTPUTS),
    instance_group=many(GROUPS),
    model_transaction_policy=st.none() | st.builds(b.TransactionPolicy, st.booleans()),
    version_policy=st.none() | VERSIONS,
    parameters=by_name(WORDS),
    model_warmup=many(WARMUPS, 1),
    optimization=st.none() | OPTIMIZATIONS,
    default_model_filename=st.just("") | WORDS,
    metric_tags=by_name(WORDS),
    response_cache=SWITCH,
)


@settings(max_examples=60, deadline=None, database=None)
@given(MODELS, SCHEDULERS)
def test_blocks_survive_the_text_form(model: b.Model, scheduler: dict[str, Any]) -> None:
    model = dataclasses.replace(model, **scheduler)
    config = compose(model)
    text = pbtxt.render(config)
    assert pbtxt.parse(text) == config
    assert read(pbtxt.parse(text)) == model


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (b.Model("m", max_batch_size=2**31), "max_batch_size"),
        (b.Model("m", input=(b.Input("a", "TYPE_WORD"),)), "input[0].data_type"),
        (
            b.Model("m", dynamic_batching=b.DynamicBatching(max_queue_delay_microseconds=-1)),
            "dynamic_batching.max_queue_delay_microseconds",
        ),
        (b.Model("m", instance_group=(b.InstanceGroup(kind="KIND_TPU"),)), "instance_group[0].kind"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_its_field(model: b.Model, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        compose(model)
    assert refused.value.field == field


def test_what_a_server_would_refuse_is_refused_before() -> None:
    model = b.Model("m", backend="python", dynamic_batching=b.DynamicBatching((8,)), max_batch_size=4)
    with pytest.raises(InvalidInput) as refused:
        checked(model)
    assert (refused.value.code, refused.value.field) == ("preferred_batch_size", "dynamic_batching")


def test_a_field_without_a_block_is_named() -> None:
    config = pbtxt.parse('model_operations { op_library_filename: "x.so" }')
    with pytest.raises(InvalidInput) as refused:
        read(config)
    assert refused.value.field == "model_operations"


ENSEMBLE = b.Model(
    "e",
    platform="ensemble",
    input=(b.Input("a", "TYPE_INT32"),),
    output=(b.Output("b", "TYPE_INT32"),),
    ensemble_scheduling=b.Ensemble((b.Step("m", {"a": "a"}, {"b": "b"}),), max_inflight_requests=4),
)


@pytest.mark.parametrize(
    ("release", "known"), [((24, 10), False), ((25, 11), True), (None, True), ((25, 10), False)]
)
def test_a_field_is_known_since_its_release(release: server_release.Release | None, known: bool) -> None:
    found = [item.id for item in pbtxt.findings(compose(ENSEMBLE), "e", release)]
    assert found == ([] if known else ["not_in_this_release"])


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("2.51.0", (24, 10)),
        ("2.53.0", (24, 12)),
        ("2.64.0", (25, 12)),
        ("2.65.0", (26, 1)),
        ("2.71.0", (26, 7)),
        ("2.40.0", None),
        ("3", None),
    ],
)
def test_the_release_of_a_version(version: str, release: server_release.Release | None) -> None:
    assert server_release.of_version(version) == release


def test_a_platform_is_known_until_its_release() -> None:
    config = compose(b.Model("m", platform="tensorflow_graphdef"))
    assert [item.id for item in pbtxt.findings(config, "m", (24, 10))] == []
    assert [item.id for item in pbtxt.findings(config, "m", (26, 7))] == ["not_in_this_release"]
