"""The message definitions, their export, and the outbox."""

from __future__ import annotations

import asyncio

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from pydantic import ValidationError

from apps.core.exceptions import NotFound
from apps.realtime import export, schema, topics
from apps.realtime.groups import group_of
from apps.realtime.outbox import LIMIT, Outbox, TooSlow
from tests.realtime.conftest import Things


def test_the_committed_module_is_what_the_schema_says() -> None:
    assert export.schema_path().read_text(encoding="utf-8") == export.render()
    call_command("export_realtime_schema", check=True)


def test_the_check_names_a_module_that_is_out_of_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "PROTOCOL", 99)
    with pytest.raises(CommandError, match="not up to date"):
        call_command("export_realtime_schema", check=True)


def test_unknown_fields_are_refused_in_both_directions() -> None:
    with pytest.raises(ValidationError):
        schema.live_command.validate_python({"type": "ping", "at": 1, "more": 1})
    with pytest.raises(ValidationError):
        schema.chat_command.validate_python({"type": "ask", "prompt": "x", "model": "y"})
    with pytest.raises(ValidationError):
        schema.server_message.validate_python({"type": "pong", "at": 1, "more": 1})


@pytest.mark.parametrize("topic", ["", "Builds", "build:", "build:12:3", "a" * 70, "log:build:1\n"])
def test_what_is_no_topic(topic: str) -> None:
    with pytest.raises(ValidationError):
        schema.Subscribe(topic=topic)


def test_topics_are_found_by_kind_and_number(things: Things) -> None:
    topic, kind = topics.parse("log:thing:12")
    assert (topic.kind, topic.key, topic.name, kind.kind) == ("log:thing", 12, "log:thing:12", "log:thing")
    assert topics.parse("gauge")[0].key == 0
    assert topics.parse("gauge:3")[0].key == 3
    assert group_of("log:thing:12") == "log.thing.12"
    with pytest.raises(NotFound):
        topics.parse("other:1")


def test_a_topic_is_registered_once(things: Things) -> None:
    with pytest.raises(ImproperlyConfigured):
        topics.register("thing", permission="view", snapshot=things.snapshot)
    with pytest.raises(ImproperlyConfigured):
        topics.register("Some Thing", permission="view", snapshot=things.snapshot)


async def test_the_newest_message_of_a_key_is_the_one_sent() -> None:
    sent: list[str] = []
    gate = asyncio.Event()

    async def send(text: str) -> None:
        await gate.wait()
        sent.append(text)

    outbox = Outbox(send)
    outbox.push("first")
    for number in range(1000):
        outbox.replace("topic", lambda number=number: str(number))  # type: ignore[misc]
    assert len(outbox) == 2
    writer = asyncio.create_task(outbox.run())
    gate.set()
    await asyncio.wait_for(outbox.room(), 5)
    assert sent == ["first", "999"]
    writer.cancel()


async def test_what_is_sent_at_once_keeps_the_order() -> None:
    sent: list[str] = []
    gate = asyncio.Event()

    async def send(text: str) -> None:
        await gate.wait()
        sent.append(text)

    outbox = Outbox(send)
    outbox.push("started")
    writer = asyncio.create_task(outbox.run())
    # Something waits, so this waits behind it; and so does what comes while it is written.
    outbox.write_now("token 1")
    await asyncio.sleep(0)
    outbox.write_now("token 2")
    assert len(outbox) == 2
    gate.set()
    await asyncio.wait_for(outbox.room(), 5)
    # Nothing waits: written before it returns.
    outbox.write_now("token 3")
    assert sent == ["started", "token 1", "token 2", "token 3"]
    assert outbox.free
    # The socket's buffer is full: the task writes it, and what is pushed meanwhile comes after it.
    gate.clear()
    outbox.write_now("token 4")
    assert not outbox.free
    outbox.push("finished")
    gate.set()
    await asyncio.wait_for(outbox.room(), 5)
    assert sent[-2:] == ["token 4", "finished"]
    writer.cancel()


async def test_a_socket_that_is_gone_says_so_to_whoever_writes() -> None:
    async def send(text: str) -> None:
        raise OSError(text)

    outbox = Outbox(send)
    with pytest.raises(OSError, match="token"):
        outbox.write_now("token")
    assert outbox.free


async def test_a_browser_that_does_not_read_is_bounded() -> None:
    outbox = Outbox(lambda text: asyncio.sleep(3600))
    for _number in range(LIMIT):
        outbox.push("pong")
    with pytest.raises(TooSlow):
        outbox.push("pong")
