"""Chat through uvicorn: windows that do not read, and web processes that end."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from apps.chat import buffer, states
from apps.chat.models import Conversation, Turn
from apps.core import clock
from tests.support.waiting import eventually
from tests.support.web import receive, say, session_of, web

pytestmark = pytest.mark.integration

APPLICATION = "tests.chat.scripted_asgi:application"


def engine(monkeypatch: pytest.MonkeyPatch, words: list[str], times: int = 1, pause: float = 0.0) -> None:
    """What the web processes' engine says."""
    told = json.dumps({"words": words, "times": times, "pause": pause})
    monkeypatch.setenv("INFLIGHT_TEST_ENGINE", told)


def read_to_end(client: Any, text: str = "") -> tuple[str, dict[str, Any], int]:
    """(text, ended turn, number of pieces)."""
    pieces = 0
    while True:
        message = receive(client, seconds=30)
        if message["type"] == "delta":
            assert message["seq"] == len(text) + len(message["text"])
            text, pieces = text + message["text"], pieces + 1
        elif message["type"] == "turn_finished":
            return text, message["turn"], pieces


def test_a_window_that_does_not_read_holds_nobody_up(
    redis_server: Any, olga: User, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four megabytes fill every buffer of the connection; the engine and the other window go on."""
    engine(monkeypatch, ["x" * 10_000], times=400, pause=0.005)
    path = f"/ws/chat/{conversation.pk}/"
    with web(redis_server, APPLICATION) as running:
        session = session_of(olga)
        with running.connect_deaf(path, session) as slow, running.connect(path, session) as quick:
            receive(slow, "hello")
            receive(quick, "hello")
            say(quick, "ask", prompt="Capital?")
            receive(quick, "turn_started")
            text, turn, pieces = read_to_end(quick)
            assert len(text) == 4_000_000
            assert turn["metrics"]["tokens"] == 400
            receive(slow, "turn_started")
            late, _turn, fewer = read_to_end(slow)
            assert late == text
            assert fewer < pieces


def test_a_killed_web_process_loses_no_text(
    redis_server: Any, olga: User, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(monkeypatch, ["Paris ", "is "], times=10_000, pause=0.01)
    session = session_of(olga)
    path = f"/ws/chat/{conversation.pk}/"
    with web(redis_server, APPLICATION) as first, first.connect(path, session) as client:
        receive(client, "hello")
        say(client, "ask", prompt="Capital?")
        turn = receive(client, "turn_started")["turn"]
        seen = receive(client, "delta")
        eventually(lambda: len(buffer.whole(turn["uid"])[0]) >= 40)
        first.kill()
    # Its beat outlives it by ten seconds and a turn is young for ten; the test does not wait for that.
    _age(turn["uid"])
    with web(redis_server, APPLICATION) as second, second.connect(path, session) as again:
        receive(again, "hello")
        say(again, "resume", turn=turn["uid"], from_seq=seen["seq"])
        text, ended, _pieces = read_to_end(again, seen["text"])
        assert ended["state"] == "interrupted"
        assert ended["answer"] == text
        assert len(text) >= 40
        say(again, "ask", prompt="Again?")
        assert receive(again, "turn_started")["turn"]["position"] == 2


def _age(uid: str) -> None:
    """Let the process of a turn seem to have died a minute ago."""
    client = buffer.sync_client()
    client.delete(f"turn:{uid}:beat")
    client.set(f"turn:{uid}:missed", repr(time.time() - 60), ex=60)
    Turn.objects.filter(uid=uid).update(started_at=clock.now() - timedelta(minutes=1))


def test_a_web_process_that_ends_in_order_ends_its_turns(
    redis_server: Any, olga: User, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(monkeypatch, ["Paris "], times=10_000, pause=0.01)
    path, session = f"/ws/chat/{conversation.pk}/", session_of(olga)
    with web(redis_server, APPLICATION) as running, running.connect(path, session) as client:
        receive(client, "hello")
        say(client, "ask", prompt="Capital?")
        uid = receive(client, "turn_started")["turn"]["uid"]
        receive(client, "delta")
        running.stop()
        turn = Turn.objects.get(uid=uid)
        assert (turn.state, turn.reason) == (states.INTERRUPTED, "process_ended")
        assert turn.answer.startswith("Paris")
