"""The live socket against a real Redis."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer
from django.contrib.auth.models import Group, User

from apps.realtime import versions
from apps.realtime.groups import RowRef, group_of
from apps.realtime.publisher import publisher
from apps.realtime.redis_clients import sync_client
from apps.realtime.schema import MAX_TOPICS
from tests.realtime.conftest import WAIT, Socket, Things
from tests.support.waiting import aeventually

pytestmark = [pytest.mark.integration]

People = Callable[..., User]
Live = Callable[[User], Any]


def touch(topic: str, key: int = 1, state: str = "new") -> None:
    """News, as a service's signal makes it."""
    publisher.touch(topic, RowRef("thing", key, state))


async def test_subscribing_gives_a_snapshot_and_then_each_change(
    person: People, live: Live, things: Things
) -> None:
    socket = await live(await sync_to_async(person)("vera", "viewer"))
    things.state[1] = {"progress": 0}
    await socket.say("subscribe", topic="thing:1")
    first = await socket.next("snapshot")
    assert first["topic"] == "thing:1"
    assert first["data"] == {"progress": 0}

    for progress in (1, 2):
        things.state[1] = {"progress": progress}
        touch("thing:1", state="running")
        change = await socket.next("change")
        assert change["version"] == first["version"] + progress
        assert change["data"] == {"progress": progress}
        assert change["rows"] == [{"kind": "thing", "key": 1, "state": "running"}]


async def test_a_topic_left_is_silent(person: People, live: Live, things: Things) -> None:
    socket = await live(await sync_to_async(person)("vera", "viewer"))
    await socket.say("subscribe", topic="things")
    await socket.next("snapshot")
    await socket.say("unsubscribe", topic="things")
    await socket.say("ping", at=1)
    await socket.next("pong")
    await _left(group_of("things"))
    touch("things")
    await sync_to_async(publisher.flush)(WAIT)
    await socket.say("ping", at=2)
    assert (await socket.next())["at"] == 2


async def _left(group: str) -> None:
    layer: Any = get_channel_layer()
    await aeventually(lambda: f"inflight__group__{group}" not in layer.groups)


async def test_a_topic_needs_its_permission(person: People, live: Live, things: Things) -> None:
    socket = await live(await sync_to_async(person)("vera", "viewer"))
    await socket.say("subscribe", topic="vault")
    problem = await socket.next("error")
    assert problem["code"] == "topic_not_allowed"
    assert problem["topic"] == "vault"
    assert problem["remedy"]
    await socket.say("subscribe", topic="things")
    await socket.next("snapshot")


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"type": "subscribe", "topic": "things", "colour": "red"}, "subscribe.colour"),
        ({"type": "subscribe"}, "subscribe.topic"),
        ({"type": "subscribe", "topic": "things; drop"}, "subscribe.topic"),
        ({"type": "dance"}, ""),
        ({"type": "subscribe", "topic": "nothing:1"}, "topic"),
        ({"type": "subscribe", "topic": "thing"}, "topic"),
        ({"type": "subscribe", "topic": "things:4"}, "topic"),
        ({"type": "resync", "topic": "things"}, "topic"),
    ],
)
async def test_what_is_not_understood_is_refused_and_the_socket_stays(
    person: People, live: Live, message: dict[str, Any], field: str
) -> None:
    socket = await live(await sync_to_async(person)("vera", "viewer"))
    await socket.send_json_to(message)
    problem = await socket.next("error")
    assert problem["field"] == field
    assert problem["remedy"]
    await socket.send_to(text_data="{no json")
    assert (await socket.next("error"))["code"] == "message_refused"
    await socket.send_to(bytes_data=b"\x00")
    assert (await socket.next("error"))["code"] == "message_refused"
    await socket.say("ping", at=3)
    await socket.next("pong")


async def test_an_object_that_is_not_there_is_told_under_its_topic(person: People, live: Live) -> None:
    socket = await live(await sync_to_async(person)("vera", "viewer"))
    await socket.say("subscribe", topic="thing:77")
    problem = await socket.next("error")
    assert (problem["code"], problem["topic"]) == ("unknown_thing", "thing:77")


async def test_a_failing_snapshot_ends_neither_this_socket_nor_others(
    person: People, live: Live, things: Things
) -> None:
    user = await sync_to_async(person)("vera", "viewer")
    one, other = await live(user), await live(user)
    await other.say("subscribe", topic="things")
    await other.next("snapshot")

    def broken() -> None:
        raise ZeroDivisionError

    things.hold = broken
    things.state[1] = {}
    await one.say("subscribe", topic="thing:1")
    assert (await one.next("error"))["code"] == "internal_error"
    things.hold = None
    touch("things")
    await other.next("change")
    await one.say("ping", at=1)
    await one.next("pong")


async def test_a_handler_that_raises_does_not_end_the_socket(
    person: People, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = await live(await sync_to_async(person)("vera", "viewer"))
    await socket.say("subscribe", topic="things")
    await socket.next("snapshot")
    layer: Any = get_channel_layer()
    await layer.group_send(group_of("things"), {"type": "topic.touched", "topic": "things"})
    assert (await socket.next("error"))["code"] == "internal_error"
    await layer.group_send(group_of("things"), {"type": "nobody.knows"})
    touch("things")
    assert (await socket.next("change"))["topic"] == "things"


async def test_more_topics_than_a_page_may_have(person: People, live: Live, things: Things) -> None:
    socket = await live(await sync_to_async(person)("vera", "viewer"))
    for key in range(1, MAX_TOPICS + 2):
        things.state[key] = {}
        await socket.say("subscribe", topic=f"thing:{key}")
    problem = await socket.until("error")
    assert problem["code"] == "too_many_topics"


async def test_a_signed_out_person_is_closed_with_4401(person: People, live: Live) -> None:
    user = await sync_to_async(person)("vera", "viewer")
    socket = await live(user)
    user.is_active = False
    await sync_to_async(user.save)()
    assert await socket.closed() == 4401


async def test_nobody_and_people_without_a_role_are_closed(person: People, redis_server: Any) -> None:
    from django.contrib.auth.models import AnonymousUser

    for user, code in ((AnonymousUser(), 4401), (await sync_to_async(person)("rolf"), 4403)):
        socket = Socket(user)
        accepted, _protocol = await socket.connect(timeout=WAIT)
        assert accepted
        assert await socket.closed() == code
        await socket.disconnect(timeout=WAIT)


async def test_a_demoted_person_loses_the_topic_and_keeps_the_socket(person: People, live: Live) -> None:
    user = await sync_to_async(person)("anna", "administrator", "viewer")
    socket = await live(user)
    await socket.say("subscribe", topic="vault")
    await socket.next("snapshot")
    administrators = await sync_to_async(Group.objects.get)(name="administrator")
    await sync_to_async(user.groups.remove)(administrators)
    problem = await socket.next("error")
    assert (problem["code"], problem["topic"]) == ("topic_not_allowed", "vault")
    await socket.say("ping", at=1)
    await socket.next("pong")


async def test_the_own_check_finds_what_no_signal_told(
    person: People, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.realtime.base.RECHECK_SECONDS", 0.05)
    user = await sync_to_async(person)("vera", "viewer")
    socket = await live(user)
    await sync_to_async(User.objects.filter(pk=user.pk).update)(is_active=False)
    assert await socket.closed() == 4401


async def test_a_gap_is_answered_by_a_snapshot(person: People, live: Live, things: Things) -> None:
    socket = await live(await sync_to_async(person)("vera", "viewer"))
    await socket.say("subscribe", topic="things")
    version = (await socket.next("snapshot"))["version"]
    # A message is lost: the next one carries a number that is not the next one.
    await sync_to_async(versions.bump)(sync_client(), ["things"])
    touch("things")
    again = await socket.next("snapshot")
    assert again["version"] == version + 2
    await socket.say("resync", topic="things")
    assert (await socket.next("snapshot"))["version"] == version + 2


async def test_old_news_is_not_sent_again(person: People, live: Live) -> None:
    socket = await live(await sync_to_async(person)("vera", "viewer"))
    await socket.say("subscribe", topic="things")
    version = (await socket.next("snapshot"))["version"]
    layer: Any = get_channel_layer()
    news = {"type": "topic.touched", "topic": "things", "version": version, "rows": []}
    await layer.group_send(group_of("things"), news)
    await socket.say("ping", at=1)
    await socket.next("pong")


async def test_a_burst_is_coalesced_and_ends_with_the_newest_state(
    person: People, live: Live, things: Things
) -> None:
    socket = await live(await sync_to_async(person)("vera", "viewer"))
    things.state[1] = {"progress": 0}
    await socket.say("subscribe", topic="thing:1")
    await socket.next("snapshot")
    for progress in range(1, 501):
        things.state[1] = {"progress": progress}
        touch("thing:1")
    seen = []
    while not seen or seen[-1] != 500:
        seen.append((await socket.next())["data"]["progress"])
    assert len(seen) <= 4


async def test_five_hundred_messages_of_a_burst_all_arrive(person: People, live: Live) -> None:
    """The core layer drops at 100 waiting; the pub/sub layer must not."""
    socket = await live(await sync_to_async(person)("vera", "viewer"))
    await socket.say("subscribe", topic="gauge:1")
    await socket.next("snapshot")
    for at in range(1, 501):
        publisher.send(
            group_of("gauge:1"), {"type": "topic.samples", "topic": "gauge:1", "samples": [{"at": at}]}
        )
    got: list[int] = []
    while len(got) < 500:
        got += [sample["at"] for sample in (await socket.next("samples"))["samples"]]
    assert got == list(range(1, 501))


async def test_samples_begin_with_what_was_missed(person: People, live: Live, things: Things) -> None:
    things.samples = [{"at": 10.0}, {"at": 11.0}, {"at": 12.0}]
    socket = await live(await sync_to_async(person)("vera", "viewer"))
    await socket.say("subscribe", topic="gauge", since=10.0)
    assert (await socket.next("snapshot"))["data"] == {"samples": [{"at": 11.0}, {"at": 12.0}]}
    for at in (12.0, 13.0):
        publisher.send("gauge", {"type": "topic.samples", "topic": "gauge", "samples": [{"at": at}]})
    assert (await socket.next("samples"))["samples"] == [{"at": 13.0}]


async def test_one_slow_database_socket_does_not_delay_another(
    person: People, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a thread per socket the second one waits for the first one's query."""
    user = await sync_to_async(person)("vera", "viewer")
    slow, quick = await live(user), await live(user)
    busy, free = threading.Event(), threading.Event()

    def hold(feed: Any) -> bool:
        if feed.topic.kind == "thing":
            busy.set()
            free.wait(WAIT)
        return True

    monkeypatch.setattr("apps.realtime.feeds.Feed.allowed", hold)
    await slow.say("subscribe", topic="thing:1")
    await sync_to_async(busy.wait, thread_sensitive=False)(WAIT)
    await quick.say("subscribe", topic="things")
    await quick.next("snapshot")
    assert not free.is_set()
    free.set()


async def test_one_read_serves_all_sockets(person: People, live: Live, things: Things) -> None:
    user = await sync_to_async(person)("vera", "viewer")
    sockets = [await live(user) for _number in range(5)]
    for socket in sockets:
        await socket.say("subscribe", topic="things")
        await socket.next("snapshot")
    reads = things.reads
    touch("things")
    for socket in sockets:
        await socket.next("change")
    assert things.reads - reads == 1


async def test_redis_gone_and_back_brings_a_snapshot(
    person: People, live: Live, redis_server: Any, things: Things
) -> None:
    socket = await live(await sync_to_async(person)("vera", "viewer"))
    await socket.say("subscribe", topic="things")
    before = await socket.next("snapshot")
    await sync_to_async(redis_server.stop)()
    assert (await socket.until("error"))["code"] == "live_unavailable"
    things.state[5] = {}
    touch("things")  # lost
    await sync_to_async(redis_server.start)()
    after = await socket.until("snapshot", topic="things")
    assert after["data"] == {"all": [5]}
    assert after["version"] > before["version"]
    things.state[6] = {}
    touch("things")
    assert (await socket.until("change", topic="things"))["data"] == {"all": [5, 6]}


async def test_a_message_lost_in_a_short_reconnect_is_found_by_the_counters(
    person: People, live: Live, things: Things, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.realtime.base.RECHECK_SECONDS", 0.05)
    socket = await live(await sync_to_async(person)("vera", "viewer"))
    await socket.say("subscribe", topic="things")
    await socket.next("snapshot")
    things.state[5] = {}
    await sync_to_async(versions.bump)(sync_client(), ["things"])  # counted, never published
    assert (await socket.next())["data"] == {"all": [5]}


async def test_a_killed_connection_of_the_layer_comes_back(
    person: People, live: Live, redis_server: Any, things: Things
) -> None:
    socket = await live(await sync_to_async(person)("vera", "viewer"))
    await socket.say("subscribe", topic="things")
    await socket.next("snapshot")
    with redis_server.client() as client:
        old = {row["id"] for row in client.client_list(_type="pubsub")}
        client.client_kill_filter(_type="pubsub")

        def subscribed_anew() -> bool:
            fresh = [row for row in client.client_list(_type="pubsub") if row["id"] not in old]
            return bool(fresh) and client.pubsub_numsub("inflight__group__things")[0][1] == 1

        await aeventually(subscribed_anew)
    things.state[5] = {}
    touch("things")
    assert (await socket.next())["data"] == {"all": [5]}


async def test_without_redis_a_socket_is_told_to_come_back_later(
    person: People, redis_server: Any, things: Things
) -> None:
    user = await sync_to_async(person)("vera", "viewer")
    await sync_to_async(redis_server.stop)()
    socket = Socket(user)
    accepted, _protocol = await socket.connect(timeout=WAIT)
    assert accepted
    assert await socket.closed() == 1013


async def test_all_tasks_of_a_socket_end_with_it(person: People, live: Live) -> None:
    socket = await live(await sync_to_async(person)("vera", "viewer"))
    await socket.say("subscribe", topic="things")
    await socket.next("snapshot")
    mine = [task for task in asyncio.all_tasks() if "BaseConsumer" in repr(task.get_coro())]
    assert mine
    await socket.disconnect(timeout=WAIT)
    assert all(task.done() for task in mine)
