"""A turn's own request to copy: each way makes the same request again."""

from __future__ import annotations

import json
import shlex
from typing import Any

import httpx
import numpy as np
import openai as openai_library
import pytest
from tritonclient.grpc import InferenceServerClient, service_pb2

from apps.chat import copy_as
from apps.gateway.wire.requests import plain_messages, read_chat
from apps.streaming.token_source import Endpoint, GenerationRequest, SamplingParams
from apps.streaming.triton_grpc import TritonGrpcSource
from apps.streaming.triton_messages import NEUTRAL, ModelInterface

NASTY = 'It\'s "quoted" $HOME `id` \\n\n</script> ${x} 日本 {"a": 1}'
BODY: dict[str, Any] = {
    "model": "demo",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": NASTY}],
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 64,
    "temperature": 0,
    "top_k": 5,
    "repetition_penalty": 1.1,
    "bad_words": ["it's"],
    "stop": ["END"],
}
INTERFACE = ModelInterface(
    {
        "text_input": "BYTES",
        "stream": "BOOL",
        "max_tokens": "INT32",
        "temperature": "FP32",
        "top_k": "INT32",
        "top_p": "FP32",
        "seed": "UINT64",
        "stop_words": "BYTES",
        "bad_words": "BYTES",
        "return_log_probs": "BOOL",
        "end_id": "INT32",
    },
    frozenset({"text_output", "finish_reason", "token_count"}),
)


def test_curl_sends_the_body(settings: Any) -> None:
    settings.INFLIGHT_GATEWAY_URL = "http://127.0.0.1:8400/"
    words = shlex.split(copy_as.curl(BODY).replace("\\\n", " "))
    assert words[:3] == ["curl", "--no-buffer", "http://127.0.0.1:8400/v1/chat/completions"]
    assert json.loads(words[words.index("--data-raw") + 1]) == BODY
    # The shell fills in the key, and nothing else.
    assert words[words.index("-H") + 1] == "Authorization: Bearer $INFLIGHT_KEY"


def test_python_sends_the_body(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "demo"}
        delta = {"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}
        lines = [json.dumps({**chunk, "choices": [delta]}), json.dumps({**chunk, "choices": []}), "[DONE]"]
        text = "".join(f"data: {line}\n\n" for line in lines)
        return httpx.Response(200, text=text, headers={"content-type": "text/event-stream"})

    real = openai_library.OpenAI

    def client(**given: Any) -> openai_library.OpenAI:
        return real(**given, http_client=httpx.Client(transport=httpx.MockTransport(answer)))

    monkeypatch.setattr(openai_library, "OpenAI", client)
    monkeypatch.setenv("INFLIGHT_KEY", "ifk_test")
    exec(copy_as.openai(BODY), {})
    assert json.loads(sent[0].content) == BODY
    assert sent[0].headers["authorization"] == "Bearer ifk_test"
    assert str(sent[0].url).endswith("/v1/chat/completions")
    assert capsys.readouterr().out == "Hello"


def test_javascript_has_the_body() -> None:
    text = copy_as.javascript(BODY)
    first = text.removeprefix("const body = ").split(";\n\nconst response")[0]
    assert json.loads(first) == BODY
    assert "process.env.INFLIGHT_KEY" in text


@pytest.mark.parametrize(
    "request_",
    [
        GenerationRequest(NASTY, SamplingParams(max_tokens=64), "t1"),
        GenerationRequest("Hi", SamplingParams(8, 0.7, 40, 0.9, 7, ("END", "日本"), ("no",)), "t2", 1),
    ],
)
def test_tritonclient_sends_the_very_tensors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], request_: GenerationRequest
) -> None:
    sent: dict[str, Any] = {}

    class Client:
        def __init__(self, url: str) -> None:
            sent["url"] = url

        def start_stream(self, callback: Any) -> None:
            sent["callback"] = callback

        def async_stream_infer(self, model: str, inputs: Any, **given: Any) -> None:
            sent.update(model=model, inputs=inputs, given=given)
            sent["callback"](_Answer("Paris", False), None)
            sent["callback"](_Answer("", True), None)

        def stop_stream(self) -> None:
            sent["stopped"] = True

    monkeypatch.setattr("tritonclient.grpc.InferenceServerClient", Client)
    text = copy_as.tritonclient("127.0.0.1:9001", "llm", request_, INTERFACE)
    exec(text, {})
    expected = TritonGrpcSource(Endpoint("", "127.0.0.1:9001", "llm"))._message(request_, INTERFACE)
    assert (sent["url"], sent["model"], sent["stopped"]) == ("127.0.0.1:9001", "llm", True)
    mine = [(each._get_tensor(), each._get_content()) for each in sent["inputs"]]
    told = [(tensor.name, tensor.datatype, list(tensor.shape), raw) for tensor, raw in mine]
    ours = zip(expected.inputs, expected.raw_input_contents, strict=True)
    assert told == [(tensor.name, tensor.datatype, list(tensor.shape), raw) for tensor, raw in ours]
    assert sent["given"].get("priority") == request_.priority
    named = {
        name: value.int64_param for name, value in expected.parameters.items() if name == "priority_level"
    }
    assert sent["given"].get("parameters", {}) == named
    assert capsys.readouterr().out == "Paris"


class _Answer:
    """What tritonclient hands to its callback."""

    def __init__(self, text: str, final: bool) -> None:
        self._text, self._final = text, final

    def as_numpy(self, name: str) -> Any:
        return np.array([self._text.encode()], dtype=np.object_) if name == "text_output" else None

    def get_response(self) -> Any:
        response = service_pb2.ModelInferResponse()
        response.parameters["triton_final_response"].bool_param = self._final
        return response


def test_the_client_of_the_program_is_the_real_one() -> None:
    assert {"start_stream", "async_stream_infer", "stop_stream"} <= set(dir(InferenceServerClient))
    assert "text_input" not in NEUTRAL


@pytest.mark.parametrize(
    ("params", "same"),
    [
        ({"max_tokens": 32}, SamplingParams(max_tokens=32, temperature=0)),
        ({"max_tokens": 32, "temperature": 0.7, "seed": 5}, SamplingParams(32, 0.7, seed=5)),
        ({"max_tokens": 9, "top_p": 0.5}, SamplingParams(9, top_p=0.5)),
        (
            {
                "max_tokens": 9,
                "stop_words": ["A"],
                "bad_words": ["b"],
                "repetition_penalty": 1.2,
                "logprobs": 3,
            },
            SamplingParams(9, 0, stop=("A",), bad_words=("b",), repetition_penalty=1.2, logprobs=3),
        ),
    ],
)
def test_the_gateway_reads_the_same_parameters(params: dict[str, Any], same: SamplingParams) -> None:
    messages = [{"role": "user", "content": NASTY}]
    request = read_chat(copy_as.body_of("demo", messages, params))
    assert request.sampling(request.wanted_tokens, request.wanted_logprobs) == same
    assert plain_messages(request.messages) == messages
    assert request.include_usage
