"""Requests to tensors and messages to events: the public case 63, and more of its kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from apps.streaming import triton_errors
from apps.streaming.domain.text_stream import StreamRules
from apps.streaming.token_source import GenerationRequest, SamplingParams, StreamEnd, TokenDelta, TokenEvent
from apps.streaming.triton_messages import (
    Message,
    MessageReader,
    ModelInterface,
    UnsupportedParameter,
    priority,
    read_logprobs,
    tensors,
)
from tests.streaming.upstreams import ENSEMBLE_INPUTS, OUR_INPUTS, OUR_OUTPUTS

CASE = Path(__file__).resolve().parents[1] / "data/cases/63-final-message-has-no-outputs"
OURS = ModelInterface(OUR_INPUTS, frozenset(OUR_OUTPUTS))
ENSEMBLE = ModelInterface(ENSEMBLE_INPUTS, frozenset({"text_output", "cum_log_probs"}))


def read(messages: list[Message], interface: ModelInterface = OURS, **more: Any) -> list[TokenEvent]:
    request = GenerationRequest("Hi", more.pop("params", SamplingParams()))
    reader = MessageReader(request, interface, **more)
    events: list[TokenEvent] = []
    for at, message in enumerate(messages):
        events += reader.feed(message, float(at))
    return events


def case(name: str) -> list[Message]:
    steps = json.loads((CASE / name).read_text())
    return [Message(step.get("outputs", {}), step["final"], step.get("error")) for step in steps]


def text(events: list[TokenEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TokenDelta))


def ends(events: list[TokenEvent]) -> list[StreamEnd]:
    return [event for event in events if isinstance(event, StreamEnd)]


def test_case_63_the_final_message_without_outputs_only_ends() -> None:
    wanted = json.loads((CASE / "expected.json").read_text())
    events = read(case("input.json"), ENSEMBLE)
    assert text(events) == wanted["text"]
    assert len(events) - 1 == wanted["tokens_or_chunks"]
    assert [end.reason for end in ends(events)] == ["stop"]


def test_case_63_an_error_and_then_the_final_message_end_once() -> None:
    wanted = json.loads((CASE / "expected.json").read_text())["error_case"]
    events = read(case("input.error.json"), ENSEMBLE)
    assert text(events) == wanted["text"]
    (end,) = ends(events)
    assert end.reason == wanted["status"]
    assert end.error is not None
    assert "c10 error" in end.error.sentence
    assert "Traceback" not in end.error.sentence


def test_final_with_data_counts_its_tokens() -> None:
    outputs = {"text_output": "lo", "token_count": 2, "finish_reason": "length", "completion_tokens": 3}
    events = read([Message({"text_output": "Hel", "token_count": 1}, False), Message(outputs, True)])
    assert text(events) == "Hello"
    (end,) = ends(events)
    assert (end.reason, end.completion_tokens, end.cached_tokens) == ("length", 3, None)
    assert sum(event.tokens or 0 for event in events if isinstance(event, TokenDelta)) == 3


def test_a_message_with_tokens_but_no_text_is_still_an_arrival() -> None:
    events = read([Message({"text_output": "", "token_count": 1}, False)])
    assert events == [TokenDelta("", 1, 0.0)]


def test_after_the_end_nothing_is_heard() -> None:
    events = read(
        [Message({}, True), Message({"text_output": "x", "token_count": 1}, False), Message({}, True)]
    )
    assert len(events) == 1


def test_a_cancelled_request_ends_as_cancelled() -> None:
    (end,) = read([Message(error="The request was cancelled.", code="CANCELLED")])
    assert isinstance(end, StreamEnd)
    assert (end.reason, end.error) == ("cancelled", None)


def test_an_ensemble_names_no_reason_it_is_the_length_when_all_tokens_came() -> None:
    told = {"text_output": "x", "completion_tokens": 4}
    params = SamplingParams(max_tokens=4)
    assert ends(read([Message(told, True)], ENSEMBLE, params=params))[0].reason == "length"
    assert (
        ends(read([Message(told | {"completion_tokens": 3}, True)], ENSEMBLE, params=params))[0].reason
        == "stop"
    )


def test_an_ensembles_tokens_are_not_counted_by_messages() -> None:
    events = read([Message({"text_output": "a"}, False), Message({"text_output": "b"}, True)], ENSEMBLE)
    assert [event.tokens for event in events if isinstance(event, TokenDelta)] == [None, None]
    assert ends(events)[0].completion_tokens is None


def test_a_marker_ends_the_answer_of_a_stranger_and_not_of_ours() -> None:
    messages = [Message({"text_output": "</s> is HTML", "token_count": 4}, False), Message({}, True)]
    assert text(read(messages, ENSEMBLE)) == ""
    assert text(read(messages, OURS)) == "</s> is HTML"


def test_a_stop_string_met_here_ends_the_stream() -> None:
    rules = StreamRules(end_markers=(), stop=("END",))
    events = read([Message({"text_output": "goENDing", "token_count": 2}, False)], rules=rules)
    assert text(events) == "go"
    assert [end.reason for end in ends(events)] == ["stop"]


def test_every_declared_input_is_sent_with_a_value() -> None:
    found = tensors(GenerationRequest("Hi"), OURS)
    # Left out, our model takes what is left of its slot.
    assert set(OUR_INPUTS) - set(found) == {"max_tokens"}
    assert found["stop_words"] == [""]
    assert (found["top_k"], found["stream"], found["end_id"]) == (1, True, -1)


def test_the_class_goes_as_a_parameter_and_to_our_model_alone() -> None:
    urgent = GenerationRequest("Hi", priority=1)
    assert priority(urgent, OURS) == {"priority_level": 1}
    assert priority(urgent, ENSEMBLE) == {}
    assert priority(GenerationRequest("Hi"), OURS) == {}


def test_an_ensemble_gets_its_own_names_and_nothing_it_does_not_know() -> None:
    found = tensors(GenerationRequest("Hi", SamplingParams(seed=5, temperature=0.5)), ENSEMBLE)
    assert set(found) == set(ENSEMBLE_INPUTS)
    assert found["random_seed"] == 5
    assert found["max_tokens"] == 256


def test_without_sampling_parameters_it_is_greedy_and_with_them_it_draws() -> None:
    assert tensors(GenerationRequest("Hi", SamplingParams(temperature=0.0, top_p=0.9)), OURS)["top_k"] == 1
    drawn = tensors(GenerationRequest("Hi", SamplingParams(temperature=0.7)), OURS)
    assert (drawn["top_k"], drawn["top_p"]) == (0, 1.0)
    seeds = {
        tensors(GenerationRequest("Hi", SamplingParams(temperature=0.7)), OURS)["seed"] for _ in range(3)
    }
    assert len(seeds) == 3
    assert tensors(GenerationRequest("Hi", SamplingParams(seed=9)), OURS)["seed"] == 9


def test_a_parameter_without_an_input_is_refused() -> None:
    for params, name in (
        (SamplingParams(bad_words=("x",)), "bad_words"),
        (SamplingParams(repetition_penalty=1.1), "repetition_penalty"),
        (SamplingParams(logprobs=2), "return_log_probs"),
    ):
        with pytest.raises(UnsupportedParameter, match=name):
            tensors(GenerationRequest("Hi", params), ENSEMBLE)


def test_log_probs_are_read() -> None:
    token = {"id": 5, "token": "a", "bytes": [97], "logprob": -0.5}
    (found,) = read_logprobs(json.dumps([{**token, "top_logprobs": [token | {"logprob": None}]}])) or ()
    assert (found.chosen.token, found.chosen.bytes, found.chosen.logprob) == ("a", (97,), -0.5)
    assert found.top[0].logprob is None
    assert read_logprobs(None) is None


@pytest.mark.parametrize(
    ("code", "said", "wanted"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses", "unreachable"),
        ("UNAVAILABLE", "Request for unknown model: 'x' has no available versions", "not_ready"),
        ("UNAVAILABLE", "Maximum queue size of 4 has been reached, please try again later", "overloaded"),
        ("UNAVAILABLE", "[request id: 1] Exceeds maximum queue size", "overloaded"),
        (
            "UNAVAILABLE",
            "This protocol is restricted, expecting header 'triton-grpc-protocol-k'",
            "restricted",
        ),
        ("UNAVAILABLE", "The model is being unloaded; send the request again when it is ready.", "not_ready"),
        ("INTERNAL", "Stub process 'demo_0_0' is not healthy.", "engine_died"),
        ("INVALID_ARGUMENT", "max_tokens: 0 is not from 1 to 5.", "invalid_request"),
        ("", "top_p: 2.0 is not from 0 to 1.", "invalid_request"),
        ("INTERNAL", "Executor failed process requestId 7 due to the following error: boom", "engine_error"),
        ("INTERNAL", "", "engine_error"),
    ],
)
def test_errors_have_codes_sentences_and_remedies(code: str, said: str, wanted: str) -> None:
    found = triton_errors.explain(code, said)
    assert found.code == wanted
    assert found.sentence
    assert found.remedy


def test_the_useful_part_of_a_long_error_is_shown() -> None:
    wrapped = "Executor failed process requestId 7 due to the following error: boom"
    assert triton_errors.explain("INTERNAL", wrapped).sentence.endswith(": boom")
    assert len(triton_errors.explain("INVALID_ARGUMENT", "x" * 5000).sentence) <= triton_errors.MOST_LETTERS
    traced = 'Traceback (most recent call last):\n  File "/model.py", line 3\nValueError: no such thing'
    assert triton_errors.explain("INTERNAL", traced).sentence.endswith(": ValueError: no such thing")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[request id: r] Exceeds maximum queue size", "queue is full"),
        ("Maximum queue size of 4 has been reached, please try again later", "queue is full"),
        ("[request id: r] Request timeout expired", "waited longer"),
    ],
)
def test_refusals_of_a_queue_say_which_bound_it_was(text: str, said: str) -> None:
    found = triton_errors.explain("UNAVAILABLE", text)
    assert (found.code, said in found.sentence, bool(found.remedy)) == ("overloaded", True, True)
