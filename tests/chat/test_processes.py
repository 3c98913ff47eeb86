"""Turns that run in another process: resumed, stopped, and ended when that process dies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from apps.chat import buffer, services, states, turn_runner
from apps.chat.models import Conversation, Turn
from apps.core import clock
from tests.chat.fakes import Script
from tests.support.processes import python
from tests.support.waiting import aeventually, eventually

pytestmark = pytest.mark.integration

Chat = Callable[[User, Conversation], Any]


class Elsewhere:
    """A turn that another process streams."""

    def __init__(self, server: Any, turn: Turn) -> None:
        self.turn = turn
        self.process = python(server, "-m", "tests.chat.other_process", str(turn.pk))
        assert self.line() == "streaming"

    def say(self, word: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=10)


@pytest.fixture
def elsewhere(redis_server: Any, olga: User, conversation: Conversation) -> Iterator[Elsewhere]:
    """Olga asked, and another process answers."""
    other = Elsewhere(redis_server, services.ask(olga, conversation, "Capital?"))
    yield other
    other.kill()


async def test_resume_in_another_process(
    elsewhere: Elsewhere, chat: Chat, olga: User, conversation: Conversation
) -> None:
    for word in ("Paris", " is"):
        elsewhere.say(word)
    socket = await chat(olga, conversation)
    await socket.say("resume", turn=elsewhere.turn.uid, from_seq=3)
    text = "Par"
    while len(text) < 8:
        text += (await socket.next("delta"))["text"]
    elsewhere.say(" it")
    while len(text) < 11:
        text += (await socket.next("delta"))["text"]
    elsewhere.say("end")
    finished = (await socket.next("turn_finished"))["turn"]
    assert text == finished["answer"] == "Paris is it"
    assert (finished["state"], finished["instance"], finished["metrics"]["tokens"]) == ("done", "i-other", 3)


async def test_stop_from_another_process_cancels_the_engine(
    elsewhere: Elsewhere, chat: Chat, olga: User, conversation: Conversation
) -> None:
    elsewhere.say("Paris")
    socket = await chat(olga, conversation)
    await socket.say("resume", turn=elsewhere.turn.uid)
    assert (await socket.next("delta"))["text"] == "Paris"
    await socket.say("stop", turn=elsewhere.turn.uid)
    elsewhere.say("late")  # its thread waits for a line; the engine of a real turn is not waited for
    finished = (await socket.until("turn_finished"))["turn"]
    assert (finished["state"], finished["reason"]) == ("stopped", "stopped_by_person")
    assert await asyncio.to_thread(elsewhere.line) == "cancelled"


async def test_a_socket_elsewhere_keeps_a_turn_running(
    elsewhere: Elsewhere, chat: Chat, olga: User, conversation: Conversation
) -> None:
    socket = await chat(olga, conversation)
    await socket.say("resume", turn=elsewhere.turn.uid)
    uid = elsewhere.turn.uid

    async def watched() -> bool:
        return bool(await asyncio.to_thread(buffer.sync_client().exists, f"turn:{uid}:watched"))

    await aeventually(watched)


async def test_a_turn_whose_process_died_ends_as_interrupted_with_its_text(
    elsewhere: Elsewhere,
    chat: Chat,
    olga: User,
    conversation: Conversation,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn_runner, "YOUNG_SECONDS", 0.0)
    monkeypatch.setattr(turn_runner, "DEAD_SECONDS", 0.1)
    elsewhere.say("Paris")
    socket = await chat(olga, conversation)
    await socket.say("resume", turn=elsewhere.turn.uid)
    assert (await socket.next("delta"))["text"] == "Paris"
    await asyncio.to_thread(elsewhere.kill)
    # Its beat lives ten seconds longer than it; the test does not wait for that.
    await asyncio.to_thread(buffer.sync_client().delete, f"turn:{elsewhere.turn.uid}:beat")
    finished = (await socket.next("turn_finished"))["turn"]
    assert (finished["state"], finished["answer"]) == ("interrupted", "Paris")
    assert finished["reason"] == "process_ended"
    assert finished["remedy"]
    assert finished["metrics"]["tokens"] == 1
    # The conversation is free again.
    again = await socket.ask()
    assert again["position"] == 2


def test_the_sweep_finds_dead_turns_and_spares_living_ones(
    elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_runner, "YOUNG_SECONDS", 0.0)
    monkeypatch.setattr(turn_runner, "DEAD_SECONDS", 0.05)
    elsewhere.say("Paris")
    eventually(lambda: buffer.whole(elsewhere.turn.uid)[0] == "Paris")
    assert turn_runner.settle_dead_turns() == 0
    elsewhere.kill()
    buffer.sync_client().delete(f"turn:{elsewhere.turn.uid}:beat")
    assert turn_runner.settle_dead_turns() == 0  # found once: it may be Redis that forgot
    eventually(turn_runner.settle_dead_turns)
    elsewhere.turn.refresh_from_db()
    assert (elsewhere.turn.state, elsewhere.turn.answer) == (states.INTERRUPTED, "Paris")


def test_without_redis_nobody_is_declared_dead(
    redis_server: Any, olga: User, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_runner, "YOUNG_SECONDS", 0.0)
    monkeypatch.setattr(turn_runner, "DEAD_SECONDS", 0.0)
    turn = services.ask(olga, conversation, "x")
    redis_server.stop()
    assert turn_runner.settle_dead_turns() == 0
    turn.refresh_from_db()
    assert turn.state == states.STREAMING


def test_a_beat_that_comes_back_is_no_death(
    redis_server: Any, olga: User, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_runner, "YOUNG_SECONDS", 0.0)
    turn = services.ask(olga, conversation, "x")
    Turn.objects.filter(pk=turn.pk).update(started_at=clock.now() - timedelta(minutes=1))
    assert turn_runner.settle_dead_turns() == 0
    client = buffer.sync_client()
    client.set(f"turn:{turn.uid}:missed", repr(time.time() - 60))
    client.set(f"turn:{turn.uid}:beat", "1")
    assert turn_runner.settle_dead_turns() == 0
    client.delete(f"turn:{turn.uid}:beat")
    assert turn_runner.settle_dead_turns() == 0  # counted anew


async def test_a_process_that_ends_in_order_ends_its_turns_at_once(
    redis_server: Any,
    olga: User,
    conversation: Conversation,
    engine: Script,
    runner: None,
) -> None:
    """As uvicorn does: the loop's tasks are cancelled, the row is written, the engine's request is cancelled."""
    engine.gate = asyncio.Semaphore(1)
    turn = (await turn_runner.begin(lambda: services.ask(olga, conversation, "x"))).turn
    await aeventually(lambda: engine.given == 1)
    running = turn_runner.local(turn.uid)
    assert running is not None
    tasks = [task for task in turn_runner._tasks if "_run" in repr(task.get_coro())]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=10)
    kept = await sync_to_async(Turn.objects.get)(pk=turn.pk)
    assert (kept.state, kept.answer) == (states.INTERRUPTED, "Paris")
    assert engine.cancelled
