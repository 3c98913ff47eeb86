"""Answers of external OpenAI-style servers in the playground: text, figures, and what may be asked of whom."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from apps.chat import (
    comparisons,
    copy_as,
    exports,
    external,
    params,
    selectors,
    serialize,
    services,
    sources,
    targets,
    tokens,
)
from apps.chat.compared_models import Comparison
from apps.chat.external_chunks import ChunkReader, chatml
from apps.chat.models import Conversation, Turn
from apps.core.exceptions import InflightError, InvalidInput
from apps.gateway import services as gateway
from apps.gateway.domain.facts import Upstream as Target
from apps.gateway.models import ExternalDeployment
from apps.gateway.wire.requests import ChatRequest
from apps.streaming.domain.end_markers import EndMarkerFilter
from apps.streaming.token_source import GenerationRequest, TokenDelta, TokenEvent
from tests import people
from tests.streaming.stream_cases import ALL, StreamCase, chunks
from tests.streaming.upstreams import (
    Upstream,
    end_of,
    everything,
    never,
    openai_server,
    openai_thread,
    text_of,
)

MESSAGES = [{"role": "user", "content": "Hi"}]
STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


@pytest.fixture(autouse=True)
def allowed(settings: Any) -> None:
    """Servers of the tests are on loopback."""
    settings.INFLIGHT_UPSTREAM_ALLOW = ["127.0.0.1"]


def said(text: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk."""
    delta = {**({} if text is None else {"content": text}), **more}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


async def asked(
    script: list[Any], given: dict[str, Any] | None = None, **more: Any
) -> tuple[list[TokenEvent], Upstream]:
    """All events of one request to a server with this script."""
    upstream = Upstream(script)
    async with openai_server(upstream) as url:
        target = Target("external:x", "openai", url, model="large-1", secret="sk-1")
        source = external.ExternalSource(target, external.body_of("large-1", MESSAGES, given or {}), **more)
        return await everything(source), upstream


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
async def test_what_a_person_reads(case: StreamCase) -> None:
    events, _upstream = await asked(chunks(case, chatml(MESSAGES)))
    end = end_of(events)
    assert text_of(events) == case.text
    assert end.reason == ("error" if case.state == "failed" else "stop")
    assert case.says in (end.error.sentence if end.error else "")
    assert end.completion_tokens == case.tokens


async def test_figures_come_from_usage_and_what_nobody_tells_is_null() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    events, upstream = await asked([said("Par"), said("is"), STOP, {"choices": [], "usage": usage}])
    end = end_of(events)
    assert (end.prompt_tokens, end.completion_tokens, end.cached_tokens, end.queue_seconds) == (9, 2, 4, None)
    # A chunk is no token.
    assert [event.tokens for event in events if isinstance(event, TokenDelta)] == [None, None]
    request = upstream.asked[0]
    assert (request["model"], request["messages"], request["authorization"]) == (
        "large-1",
        MESSAGES,
        "Bearer sk-1",
    )
    assert request["stream_options"] == {"include_usage": True}
    # Nothing is set that nobody set.
    assert set(request) == {"model", "messages", "stream", "stream_options", "authorization"}


async def test_log_probabilities_count_the_tokens() -> None:
    chance = {
        "token": "Par",
        "logprob": -0.5,
        "bytes": [80],
        "top_logprobs": [{"token": "Lon", "logprob": -1.5}],
    }
    chunk = said("Par")
    chunk["choices"][0]["logprobs"] = {"content": [chance]}
    events, upstream = await asked([chunk, STOP], {"logprobs": 1, "stop_words": ["END"]})
    first = events[0]
    assert isinstance(first, TokenDelta)
    assert first.tokens == 1
    assert first.logprobs is not None
    assert (first.logprobs[0].chosen.logprob, first.logprobs[0].top[0].token) == (-0.5, "Lon")
    request = upstream.asked[0]
    assert (request["logprobs"], request["top_logprobs"], request["stop"]) == (True, 1, ["END"])


async def test_thoughts_stand_before_the_answer_as_models_write_them() -> None:
    events, _ = await asked(
        [said(reasoning_content="Hm"), said(reasoning_content="m."), said("Paris."), STOP]
    )
    assert text_of(events) == "<think>\nHmm.\n</think>\n\nParis."
    events, _ = await asked([said(reasoning="Hmm."), STOP])
    assert text_of(events) == "<think>\nHmm.\n</think>"


async def test_a_whole_answer_instead_of_a_stream_is_taken() -> None:
    choice = {"message": {"role": "assistant", "content": "Paris."}, "finish_reason": "length"}
    events, _ = await asked([{"whole": {"choices": [choice], "usage": {"completion_tokens": 3}}}])
    end = end_of(events)
    assert (text_of(events), end.reason, end.completion_tokens) == ("Paris.", "length", 3)


async def test_deltas_and_then_the_whole_come_once() -> None:
    whole = {"choices": [{"index": 0, "message": {"content": "Paris."}, "finish_reason": "stop"}]}
    events, _ = await asked([said("Par"), said("is"), whole])
    assert text_of(events) == "Paris."


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ([{"status": 401, "error": {"message": "bad key"}}], "restricted", "secret of the external"),
        ([{"status": 429, "error": {"message": "slow down"}}], "overloaded", "slow down"),
        ([{"status": 400, "error": {"message": "no such thing", "code": "nope"}}], "nope", "no such thing"),
        ([{"status": 500, "error": {"message": "boom"}}], "engine_error", "boom"),
        ([said("Par"), ()], "connection_lost", "external server"),
        ([said("Par")], "connection_lost", "external server"),
        ([b"data: {not json\n\n"], "protocol_error", "base URL"),
        ([b"data: [1]\n\n"], "protocol_error", "base URL"),
    ],
)
async def test_failures_have_a_sentence_and_a_remedy(script: list[Any], code: str, words: str) -> None:
    events, _ = await asked(script)
    error = end_of(events).error
    assert error is not None
    assert error.code == code
    assert words in f"{error.sentence} {error.remedy}"


async def test_silence_ends_and_the_server_sees_who_leaves() -> None:
    events, upstream = await asked([said("Par"), never], idle_seconds=0.05)
    error = end_of(events).error
    assert error is not None
    assert (error.code, text_of(events)) == ("idle_timeout", "Par")
    async with asyncio.timeout(10):
        await upstream.cancelled.wait()


async def test_stopping_closes_the_connection() -> None:
    upstream = Upstream([said("Par"), never])
    async with openai_server(upstream) as url, asyncio.timeout(10):
        target = Target("external:x", "openai", url, model="m")
        stream = external.ExternalSource(target, external.body_of("m", MESSAGES, {})).stream(
            GenerationRequest("")
        )
        async with contextlib.aclosing(stream) as events:
            async for event in events:
                assert isinstance(event, TokenDelta)
                break
        await upstream.cancelled.wait()


async def test_a_server_that_wants_the_newer_name_of_a_parameter_gets_it() -> None:
    refusal = {
        "status": 400,
        "error": {"message": "Use 'max_completion_tokens' instead.", "param": "max_tokens"},
    }
    upstream = Upstream([refusal])
    async with openai_server(upstream) as url:
        target = Target("external:x", "openai", url, model="m")
        events = await everything(
            external.ExternalSource(target, external.body_of("m", MESSAGES, {"max_tokens": 7}))
        )
    assert end_of(events).reason == "error"
    assert ["max_tokens" in one for one in upstream.asked] == [True, False]
    assert upstream.asked[1]["max_completion_tokens"] == 7


async def test_an_address_that_is_not_allowed_any_more_is_not_connected_to(settings: Any) -> None:
    settings.INFLIGHT_UPSTREAM_ALLOW = ["192.0.2.1"]
    events, upstream = await asked([said("Par"), STOP])
    error = end_of(events).error
    assert error is not None
    assert (error.code, upstream.asked) == ("unreachable", [])


@pytest.mark.parametrize(
    ("pieces", "text", "ended"),
    [
        (["old </s> new"], "old </s> new", False),
        (["Paris.", "</", "s>"], "Paris.", True),
        (["Paris.</s>\n\n"], "Paris.", True),
        (["Paris.<|im_end|>\n<|im", "_start|>user"], "Paris.", True),
        (["a <|im"], "a <|im", False),
        (["Write <|im_end|> ", "at the end."], "Write <|im_end|> at the end.", False),
        (["<|eot_id|><|eot_id|>"], "", True),
    ],
)
def test_markers_end_a_text_only_at_its_end(pieces: list[str], text: str, ended: bool) -> None:
    stream = EndMarkerFilter()
    assert "".join(map(stream.feed, pieces)) + stream.flush() == text
    assert stream.ended is ended


@pytest.mark.parametrize(
    "chunk",
    ['{"choices": 7}', '{"choices": [7]}', '{"choices": [{"delta": {"content": 7}, "logprobs": [1]}]}', "{}"],
)
def test_what_is_no_text_is_passed_over(chunk: str) -> None:
    assert ChunkReader(MESSAGES).feed(chunk.encode(), 0.0) == []


@pytest.fixture
def olga(db: None) -> User:
    """An operator."""
    return people.person("operator", name="olga")


@pytest.fixture
def elsewhere(db: None) -> ExternalDeployment:
    """An external deployment with a secret."""
    row = gateway.save_external(
        "tests",
        {
            "name": "elsewhere",
            "base_url": "http://127.0.0.1:9/v1",
            "model": "large-1",
            "max_sequence_tokens": 8192,
        },
    )
    return gateway.set_external_secret("tests", row, "sk-secret")


def test_a_conversation_with_an_external_deployment(olga: User, elsewhere: ExternalDeployment) -> None:
    talk = services.create_conversation(olga, targets.named(None, "elsewhere"), params={"max_tokens": 9})
    turn = services.ask(olga, talk, "Hi", system_prompt="Be brief.")
    answering = sources.prepare(Turn.objects.get(pk=turn.pk))
    assert (answering.instance_uid, answering.revision_number) == ("external", None)
    assert isinstance(answering.source, external.ExternalSource)
    assert answering.source._upstream.secret == "sk-secret"
    told = serialize.conversation_dict(talk)
    assert (told["deployment"], told["deployment_id"], told["external"]) == (None, None, "elsewhere")
    assert "sk-secret" not in json.dumps([told, exports.conversation_value(talk)])
    assert "Deployment: `elsewhere`" in exports.export(talk, "markdown")
    assert list(selectors.conversations(olga)) == [talk]


def test_only_what_such_servers_take_may_be_asked(olga: User, elsewhere: ExternalDeployment) -> None:
    talk = services.create_conversation(olga, elsewhere)
    for name, value in (("top_k", 3), ("bad_words", ["x"]), ("priority", "high"), ("min_tokens", 1)):
        with pytest.raises(InvalidInput) as refused:
            services.ask(olga, talk, "Hi", params={name: value})
        assert (refused.value.code, refused.value.field) == ("unsupported_parameter", name)
    assert set(external.PARAMS) <= set(params.SamplingParams.model_fields)


def test_its_request_is_copied_for_the_gateway_and_not_for_a_triton(
    olga: User, elsewhere: ExternalDeployment
) -> None:
    talk = services.create_conversation(olga, elsewhere, params={"max_tokens": 9, "stop_words": ["END"]})
    turn = services.ask(olga, talk, "Hi")
    request = copy_as.body(turn)
    assert (request["model"], request["max_tokens"], request["stop"]) == ("elsewhere", 9, ["END"])
    assert "temperature" not in request
    assert ChatRequest.model_validate(request).messages
    ways = {way.id: way for way in copy_as.of_turn(turn)}
    assert "sk-secret" not in "".join(way.text for way in ways.values())
    assert (ways["tritonclient"].text, "external server" in ways["tritonclient"].note) == ("", True)


@pytest.mark.parametrize(
    ("deployment", "other", "code"),
    [
        (None, None, "one_engine"),
        ("demo", "elsewhere", "one_engine"),
        (None, "nowhere", "external_deployment_unknown"),
        ("nowhere", None, "deployment_unknown"),
    ],
)
def test_one_engine_is_named(db: None, deployment: str | None, other: str | None, code: str) -> None:
    with pytest.raises(InflightError) as refused:
        targets.named(deployment, other)
    assert refused.value.code == code


def test_an_address_that_may_not_be_used_any_more_is_said_before_anything_is_sent(
    olga: User, elsewhere: ExternalDeployment, settings: Any
) -> None:
    settings.INFLIGHT_UPSTREAM_ALLOW = []
    turn = services.ask(olga, services.create_conversation(olga, elsewhere), "Hi")
    with pytest.raises(InvalidInput) as refused:
        sources.prepare(turn)
    assert "INFLIGHT_UPSTREAM_ALLOW" in refused.value.remedy


@pytest.mark.django_db(transaction=True)
async def test_nothing_counts_its_prompt(elsewhere: ExternalDeployment, olga: User) -> None:
    talk = Conversation(owner=olga, external=elsewhere)
    found = await tokens.count(talk, "", None, "Hi")
    assert (found.tokens, found.context_tokens, found.problem) == (None, 8192, "")


@pytest.mark.integration
def test_the_commands_ask_external_deployments(
    transactional_db: None, redis_server: Any, olga: User, capsys: pytest.CaptureFixture[str]
) -> None:
    """`comparison run` asks what is not answered yet, in both modes; `chat --external` asks one question."""
    upstream = Upstream([said("Paris"), STOP], scripts={"Two?": [{"error": {"message": "boom"}}]})
    with openai_thread(upstream) as url:
        for name in ("one", "other"):
            gateway.save_external("tests", {"name": name, "base_url": url, "model": f"model-{name}"})
        for mode in ("together", "in_turn"):
            upstream.asked.clear()
            arguments = [
                "external:one",
                "external:other",
                "--prompt",
                "One?",
                "--prompt",
                "Two?",
                "--mode",
                mode,
            ]
            call_command("comparison", "create", *arguments, "--user", "olga")
            row = Comparison.objects.latest("id")
            call_command("comparison", "run", str(row.pk), "--user", "olga")
            assert "4 answers were asked for." in capsys.readouterr().out
            told = comparisons.answers(row)
            assert [[one["state"] for one in answers if one] for answers in told] == [
                ["done"] * 2,
                ["failed"] * 2,
            ]
            assert [one["answer"] for one in told[0] if one] == ["Paris", "Paris"]
            assert sorted(one["model"] for one in upstream.asked) == ["model-one"] * 2 + ["model-other"] * 2
            # Once more: only what has no whole answer.
            upstream.scripts["Two?"] = [said("Rome"), STOP]
            call_command("comparison", "run", str(row.pk), "--user", "olga")
            assert "2 answers were asked for." in capsys.readouterr().out
            assert [one["answer"] for one in comparisons.answers(row)[1] if one] == ["Rome", "Rome"]
            upstream.scripts["Two?"] = [{"error": {"message": "boom"}}]
        call_command("chat", "--external", "one", "One?", "--json")
        found = json.loads(capsys.readouterr().out)
        assert (found["answer"], found["deployment"], found["external"]) == ("Paris", None, "one")
        with pytest.raises(SystemExit):
            call_command("chat", "--external", "one", "One?", "--top-k", "3", "--json")
        assert json.loads(capsys.readouterr().out)["error"]["code"] == "unsupported_parameter"
