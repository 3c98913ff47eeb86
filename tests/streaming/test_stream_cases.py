"""Every stream case over both protocols of Triton, from servers that speak them; the browser's half is in
tests/browser/test_stream_cases.py, out of a real tritonserver."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from apps.gateway.upstreams.openai import ExternalAnswer
from apps.streaming.domain.text_stream import HalvesStream, RawTextStream
from apps.streaming.token_source import GenerationRequest, TokenDelta, TokenSource
from apps.streaming.triton_grpc import TritonGrpcSource
from apps.streaming.triton_http import TritonHttpSource
from apps.streaming.triton_messages import ModelInterface, rules_of
from tests.streaming.stream_cases import ALL, INPUTS, OUTPUTS, StreamCase, filled
from tests.streaming.upstreams import Upstream, end_of, everything, grpc_server, http_server, text_of

PROMPT = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def _event(step: dict[str, Any]) -> bytes | dict[str, Any]:
    """What Triton's HTTP server writes of a step: bytes that are no UTF-8 go into the JSON text as they are."""
    text = step.get("outputs", {}).get("text_output")
    if not isinstance(text, bytes):
        return step
    quoted = b"".join(b"\\" + bytes([one]) if one in b'"\\' else bytes([one]) for one in text)
    return b'data: {"model_name":"demo","text_output":"' + quoted + b'"}\n\n'


@pytest.mark.parametrize("way", ["grpc", "http"])
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
async def test_what_a_person_reads(case: StreamCase, way: str) -> None:
    steps = filled(case, PROMPT)
    unbatched = case.kind == "llmapi"
    upstream = Upstream(
        steps if way == "grpc" else [_event(step) for step in steps if step.get("outputs") != {}],
        inputs=INPUTS[case.kind],
        outputs=OUTPUTS[case.kind],
        unbatched=unbatched,
    )
    rules = None
    if case.accumulated:
        interface = ModelInterface(INPUTS[case.kind], frozenset(OUTPUTS[case.kind]))
        rules = rules_of(PROMPT, interface, accumulated=True)
    async with (grpc_server if way == "grpc" else http_server)(upstream) as endpoint:
        source: TokenSource = (TritonGrpcSource if way == "grpc" else TritonHttpSource)(endpoint, rules=rules)
        events = await everything(source, GenerationRequest(PROMPT))
        await source.close()
    end = end_of(events)
    assert text_of(events) == case.text
    assert end.reason == ("error" if case.state == "failed" else "stop")
    assert case.says in (end.error.sentence if end.error else "")
    if case.tokens is not None:
        assert sum(event.tokens or 0 for event in events if isinstance(event, TokenDelta)) == case.tokens
    shape = upstream.asked[0]["text_input"][1] if way == "grpc" else None
    assert shape in (None, [1] if unbatched else [1, 1])


def test_an_llmapi_model_is_asked_by_its_own_names() -> None:
    from apps.streaming.token_source import SamplingParams
    from apps.streaming.triton_messages import tensors

    interface = ModelInterface(INPUTS["llmapi"], frozenset(OUTPUTS["llmapi"]), batched=False)
    found = tensors(GenerationRequest("Hi", SamplingParams(max_tokens=4, temperature=0.5, seed=3)), interface)
    assert found["sampling_param_max_tokens"] == 4
    assert found["sampling_param_seed"] == 3
    assert (found["streaming"], found["sampling_param_exclude_input_from_output"]) == (True, True)
    # An empty stop word would end every answer at once.
    assert "sampling_param_stop" not in found
    told = tensors(GenerationRequest("Hi", SamplingParams(stop=("END",))), interface)
    assert told["sampling_param_stop"] == ["END"]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (["a\ud83d", "\udc4bb"], "a\N{WAVING HAND SIGN}b"),
        (["\ud83d", "x"], "\ufffdx"),
        (["\udc4b"], "\ufffd"),
        (["a\ud83d"], "a\ufffd"),
        ([b"\xf0\x9f", b"\x91\x8b", "!"], "\N{WAVING HAND SIGN}!"),
        ([b"\xf0\x9f", "!"], "\ufffd!"),
    ],
)
def test_halves_and_bytes_of_characters_come_together(parts: list[str | bytes], text: str) -> None:
    stream = RawTextStream()
    assert "".join(stream.feed(part) for part in parts) + stream.flush() == text


def test_halves_are_joined_however_json_cut_them() -> None:
    stream = HalvesStream()
    parts = [json.loads(f'"{part}"') for part in ("\\ud83d", "\\udc4b\\ud83c", "\\udffd")]
    assert "".join(stream.feed(part) for part in parts) + stream.flush() == "\U0001f44b\U0001f3fd"


def test_an_external_server_that_cuts_characters_in_halves_is_put_right() -> None:
    """As servers in JavaScript do; other chunks are passed on as they are, byte for byte."""
    answer = ExternalAnswer(cast(Any, None), cast(Any, None), cast(Any, None), False)
    cut = [
        b'{"choices":[{"index":0,"delta":{"content":"a "}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"\\ud83d"}},{"index":1,"delta":{"content":"b"}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"\\udc4b!"}}]}',
    ]
    passed = answer._take(cut)
    assert answer.error is None
    chunks = [json.loads(line.removeprefix(b"data: ")) for line in passed.strip().split(b"\n\n")]
    texts = [choice["delta"]["content"] for chunk in chunks for choice in chunk["choices"]]
    assert texts == ["a ", "", "b", "\N{WAVING HAND SIGN}!"]
    assert passed.startswith(b"data: " + cut[0])


def test_what_an_accumulating_engine_cuts_reads_as_unfinished() -> None:
    stream = RawTextStream(accumulated=True)
    assert [stream.feed(whole) for whole in (b"a\xf0\x9f", b"a\xf0\x9f\x91\x8b")] == [
        "a\ufffd",
        "a\N{WAVING HAND SIGN}",
    ]
    assert stream.flush() == ""
