"""The model in a real tritonserver, with a real small LLM: what callers see, over both protocols."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.serving.domain.batching import BatchingFacts
from apps.streaming.token_source import (
    Endpoint,
    GenerationRequest,
    SamplingParams,
    StreamEnd,
    TokenDelta,
    TokenSource,
)
from apps.streaming.triton_grpc import TritonGrpcSource
from apps.streaming.triton_http import TritonHttpSource
from benchmarks.serving import MODEL, RunningServer, ServerProblem, find_installation, serve
from tests.support.triton import find_gguf
from tests.support.triton import find_installation as find_values
from tests.triton_model.tiny import write_tiny

pytestmark = [pytest.mark.triton, pytest.mark.timeout(240)]

SLOTS = 4
CONTEXT = 512
SYSTEM = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
)
SECONDS = 60.0


def chat(question: str) -> str:
    return f"{SYSTEM}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def facts(
    strategy: str = "inflight", slots: int = SLOTS, queue: int = 64, context: int = CONTEXT
) -> BatchingFacts:
    return BatchingFacts(strategy, slots, context, 2, queue, 0)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serve(find_installation(find_values().values), find_gguf(), facts()) as running:
        yield running


def endpoint(server: RunningServer) -> Endpoint:
    return Endpoint(server.http_url, server.grpc_url, MODEL)


class Answer:
    """Everything that came of one request."""

    def __init__(self) -> None:
        self.deltas: list[TokenDelta] = []
        self.end: StreamEnd | None = None

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    @property
    def tokens(self) -> int:
        return sum(delta.tokens or 0 for delta in self.deltas)


async def ask(source: TokenSource, prompt: str, priority: int | None = None, **params: Any) -> Answer:
    params.setdefault("max_tokens", 24)
    answer = Answer()
    async with asyncio.timeout(SECONDS):
        async with contextlib.aclosing(
            source.stream(GenerationRequest(prompt, SamplingParams(**params), priority=priority))
        ) as events:
            async for event in events:
                if isinstance(event, TokenDelta):
                    answer.deltas.append(event)
                else:
                    answer.end = event
    assert answer.end is not None
    return answer


@contextlib.asynccontextmanager
async def over_grpc(server: RunningServer) -> Any:
    source = TritonGrpcSource(endpoint(server))
    try:
        yield source
    finally:
        await source.close()


def error_code(answer: Answer) -> str:
    assert answer.end is not None
    assert answer.end.error is not None, answer.text
    return answer.end.error.code


def sample(text: str, name: str, **labels: str) -> float:
    """One sample of the metrics text."""
    wanted = {"model": MODEL, "version": "1", **labels}
    for line in text.splitlines():
        match = re.fullmatch(rf"{name}\{{(.*)\}} (\S+)", line)
        if match and dict(re.findall(r'(\w+)="([^"]*)"', match[1])) == wanted:
            return float(match[2])
    raise AssertionError(f"no sample {name} {labels}")


def cancelled(server: RunningServer) -> float:
    """Requests whose callers went away, since the start."""
    return sample(server.metrics(), "inflight_requests_finished_total", reason="cancelled")


async def until(condition: Any, seconds: float = 10.0) -> float:
    """Wait until it holds; returns how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "it did not come to hold in time"
        await asyncio.sleep(0.02)
    return time.monotonic() - began


def generate(server: RunningServer, **body: Any) -> tuple[int, dict[str, Any]]:
    """POST to generate: exactly one response."""
    request = urllib.request.Request(
        f"{server.http_url}/v2/models/{MODEL}/generate", data=json.dumps(body).encode()
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read().decode().removeprefix("data: "))


async def test_a_greedy_answer_is_the_same_every_time_and_over_both_protocols(server: RunningServer) -> None:
    http = TritonHttpSource(endpoint(server))
    async with over_grpc(server) as grpc:
        first = await ask(grpc, chat("What is the capital of France?"))
        second = await ask(grpc, chat("What is the capital of France?"))
        third = await ask(http, chat("What is the capital of France?"))
    await http.close()
    assert first.text == second.text == third.text
    assert first.text.strip()
    assert first.end is not None
    assert second.end is not None
    assert first.end.completion_tokens == first.tokens
    assert second.end.cached_tokens == (second.end.prompt_tokens or 0) - 2
    assert "<|" not in first.text
    assert "capital of France?" not in first.text


async def test_one_response_without_a_stream(server: RunningServer) -> None:
    status, body = generate(server, text_input=chat("Say hello."), max_tokens=8, top_k=1)
    assert status == 200
    assert body["text_output"]
    assert body["token_count"] == body["completion_tokens"] <= 8
    assert body["finish_reason"] in ("stop", "length")


async def test_length_and_stop_are_told_apart(server: RunningServer) -> None:
    async with over_grpc(server) as source:
        cut = await ask(source, chat("Tell me a long story."), max_tokens=5)
        whole = await ask(source, chat("Tell me a long story."), max_tokens=12, min_tokens=12)
    assert cut.end is not None
    assert whole.end is not None
    assert (cut.end.reason, cut.end.completion_tokens, cut.tokens) == ("length", 5, 5)
    assert whole.end.completion_tokens == 12


async def test_characters_are_never_cut(server: RunningServer) -> None:
    async with over_grpc(server) as source:
        found = [
            await ask(source, prompt, max_tokens=40, min_tokens=40)
            for prompt in ("👋🏽 👩‍👧 🎉 👋🏽 👩‍👧 🎉 👋🏽 👩‍👧 🎉", "你好世界。你好世界。你好世界。")
        ]
    for answer in found:
        # A cut at max_tokens may leave one unfinished character at the very end.
        assert "\ufffd" not in answer.text[:-1]
        assert answer.tokens == 40
    assert any(ord(letter) > 127 for answer in found for letter in answer.text)


async def test_a_stop_word_over_tokens_is_not_shown(server: RunningServer) -> None:
    prompt = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,"
    async with over_grpc(server) as source:
        free = await ask(source, prompt, max_tokens=30)
        assert ", 17" in free.text
        stopped = await ask(source, prompt, max_tokens=30, stop=(", 17", "never"))
    assert stopped.text == free.text[: free.text.index(", 17")]
    assert stopped.end is not None
    assert stopped.end.reason == "stop"


async def test_a_bad_word_is_not_said(server: RunningServer) -> None:
    prompt = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,"
    async with over_grpc(server) as source:
        answer = await ask(source, prompt, max_tokens=30, bad_words=("7",))
    assert "7" not in answer.text
    assert answer.tokens > 5


async def test_sampling_repeats_with_its_seed_only(server: RunningServer) -> None:
    async with over_grpc(server) as source:
        one, again, other = [
            (await ask(source, chat("Name a colour."), temperature=1.5, top_p=0.95, seed=seed)).text
            for seed in (1, 1, 2)
        ]
    assert one == again
    assert one != other


async def test_log_probs_with_alternatives(server: RunningServer) -> None:
    async with over_grpc(server) as source:
        answer = await ask(source, chat("What is the capital of France?"), max_tokens=4, logprobs=3)
    tokens = [one for delta in answer.deltas for one in delta.logprobs or ()]
    assert len(tokens) == answer.tokens
    for one in tokens:
        assert len(one.top) == 3
        assert one.chosen.id == one.top[0].id
        assert one.chosen.logprob is not None
        assert one.chosen.logprob <= 0
    assert b"".join(bytes(one.chosen.bytes) for one in tokens).decode().startswith(answer.text)


async def test_what_cannot_be_done_is_refused_with_a_sentence(server: RunningServer) -> None:
    async with over_grpc(server) as source:
        long = await ask(source, chat("word " * 400), max_tokens=400)
        hot = await ask(source, chat("Hi"), temperature=101.0)
    assert error_code(long) == error_code(hot) == "invalid_request"
    assert long.end is not None
    assert long.end.error is not None
    assert f"a slot holds {CONTEXT}" in long.end.error.sentence
    assert re.search(r"At most \d+ new tokens are possible", long.end.error.sentence)
    status, body = generate(server, text_input="Hi", max_tokens=4, lora_task_id=3)
    assert status == 400
    assert "lora_task_id" in body["error"]
    status, body = generate(server, text_input="Hi", max_tokens=4, beam_width=2)
    assert status == 400
    assert "beam_width" in body["error"]


async def test_closing_a_stream_ends_its_request_at_once(server: RunningServer) -> None:
    before = cancelled(server)
    async with over_grpc(server) as source:
        async with contextlib.aclosing(
            source.stream(
                GenerationRequest(chat("Tell me a story."), SamplingParams(max_tokens=300, min_tokens=300))
            )
        ) as events:
            async for event in events:
                assert isinstance(event, TokenDelta)
                break
        await until(lambda: cancelled(server) == before + 1, 2.0)
    text = server.metrics()
    assert sample(text, "inflight_slots_busy") == sample(text, "inflight_kv_tokens_used") == 0


async def test_a_waiting_request_is_cancelled_without_ever_running(server: RunningServer) -> None:
    before = cancelled(server)
    prompts = sample(server.metrics(), "inflight_prompt_tokens_total")
    async with over_grpc(server) as source:
        long = [
            asyncio.create_task(ask(source, f"{number} story", max_tokens=200, min_tokens=200))
            for number in range(SLOTS)
        ]
        await until(lambda: sample(server.metrics(), "inflight_requests_running") == SLOTS)
        admitted = sample(server.metrics(), "inflight_prompt_tokens_total") - prompts
        waiting = asyncio.create_task(ask(source, chat("I wait."), max_tokens=200))
        await until(lambda: sample(server.metrics(), "inflight_requests_waiting") == 1)
        waiting.cancel()
        # The metrics are published four times a second.
        await until(lambda: sample(server.metrics(), "inflight_requests_waiting") == 0, 1.0)
        assert sample(server.metrics(), "inflight_requests_running") == SLOTS
        for task in long:
            task.cancel()
        await asyncio.gather(waiting, *long, return_exceptions=True)
        await until(lambda: cancelled(server) == before + SLOTS + 1, 2.0)
    assert sample(server.metrics(), "inflight_prompt_tokens_total") - prompts == admitted


async def test_sixteen_at_once_share_steps_and_all_end(server: RunningServer) -> None:
    before = server.metrics()
    async with over_grpc(server) as source:
        found = await asyncio.gather(
            *(
                ask(source, chat(f"Tell me about the number {number}."), max_tokens=8 + number)
                for number in range(16)
            )
        )
    assert all(answer.end is not None and answer.end.reason in ("stop", "length") for answer in found)
    ended = sample(before, "inflight_e2e_seconds_count") + 16
    await until(lambda: sample(server.metrics(), "inflight_e2e_seconds_count") == ended, 2.0)
    await until(lambda: sample(server.metrics(), "inflight_requests_running") == 0, 2.0)
    after = server.metrics()

    def grown(name: str, **labels: str) -> float:
        return sample(after, name, **labels) - sample(before, name, **labels)

    assert grown("inflight_generated_tokens_total") == sum(answer.tokens for answer in found)
    assert grown("inflight_ttft_seconds_count") == grown("inflight_e2e_seconds_count") == 16
    steps = grown("inflight_batch_size_count")
    assert grown("inflight_batch_size_sum") / steps > 1.5
    assert grown("inflight_batch_size_bucket", le="4") == steps


def test_every_metric_is_there_with_its_kind(server: RunningServer) -> None:
    text = server.metrics()
    for name, kind in (
        ("inflight_ttft_seconds", "histogram"),
        ("inflight_itl_seconds", "histogram"),
        ("inflight_e2e_seconds", "histogram"),
        ("inflight_queue_seconds", "histogram"),
        ("inflight_batch_size", "histogram"),
        ("inflight_prompt_tokens_total", "counter"),
        ("inflight_prompt_tokens_cached_total", "counter"),
        ("inflight_generated_tokens_total", "counter"),
        ("inflight_requests_finished_total", "counter"),
        ("inflight_requests_running", "gauge"),
        ("inflight_requests_waiting", "gauge"),
        ("inflight_slots", "gauge"),
        ("inflight_slots_busy", "gauge"),
        ("inflight_kv_tokens_used", "gauge"),
        ("inflight_kv_tokens_capacity", "gauge"),
    ):
        assert f"# TYPE {name} {kind}" in text
    assert sample(text, "inflight_slots") == SLOTS
    assert sample(text, "inflight_kv_tokens_capacity") == SLOTS * CONTEXT
    assert sample(text, "inflight_requests_finished_total", reason="rejected") >= 0


async def test_none_runs_one_at_a_time_and_a_full_queue_refuses() -> None:
    installation = find_installation(find_values().values)
    with serve(installation, find_gguf(), facts("none", queue=2)) as running:
        async with over_grpc(running) as source:
            tasks = [
                asyncio.create_task(ask(source, chat("Tell me a story."), max_tokens=30, min_tokens=30))
                for _ in range(3)
            ]
            await until(lambda: sample(running.metrics(), "inflight_requests_waiting") == 2)
            refused = await ask(source, chat("One too many."))
            answers = await asyncio.gather(*tasks)
        text = running.metrics()
    assert error_code(refused) == "overloaded"
    assert {answer.text for answer in answers} == {answers[0].text}
    assert sample(text, "inflight_batch_size_bucket", le="1") == sample(text, "inflight_batch_size_count")
    assert sample(text, "inflight_slots") == 1
    assert sample(text, "inflight_requests_finished_total", reason="rejected") == 1


async def test_one_bos_whether_the_prompt_has_one_or_not(tmp_path: Path) -> None:
    engine = write_tiny(tmp_path / "tiny.gguf")
    with serve(find_installation(find_values().values), engine, facts(context=128)) as running:
        counts = [
            generate(running, text_input=prompt, max_tokens=1)[1]["prompt_tokens"]
            for prompt in ("ab", "<s>ab")
        ]
        assert counts == [3, 3]
        running.control(f"/v2/repository/models/{MODEL}/unload")
        await until(lambda: "successfully unloaded" in running.log.read_text(errors="replace"))


@pytest.mark.parametrize("damage", ["cut", "text", "missing", "vocabulary"])
def test_a_damaged_engine_is_refused_with_a_sentence(tmp_path: Path, damage: str) -> None:
    engine = tmp_path / "model.gguf"
    if damage == "cut":
        whole = find_gguf().read_bytes()
        engine.write_bytes(whole[: len(whole) // 2])
    elif damage == "text":
        engine.write_text("this is no engine")
    elif damage == "vocabulary":
        write_tiny(engine, with_bytes=False)
    wanted = {
        "cut": r"llama\.cpp cannot load .*not within the file bounds",
        "text": "is no GGUF file",
        "missing": "cannot be read",
        "vocabulary": "has no token for some bytes",
    }[damage]
    with pytest.raises(ServerProblem, match=wanted):  # noqa: SIM117 - the inner block must not be entered
        with serve(find_installation(find_values().values), engine, facts()):
            pytest.fail("a damaged engine was loaded")


async def test_a_request_of_a_higher_class_overtakes_those_that_wait(server: RunningServer) -> None:
    """Over both protocols: those of the low class come by gRPC, those that overtake them by HTTP."""
    grpc, http = TritonGrpcSource(endpoint(server)), TritonHttpSource(endpoint(server))
    question = chat("Count from one to fifty in words.")

    async def some(source: TokenSource, priority: int, tokens: int = 2) -> list[float]:
        asked = (ask(source, question, priority, max_tokens=tokens, min_tokens=tokens) for _ in range(SLOTS))
        return [answer.deltas[0].at for answer in await asyncio.gather(*asked)]

    try:
        busy = asyncio.create_task(some(grpc, 2, 60))
        await until(lambda: sample(server.metrics(), "inflight_slots_busy") == SLOTS)
        low = asyncio.create_task(some(grpc, 3))
        await until(lambda: sample(server.metrics(), "inflight_requests_waiting") == SLOTS)
        high = asyncio.create_task(some(http, 1))
        await busy
        assert max(await high) < min(await low)
    finally:
        await grpc.close()
        await http.close()
