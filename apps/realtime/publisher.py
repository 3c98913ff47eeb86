"""Publishing from synchronous code: a row changed, so its topics have news.

`touch` costs the caller a dictionary entry. One thread per process counts the versions and publishes, in the wire
form of RedisPubSubChannelLayer; a burst becomes the first message at once and then at most one per topic each
INTERVAL. Only the news is published: web processes read the data (snapshots.py), once for all their sockets.
Where Redis is away the news is logged and lost; sockets resynchronise when it is back (canary.py).
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from typing import Any

from django.db import transaction

from apps.core.models import StatusModel
from apps.core.transitions import state_changed
from apps.realtime import groups, versions
from apps.realtime.layer import channel_layer, is_shared, wire_name
from apps.realtime.redis_clients import REDIS_ERRORS, sync_client

log = logging.getLogger(__name__)

# Seconds between two messages of one topic from one process.
INTERVAL = 0.25
# A burst that touches more rows than this is told as "many" (the list is cut; the data is whole anyway).
MAX_ROWS = 50
# Seconds that the end of the process waits for what is not published yet.
FLUSH_AT_EXIT = 1.0


class Publisher:
    """Coalesces touched topics and publishes them from one thread. Thread-safe."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything; a forked child calls it, because it has the parent's lock but not its thread."""
        self._lock = threading.Condition()
        self._touched: dict[str, dict[tuple[str, int], groups.RowRef]] = {}
        self._messages: list[tuple[str, dict[str, Any]]] = []
        self._published_at: dict[str, float] = {}
        self._thread: threading.Thread | None = None
        self._busy = False
        self._away = False

    def touch(self, topic: str, row: groups.RowRef | None = None) -> None:
        """Say that `topic` has news, because of `row` where it is known."""
        with self._lock:
            rows = self._touched.setdefault(topic, {})
            if row is not None and len(rows) < MAX_ROWS:
                rows[row.kind, row.key] = row
            self._wake()

    def send(self, group: str, message: dict[str, Any]) -> None:
        """Send one message to a group, uncoalesced and soon."""
        with self._lock:
            self._messages.append((group, message))
            self._wake()

    def flush(self, seconds: float) -> bool:
        """Wait until everything is published, at most `seconds`; whether it is."""
        deadline = time.monotonic() + seconds
        with self._lock:
            while self._touched or self._messages or self._busy:
                left = deadline - time.monotonic()
                if left <= 0 or self._thread is None or not self._thread.is_alive():
                    return False
                self._lock.wait(left)
        return True

    def _wake(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="live-publisher", daemon=True)
            self._thread.start()
        self._lock.notify_all()

    def _run(self) -> None:
        while True:
            with self._lock:
                due, wait = self._take_due()
                if not due and not self._messages:
                    self._lock.wait(wait)
                    continue
                messages, self._messages = self._messages, []
                self._busy = True
            try:
                self._publish(due, messages)
                self._away = False
            except REDIS_ERRORS as error:
                if not self._away:
                    log.warning("Live news is not published, Redis does not answer: %s", error)
                self._away = True
            except Exception:
                log.exception("Live news could not be published.")
            with self._lock:
                self._busy = False
                self._lock.notify_all()

    def _take_due(self) -> tuple[dict[str, list[groups.RowRef]], float | None]:
        """Topics whose interval is over, and the seconds until the next one is due (None: nothing waits)."""
        now = time.monotonic()
        due: dict[str, list[groups.RowRef]] = {}
        wait: float | None = None
        for topic in list(self._touched):
            left = self._published_at.get(topic, 0.0) + INTERVAL - now
            if left <= 0:
                due[topic] = list(self._touched.pop(topic).values())
                self._published_at[topic] = now
            else:
                wait = left if wait is None else min(wait, left)
        if len(self._published_at) > 1000:
            self._published_at = {t: at for t, at in self._published_at.items() if now - at < INTERVAL}
        return due, wait

    def _publish(
        self, due: dict[str, list[groups.RowRef]], messages: list[tuple[str, dict[str, Any]]]
    ) -> None:
        if not is_shared():
            return
        client, layer = sync_client(), channel_layer()
        numbers = versions.bump(client, due) if due else []
        pipeline = client.pipeline(transaction=False)
        for (topic, rows), version in zip(due.items(), numbers, strict=True):
            news = {
                "type": "topic.touched",
                "topic": topic,
                "version": version,
                "rows": [row.as_dict() for row in rows],
            }
            pipeline.publish(wire_name(groups.group_of(topic)), layer.serialize(news))
        for group, message in messages:
            pipeline.publish(wire_name(group), layer.serialize(message))
        pipeline.execute()


publisher = Publisher()


def publish_row(row: StatusModel) -> None:
    """Tell the topics of a row that it changed; call it after the commit. Never raises."""
    _touch_all(*_news_of(row))


def publish_on_commit(row: StatusModel) -> None:
    """Tell the topics of a row after the surrounding transaction commits, also where the row is deleted in it."""
    topics, ref = _news_of(row)
    transaction.on_commit(lambda: _touch_all(topics, ref))


def _news_of(row: StatusModel) -> tuple[list[str], groups.RowRef]:
    return groups.topics_of(row), groups.ref_of(row)


def _touch_all(topics: list[str], ref: groups.RowRef) -> None:
    for topic in topics:
        publisher.touch(topic, ref)


def _on_state_changed(sender: Any, instance: StatusModel, **kwargs: Any) -> None:
    publish_row(instance)


def _on_row_made_or_deleted(sender: Any, instance: Any, created: bool = True, **kwargs: Any) -> None:
    if created and isinstance(instance, StatusModel):
        publish_on_commit(instance)


def connect() -> None:
    """Listen to transitions, and to rows that come and go; called once when Django is ready."""
    from django.db.models.signals import post_delete, post_save

    state_changed.connect(_on_state_changed, dispatch_uid="realtime.state_changed")
    post_save.connect(_on_row_made_or_deleted, dispatch_uid="realtime.row_made")
    post_delete.connect(_on_row_made_or_deleted, dispatch_uid="realtime.row_deleted")
    atexit.register(publisher.flush, FLUSH_AT_EXIT)
    os.register_at_fork(after_in_child=publisher.reset)
