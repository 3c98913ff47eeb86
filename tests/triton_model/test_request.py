"""Requests out of tensors: defaults, and refusals that name the field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from llamacpp_errors import InvalidRequest
from llamacpp_request import Sampling, read_request


def tensor(value: Any, dtype: Any) -> Any:
    values = value if isinstance(value, list) else [value]
    return np.array([values], dtype=dtype)


def inputs(**more: Any) -> dict[str, Any]:
    return {"text_input": tensor(b"Hello", object), **more}


def test_one_prompt_alone_is_greedy_with_the_default_number_of_tokens() -> None:
    request = read_request(inputs())
    assert request.text_input == "Hello"
    assert (request.max_tokens, request.max_tokens_given, request.stream) == (256, False, False)
    assert request.sampling.greedy
    assert request.end_id is None


def test_every_input_is_read() -> None:
    request = read_request(
        inputs(
            max_tokens=tensor(7, np.int32),
            stream=tensor(True, bool),
            temperature=tensor(0.5, np.float32),
            top_k=tensor(40, np.int32),
            top_p=tensor(0.75, np.float32),
            seed=tensor(2**63, np.uint64),
            stop_words=tensor([b"a", b"", "é".encode()], object),
            bad_words=tensor([b"bad"], object),
            repetition_penalty=tensor(1.25, np.float32),
            presence_penalty=tensor(0.5, np.float32),
            frequency_penalty=tensor(-0.5, np.float32),
            min_tokens=tensor(2, np.int32),
            end_id=tensor(3, np.int32),
            return_log_probs=tensor(True, bool),
            num_log_probs=tensor(5, np.int32),
        )
    )
    assert request.sampling == Sampling(0.5, 40, 0.75, 2**63, 1.25, 0.5, -0.5)
    assert (request.stop_words, request.bad_words) == (("a", "é"), ("bad",))
    assert (request.max_tokens, request.min_tokens, request.end_id, request.num_log_probs) == (7, 2, 3, 5)
    assert request.stream
    assert request.max_tokens_given


@pytest.mark.parametrize(
    ("sampling", "greedy"),
    [
        (Sampling(), True),
        (Sampling(temperature=0.0, top_p=1.0), True),
        (Sampling(top_k=1, top_p=1.0), True),
        (Sampling(top_k=2), False),
        (Sampling(top_p=0.9), False),
    ],
)
def test_greedy_is_what_tensorrt_llm_takes_for_it(sampling: Sampling, greedy: bool) -> None:
    assert sampling.greedy is greedy


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", tensor(0, np.int32)),
        ("max_tokens", tensor([1, 2], np.int32)),
        ("temperature", tensor(-0.1, np.float32)),
        ("temperature", tensor(float("nan"), np.float32)),
        ("top_p", tensor(1.5, np.float32)),
        ("top_k", tensor(-1, np.int32)),
        ("repetition_penalty", tensor(0.0, np.float32)),
        ("min_tokens", tensor(300, np.int32)),
        ("num_log_probs", tensor(3, np.int32)),
        ("num_log_probs", tensor(21, np.int32)),
        ("stop_words", tensor([b"x"] * 65, object)),
        ("stop_words", tensor([b"x" * 1025], object)),
        ("bad_words", tensor([b"\xff"], object)),
        ("beam_width", tensor(2, np.int32)),
        ("num_return_sequences", tensor(4, np.int32)),
        ("exclude_input_in_output", tensor(False, bool)),
        ("text_input", tensor(b"", object)),
        ("text_input", tensor(b"\xc3", object)),
        ("text_input", np.array([[b"a"], [b"b"]], dtype=object)),
        ("no_such_input", tensor(1, np.int32)),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_request(inputs() | {field: value})
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")


def test_inputs_of_the_ensemble_that_come_as_parameters_are_refused_not_ignored() -> None:
    with pytest.raises(InvalidRequest, match="lora_task_id"):
        read_request(inputs(), {"priority": 1, "lora_task_id": 4})
    assert read_request(inputs(), {"priority": 1}).text_input == "Hello"


@pytest.mark.parametrize("value", [0, 4, True, "1", 1.0])
def test_a_class_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="priority_level"):
        read_request(inputs(), {"priority_level": value})
    assert read_request(inputs()).priority == 2
    assert read_request(inputs(), {"priority_level": 1}).priority == 1


def test_a_missing_prompt_is_named() -> None:
    with pytest.raises(InvalidRequest, match="text_input"):
        read_request({})
