"""The chat socket: asking, stopping, resuming, two windows, slow and broken ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.routing import URLRouter
from django.contrib.auth.models import User
from django.urls import path

from apps.chat import buffer, running, selectors, services, states, tokens, turn_runner
from apps.chat.consumers import ChatConsumer
from apps.chat.models import Conversation, Turn
from apps.realtime.schema import server_message
from apps.registry.models import Checkpoint
from apps.streaming import triton_errors
from apps.streaming.token_source import AlternativeToken, StreamEnd, StreamError, TokenLogprob
from tests.chat.conftest import ChatSocket
from tests.chat.fakes import Script
from tests.realtime.conftest import WAIT
from tests.support.waiting import aeventually

pytestmark = pytest.mark.integration

Chat = Callable[[User, Conversation], Any]
ANSWER = "Paris is the capital."


async def row(uid: str) -> Turn:
    return await Turn.objects.aget(uid=uid)


async def test_an_answer_streams_and_is_kept(
    chat: Chat, olga: User, conversation: Conversation, engine: Script
) -> None:
    socket = await chat(olga, conversation)
    await socket.say("ask", prompt="Capital?", system_prompt="Be short.", params={"max_tokens": 20})
    started = await socket.next("turn_started")
    assert started["turn"]["state"] == "streaming"
    text, turn = await socket.answer()
    assert text == turn["answer"] == ANSWER
    assert (turn["state"], turn["instance"], turn["revision"]) == ("done", "i-test", 3)
    metrics = turn["metrics"]
    assert metrics["tokens"] == 5
    assert (metrics["prompt_tokens"], metrics["cached_tokens"], metrics["queue_ms"]) == (7, 3, 4.0)
    assert metrics["ttft_ms"] > 0
    assert turn["started_at"] <= turn["first_token_at"] <= turn["finished_at"]
    kept = await row(turn["uid"])
    assert (kept.state, kept.answer, kept.params) == (states.DONE, ANSWER, {"max_tokens": 20})
    await conversation.arefresh_from_db()
    assert (conversation.title, conversation.system_prompt) == ("Capital?", "Be short.")
    assert engine.closed
    assert not engine.cancelled


async def test_every_message_is_one_of_the_contract(
    chat: Chat, olga: User, conversation: Conversation
) -> None:
    socket = await chat(olga, conversation)
    await socket.say("ask", prompt="Capital?")
    seen = set()
    while "turn_finished" not in seen:
        message = await socket.next()
        server_message.validate_python(message)
        seen.add(message["type"])
    assert seen == {"turn_started", "delta", "turn_finished"}


async def test_stop_works_while_an_answer_streams(
    chat: Chat, olga: User, conversation: Conversation, engine: Script
) -> None:
    """The stream is a task: a stop that waited behind it in the handler would never come."""
    engine.endless, engine.pause = True, 0.001
    socket = await chat(olga, conversation)
    turn = await socket.ask()
    await socket.next("delta")
    await socket.say("stop", turn=turn["uid"])
    finished = await socket.until("turn_finished")
    assert finished["turn"]["state"] == "stopped"
    assert finished["turn"]["answer"].startswith("Paris is")
    assert finished["turn"]["reason"] == "stopped_by_person"
    assert engine.cancelled
    # Stopping what has ended is answered by its end.
    await socket.say("stop", turn=turn["uid"])
    assert (await socket.next("turn_finished"))["turn"]["state"] == "stopped"


async def test_a_stop_before_the_first_token_cancels_the_request(
    chat: Chat, olga: User, conversation: Conversation, engine: Script
) -> None:
    engine.gate = asyncio.Semaphore(0)
    socket = await chat(olga, conversation)
    turn = await socket.ask()
    await aeventually(lambda: engine.requests)
    await socket.say("stop", turn=turn["uid"])
    finished = (await socket.until("turn_finished"))["turn"]
    assert (finished["state"], finished["answer"]) == ("stopped", "")
    assert finished["metrics"]["ttft_ms"] is None
    assert finished["metrics"]["tokens"] is None
    assert engine.cancelled


async def test_one_answer_at_a_time_in_a_conversation(
    chat: Chat, olga: User, conversation: Conversation, engine: Script
) -> None:
    engine.endless, engine.pause = True, 0.01
    socket = await chat(olga, conversation)
    await socket.ask()
    await socket.say("ask", prompt="And Italy?")
    problem = await socket.until("error")
    assert problem["code"] == "turn_running"
    assert problem["remedy"]


async def test_the_question_and_its_parameters_are_checked(
    chat: Chat, olga: User, conversation: Conversation
) -> None:
    socket = await chat(olga, conversation)
    for fields, field in (
        ({"prompt": "  "}, "prompt"),
        ({"prompt": "x", "params": {"temperature": -1}}, "temperature"),
        ({"prompt": "x", "params": {"tempreature": 1}}, "tempreature"),
        ({"prompt": "x", "params": {"stop_words": ["a"] * 17}}, "stop_words"),
        ({"regenerate": "nothing"}, "turn"),
    ):
        await socket.say("ask", **fields)
        problem = await socket.next("error")
        assert problem["field"] == field
        assert problem["remedy"]
    await socket.say("ask", prompt="x", colour="red")
    assert (await socket.next("error"))["field"] == "ask.colour"


async def test_nothing_serving_says_what_to_do(chat: Chat, olga: User, conversation: Conversation) -> None:
    await conversation.deployment.instances.aupdate(state="failed")
    socket = await chat(olga, conversation)
    await socket.say("ask", prompt="x")
    problem = await socket.next("error")
    assert problem["code"] == "nothing_serving"
    assert "demo" in problem["message"]
    assert problem["remedy"]


async def test_an_engine_error_ends_the_turn_with_its_text_and_cause(
    chat: Chat, olga: User, conversation: Conversation, engine: Script
) -> None:
    engine.error = StreamError("overloaded", "The engine's queue is full.", "Wait a moment.")
    socket = await chat(olga, conversation)
    await socket.ask()
    _text, turn = await socket.answer()
    assert (turn["state"], turn["answer"]) == ("failed", ANSWER)
    assert (turn["reason"], turn["sentence"]) == ("overloaded", "The engine's queue is full.")
    assert turn["remedy"] == "Wait a moment."
    # A cause that the rules know stands before the engine's own words.
    words = "Prompt length (9001) exceeds maximum input length (8192)."
    engine.error = triton_errors.explain("INTERNAL", words)
    await socket.ask()
    _text, turn = await socket.answer()
    assert (turn["state"], turn["reason"]) == ("failed", "request_exceeds_max_seq_len")
    assert turn["sentence"].startswith("A request asks for more tokens than a sequence may have.")
    assert words in turn["sentence"]
    assert "shorten" in turn["remedy"]


async def test_a_fault_of_ours_ends_the_turn_too(
    chat: Chat, olga: User, conversation: Conversation, engine: Script
) -> None:
    engine.crash = ZeroDivisionError()
    socket = await chat(olga, conversation)
    await socket.ask()
    _text, turn = await socket.answer()
    assert (turn["state"], turn["reason"]) == ("failed", "internal_error")
    engine.crash = None
    assert (await socket.ask())["position"] == 2
    assert (await socket.answer())[1]["state"] == "done"


async def test_an_answer_cut_at_its_maximum_says_so(
    chat: Chat, olga: User, conversation: Conversation, engine: Script
) -> None:
    engine.end = StreamEnd("length", 0.0)
    socket = await chat(olga, conversation)
    await socket.ask()
    _text, turn = await socket.answer()
    assert (turn["state"], turn["reason"]) == ("done", "length")
    assert "max_tokens" in turn["remedy"]
    assert turn["metrics"]["prompt_tokens"] is None
    assert turn["metrics"]["queue_ms"] is None


async def test_a_socket_that_comes_back_misses_nothing(
    chat: Chat, olga: User, conversation: Conversation, engine: Script
) -> None:
    engine.gate = asyncio.Semaphore(2)
    first = await chat(olga, conversation)
    turn = await first.ask()
    await aeventually(lambda: engine.given == 2)
    seen = ""
    while len(seen) < len("Paris is"):
        seen += (await first.next("delta"))["text"]
    await first.disconnect(timeout=WAIT)
    for _word in range(3):
        engine.gate.release()
    await aeventually(lambda: engine.given == 5)
    second = await chat(olga, conversation)
    await second.say("resume", turn=turn["uid"], from_seq=len(seen))
    text, finished = await second.answer(seen)
    assert text == ANSWER
    assert finished["state"] == "done"


async def test_resume_of_an_ended_turn_replays_it(chat: Chat, olga: User, conversation: Conversation) -> None:
    socket = await chat(olga, conversation)
    turn = await socket.ask()
    await socket.answer()
    await socket.say("resume", turn=turn["uid"], from_seq=6)
    assert (await socket.next("delta"))["text"] == ANSWER[6:]
    assert (await socket.next("turn_finished"))["turn"]["answer"] == ANSWER
    await socket.say("resume", turn=turn["uid"], from_seq=len(ANSWER), from_mark=5)
    await socket.next("turn_finished")


async def test_each_message_of_the_engine_comes_with_its_time(
    chat: Chat, olga: User, conversation: Conversation, engine: Script
) -> None:
    """Also to a window that comes late, and after the end; a token that completes no character counts."""
    engine.words = ("Pa", "", "ris")
    engine.chances = (TokenLogprob(AlternativeToken("Pa", (), -0.5), (AlternativeToken("Lyo", (), None),)),)
    engine.pause = 0.01
    socket = await chat(olga, conversation)
    turn = await socket.ask(params={"logprobs": 1})
    marks: list[list[Any]] = []
    while (message := await socket.next())["type"] == "delta":
        assert message["first_mark"] == len(marks)
        marks += message["marks"]
    assert [mark[1:3] for mark in marks] == [[1, 2], [1, 0], [1, 3]]
    assert [mark[0] for mark in marks] == sorted(mark[0] for mark in marks)
    assert marks[0][3] == [{"token": "Pa", "logprob": -0.5, "top": [["Lyo", None]]}]
    kept = await sync_to_async(selectors.timeline)(await row(turn["uid"]))
    assert kept == marks
    late = await chat(olga, conversation)
    await late.say("resume", turn=turn["uid"], from_seq=2, from_mark=1)
    replayed = await late.next("delta")
    assert (replayed["text"], replayed["first_mark"], replayed["marks"]) == ("ris", 1, marks[1:])


async def test_branches_are_edited_shown_and_gone_on_from(
    chat: Chat, olga: User, conversation: Conversation
) -> None:
    socket = await chat(olga, conversation)
    first = await socket.ask("One?")
    await socket.answer()
    second = await socket.ask("Two?", after=first["uid"])
    await socket.answer()
    await socket.say("ask", edit=second["uid"], prompt="Zwei?")
    edited = (await socket.next("turn_started"))["turn"]
    assert (edited["parent"], edited["siblings"]) == (first["uid"], [second["uid"], edited["uid"]])
    await socket.answer()
    await socket.say("show", turn=second["uid"])
    shown = (await socket.next("branch"))["turns"]
    assert [turn["uid"] for turn in shown] == [first["uid"], second["uid"]]
    await socket.say("show", turn=first["uid"], here=True)
    assert [turn["uid"] for turn in (await socket.next("branch"))["turns"]] == [first["uid"]]
    await socket.say("ask", prompt="Anew?", after="")
    assert (await socket.next("turn_started"))["turn"]["parent"] is None
    await socket.answer()


async def test_a_prompt_is_counted_before_it_is_sent(
    chat: Chat, olga: User, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def count_tokens(endpoint: Any, kind: str, prompt: str) -> int:
        asked.append(prompt)
        return 17

    monkeypatch.setattr(tokens.tokenizing, "count_tokens", count_tokens)
    socket = await chat(olga, conversation)
    first = await socket.ask("One?")
    await socket.answer()
    await socket.say(
        "count", number=4, prompt="Two?", system_prompt="Short.", after=first["uid"], with_text=True
    )
    told = await socket.next("counted")
    assert (told["number"], told["tokens"], told["problem"]) == (4, 17, "")
    assert told["text"] == asked[0]
    assert asked[0].startswith("<|im_start|>system\nShort.<|im_end|>\n<|im_start|>user\nOne?")
    assert "Two?" in asked[0]
    # A template that refuses the conversation says so where the tokens would stand.
    profile = conversation.deployment.build_profile
    assert profile is not None
    await Checkpoint.objects.filter(pk=profile.checkpoint_id).aupdate(
        chat_template="{{ raise_exception('no') }}"
    )
    await socket.say("count", number=5, prompt="Two?")
    told = await socket.next("counted")
    assert (told["tokens"], "refuses" in told["problem"]) == (None, True)


async def test_another_window_sees_the_turn(
    chat: Chat, olga: User, conversation: Conversation, engine: Script
) -> None:
    engine.pause = 0.01
    one, other = await chat(olga, conversation), await chat(olga, conversation)
    turn = await one.ask()
    started = await other.next("turn_started")
    assert started["turn"]["uid"] == turn["uid"]
    assert (await other.answer())[0] == ANSWER
    assert (await one.answer())[0] == ANSWER


async def test_a_turn_nobody_follows_is_stopped_after_a_while(
    chat: Chat, olga: User, conversation: Conversation, engine: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_runner, "UNWATCHED_SECONDS", 0.2)
    engine.endless, engine.pause = True, 0.001
    socket = await chat(olga, conversation)
    turn = await socket.ask()
    await asyncio.wait_for(socket.next("delta"), WAIT)
    await socket.disconnect(timeout=WAIT)
    await aeventually(lambda: engine.cancelled)
    await aeventually(lambda: turn["uid"] not in turn_runner._turns)
    kept = await row(turn["uid"])
    assert (kept.state, kept.reason) == (states.STOPPED, "nobody_watching")
    assert kept.answer.startswith("Paris")


async def test_a_socket_that_leaves_at_once_leaves_no_turn_without_a_stream(
    chat: Chat, olga: User, conversation: Conversation
) -> None:
    socket = await chat(olga, conversation)
    await socket.say("ask", prompt="x")
    await socket.disconnect(timeout=WAIT)

    async def settled() -> bool:
        return not await Turn.objects.filter(state=states.STREAMING).aexists() and not turn_runner._tasks

    await aeventually(settled)


async def test_a_slow_window_delays_neither_the_engine_nor_the_other(
    chat: Chat, olga: User, conversation: Conversation, engine: Script
) -> None:
    """Its text piles up once, in the turn, and comes in one piece when the window reads again."""
    engine.endless, engine.pause = True, 0.0005
    reads = asyncio.Event()

    class SlowConsumer(ChatConsumer):
        async def _send_text(self, text: str) -> None:
            if '"delta"' in text:
                await reads.wait()
            await super()._send_text(text)

    quick = await chat(olga, conversation)
    slow = ChatSocket(olga, conversation.pk)
    slow.application = URLRouter([path("ws/chat/<int:conversation_id>/", SlowConsumer.as_asgi())])
    await slow.open()
    turn = await quick.ask()
    await slow.until("turn_started")
    text = ""
    while len(text) < 400:
        text += (await quick.next("delta"))["text"]
    await quick.say("stop", turn=turn["uid"])
    finished = (await quick.until("turn_finished"))["turn"]
    reads.set()
    pieces = 0
    got = ""
    while (message := await slow.next())["type"] == "delta":
        got, pieces = got + message["text"], pieces + 1
    assert got == finished["answer"]
    assert pieces <= 3
    await slow.disconnect(timeout=WAIT)


async def test_others_conversations(
    person: Callable[..., User], runner: None, olga: User, conversation: Conversation, chat: Chat
) -> None:
    other = await sync_to_async(person)("otto", "operator")
    viewer = await sync_to_async(person)("vera", "viewer")
    for user in (other, viewer):
        socket = ChatSocket(user, conversation.pk)
        accepted, _protocol = await socket.connect(timeout=WAIT)
        assert accepted
        assert await socket.closed() == 4403
        await socket.disconnect(timeout=WAIT)
    admin = await sync_to_async(person)("anna", "administrator")
    socket = await chat(admin, conversation)
    await socket.say("ask", prompt="x")
    assert (await socket.next("error"))["code"] == "not_your_conversation"
    mine = await chat(olga, conversation)
    await mine.ask()
    assert (await socket.until("turn_finished"))["turn"]["answer"] == ANSWER


async def test_a_turn_of_another_conversation_is_none_here(
    chat: Chat, olga: User, conversation: Conversation
) -> None:
    other = await sync_to_async(services.create_conversation)(olga, conversation.deployment)
    here, there = await chat(olga, conversation), await chat(olga, other)
    turn = await here.ask()
    await here.answer()
    for command in ("resume", "stop"):
        await there.say(command, turn=turn["uid"])
        problem = await there.next("error")
        assert (problem["code"], problem["turn"]) == ("unknown_turn", turn["uid"])
    await there.say("ask", regenerate=turn["uid"])
    assert (await there.next("error"))["code"] == "unknown_turn"


async def test_regenerating_replaces_the_answer_and_keeps_the_old_one(
    chat: Chat, olga: User, conversation: Conversation, engine: Script
) -> None:
    socket = await chat(olga, conversation)
    first = await socket.ask()
    await socket.answer()
    engine.words = ("Still", " Paris")
    await socket.say("ask", regenerate=first["uid"], params={"temperature": 0.7, "seed": 1})
    again = (await socket.next("turn_started"))["turn"]
    assert (again["position"], again["replaces"], again["prompt"]) == (1, first["uid"], first["prompt"])
    assert (await socket.answer())[0] == "Still Paris"
    assert await conversation.turns.acount() == 2


async def test_redis_away_does_not_end_an_answer(
    chat: Chat, olga: User, conversation: Conversation, engine: Script, redis_server: Any
) -> None:
    engine.gate = asyncio.Semaphore(1)
    socket = await chat(olga, conversation)
    await socket.ask()
    assert (await socket.until("delta"))["text"] == "Paris"
    await sync_to_async(redis_server.stop)()
    for _word in range(4):
        engine.gate.release()
    rest = ""
    while True:
        message = await socket.next()
        if message["type"] == "turn_finished":
            break
        rest += message.get("text", "")
    assert rest == ANSWER.removeprefix("Paris")
    assert message["turn"]["state"] == "done"


async def test_what_the_database_refuses_is_still_told(
    chat: Chat, olga: User, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(self: Any, ending: Any) -> None:
        raise OSError("database is locked")

    monkeypatch.setattr(running.RunningTurn, "_save", locked)
    monkeypatch.setattr(running, "SAVE_ATTEMPTS", 2)
    socket = await chat(olga, conversation)
    await socket.ask()
    text, turn = await socket.answer()
    assert text == turn["answer"] == ANSWER


async def test_a_conversation_deleted_while_it_answers(
    chat: Chat, olga: User, conversation: Conversation, engine: Script
) -> None:
    engine.endless, engine.pause = True, 0.005
    socket = await chat(olga, conversation)
    await socket.ask()
    await socket.next("delta")
    await sync_to_async(services.delete_conversation)(olga, conversation)
    await aeventually(lambda: engine.cancelled)
    await aeventually(lambda: not turn_runner._turns)


async def test_text_so_far_lies_in_redis_and_in_the_row(
    chat: Chat, olga: User, conversation: Conversation, engine: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "SAVE_SECONDS", 0.05)
    engine.gate = asyncio.Semaphore(2)
    socket = await chat(olga, conversation)
    turn = await socket.ask()

    async def saved() -> bool:
        return (await row(turn["uid"])).answer == "Paris is"

    await aeventually(saved)
    await aeventually(lambda: buffer.whole(turn["uid"]) == ("Paris is", 2))
    assert await asyncio.to_thread(buffer.is_beating, turn["uid"])
