"""Rows that change, come and go publish their topics; what fails there breaks nothing."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
import redis
from channels.layers import get_channel_layer
from django.db import transaction

from apps.core import transitions
from apps.realtime import groups
from apps.realtime.publisher import Publisher, publisher
from apps.registry.models import Checkpoint

pytestmark = pytest.mark.integration


class Ear:
    """Hears what the publisher says about a group, decoded as the pub/sub layer decodes it."""

    def __init__(self, server: Any, *topics: str) -> None:
        self.client = redis.Redis.from_url(server.url(1))
        self.pubsub = self.client.pubsub(ignore_subscribe_messages=True)
        self.pubsub.subscribe(*(f"inflight__group__{groups.group_of(topic)}" for topic in topics))
        self.pubsub.get_message(timeout=5)

    def hear(self, seconds: float = 5.0) -> dict[str, Any] | None:
        """The next message within `seconds`."""
        layer: Any = get_channel_layer()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            message = self.pubsub.get_message(timeout=0.05)
            if message:
                return dict(layer.deserialize(message["data"]))
        return None

    def close(self) -> None:
        self.pubsub.close()
        self.client.close()


@pytest.fixture
def checkpoint(transactional_db: None, redis_server: Any) -> Checkpoint:
    made = Checkpoint.objects.create(name="demo", source={"demo": "x"}, state="registered")
    publisher.flush(5)
    return made


def test_a_change_is_published_after_the_commit_only(redis_server: Any, checkpoint: Checkpoint) -> None:
    ear = Ear(redis_server, "checkpoints")
    with transaction.atomic():
        transitions.amend(checkpoint, path="/somewhere")
        assert ear.hear(0.3) is None
    news = ear.hear()
    assert news is not None
    assert news["type"] == "topic.touched"
    assert news["rows"] == [{"kind": "checkpoint", "key": checkpoint.pk, "state": checkpoint.state}]
    ear.close()


def test_a_rollback_publishes_nothing(redis_server: Any, checkpoint: Checkpoint) -> None:
    ear = Ear(redis_server, "checkpoints")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        transitions.amend(checkpoint, path="/somewhere")
        raise ZeroDivisionError
    assert ear.hear(0.3) is None
    ear.close()


def test_a_new_and_a_deleted_row_are_published(redis_server: Any, checkpoint: Checkpoint) -> None:
    ear = Ear(redis_server, "checkpoints")
    key = checkpoint.pk
    checkpoint.delete()
    gone = ear.hear()
    assert gone is not None
    assert gone["rows"][0]["key"] == key
    Checkpoint.objects.create(name="other", source={}, state="registered")
    made = ear.hear()
    assert made is not None
    assert made["version"] == gone["version"] + 1
    ear.close()


def test_redis_gone_breaks_no_service(
    redis_server: Any, checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    redis_server.stop()
    started = time.monotonic()
    assert transitions.amend(checkpoint, path="/somewhere")
    assert time.monotonic() - started < 1
    assert publisher.flush(5)
    assert "Redis does not answer" in caplog.text
    redis_server.start()
    ear = Ear(redis_server, "checkpoints")
    assert transitions.amend(checkpoint, path="/elsewhere")
    assert ear.hear() is not None
    ear.close()


def test_versions_grow_over_a_redis_that_lost_its_memory(redis_server: Any, checkpoint: Checkpoint) -> None:
    own = Publisher()
    ear = Ear(redis_server, "builds")
    own.touch("builds")
    before = ear.hear()
    with redis_server.client() as client:
        client.flushall()
    own.touch("builds")
    after = ear.hear()
    assert before is not None
    assert after is not None
    assert after["version"] > before["version"]
    ear.close()


def test_a_forked_child_publishes_too(redis_server: Any) -> None:
    """Celery's prefork children have the parent's lock and none of its threads."""
    publisher.touch("builds")
    assert publisher.flush(5)
    ear = Ear(redis_server, "deployments")
    child = os.fork()
    if child == 0:
        publisher.touch("deployments")
        os._exit(0 if publisher.flush(5) else 1)
    _pid, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert ear.hear() is not None
    ear.close()


def test_a_burst_of_a_topic_is_at_most_four_messages_a_second(redis_server: Any) -> None:
    own = Publisher()
    ear = Ear(redis_server, "builds")
    ends = time.monotonic() + 1.0
    while time.monotonic() < ends:
        own.touch("builds", groups.RowRef("build", 1, "running"))
        time.sleep(0.002)
    assert own.flush(5)
    heard = 0
    while ear.hear(0.2) is not None:
        heard += 1
    assert 2 <= heard <= 6
    ear.close()


def test_topics_of_each_kind_of_row() -> None:
    class Row:
        def __init__(self, kind: str, **fields: Any) -> None:
            self.kind, self.state, self.pk = kind, "x", 7
            self.__dict__.update(fields)

    assert groups.topics_of(Row("build", number=12)) == ["build:12", "builds", "overview"]  # type: ignore[arg-type]
    assert groups.ref_of(Row("build", number=12)).key == 12  # type: ignore[arg-type]
    for kind in ("instance", "revision"):
        row: Any = Row(kind, deployment_id=3)
        assert groups.topics_of(row) == ["deployment:3", "deployments", "overview"]
        assert groups.ref_of(row).key == 7
    assert groups.topics_of(Row("turn")) == []  # type: ignore[arg-type]
