"""What one socket gets of one topic. Each feed is a task of the socket; its events only wake it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from django.utils.translation import gettext as _

from apps.core.exceptions import InflightError, NotAllowed
from apps.realtime import pool, snapshots, tasks, topics
from apps.realtime.groups import group_of
from apps.realtime.log_sources import ElsewhereTail, is_elsewhere
from apps.realtime.logtail import LogTail
from apps.realtime.schema import LogLines, Samples, Snapshot
from apps.realtime.topics import LogKind, SamplesKind, StateKind, Topic, TopicKind

if TYPE_CHECKING:
    from apps.realtime.consumers import LiveConsumer

# Seconds between two flushes of samples or of a log.
FLUSH_SECONDS = 0.25
# And of a log on another host: each look is a connection.
ELSEWHERE_SECONDS = 1.0
# Seconds between two looks at where the log lies: a new attempt writes a new file.
PATH_SECONDS = 2.0
# Seconds before a feed that failed (Redis or database away) tries again.
RETRY_SECONDS = 5.0


class Feed:
    """Base: permission, joining the group, leaving it."""

    def __init__(self, consumer: LiveConsumer, topic: Topic, kind: TopicKind) -> None:
        self.consumer = consumer
        self.topic = topic
        self.kind = kind
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to feed; problems are told under the topic's name."""
        self.task = self.consumer.spawn(self._run())

    async def stop(self) -> None:
        """End the feed and leave the group."""
        if self.task is not None:
            await tasks.end([self.task])
        await self.leave()

    async def join(self) -> None:
        """Join the topic's group; again after the layer lost its memory."""
        layer = self.consumer.channel_layer
        await layer.group_add(group_of(self.topic.name), self.consumer.channel_name)

    async def leave(self) -> None:
        """Leave the topic's group."""
        layer = self.consumer.channel_layer
        await layer.group_discard(group_of(self.topic.name), self.consumer.channel_name)

    def resync(self) -> None:
        """Send the whole of the topic again."""

    async def feed(self) -> None:
        """Feed until cancelled."""

    def allowed(self) -> bool:
        """Whether the socket's person may read the topic. Reads the database."""
        return topics.may(self.consumer.user, self.kind.permission)

    async def _run(self) -> None:
        while True:
            try:
                if not await self.consumer.db(self.allowed):
                    raise not_allowed(self.topic)
                await self.feed()
            except InflightError as error:
                self.consumer.refuse(error, topic=self.topic.name)
                await self.consumer.drop(self)
                return
            except Exception as error:
                self.consumer.failed(error, topic=self.topic.name)
                await asyncio.sleep(RETRY_SECONDS)


class StateFeed(Feed):
    """Snapshot, then a change for each next version, and a snapshot where versions were passed over."""

    def __init__(self, consumer: LiveConsumer, topic: Topic, kind: StateKind) -> None:
        super().__init__(consumer, topic, kind)
        self._snapshot = kind.snapshot
        self._wake = asyncio.Event()
        # Version that must be sent; None: a read that starts now.
        self._wanted: int | None = None
        self._sent = 0
        self._rows: dict[tuple[str, int], dict[str, Any]] = {}
        self._whole = True

    def touched(self, version: int, rows: list[dict[str, Any]]) -> None:
        """The topic has news."""
        if version <= self._sent:
            return
        for row in rows:
            self._rows[row["kind"], row["key"]] = row
        self._wanted = max(self._wanted or 0, version)
        self._wake.set()

    def resync(self) -> None:
        """Send a snapshot that is read from now on."""
        self._whole = True
        self._wanted = None
        self._wake.set()

    async def feed(self) -> None:
        """Read and send whatever is wanted, until cancelled."""
        await self.join()
        self._wake.set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._refresh()

    async def _refresh(self) -> None:
        whole, wanted = self._whole, self._wanted
        self._whole = False
        try:
            data = await snapshots.reader().read(self.topic, self._snapshot, None if whole else wanted)
        except Exception:
            self._whole = True
            raise
        if whole:
            self._sent = 0
        if data.version > self._sent:
            self.consumer.outbox.replace(self.topic.name, lambda: self._render(data))

    def _render(self, data: snapshots.TopicData) -> str:
        """The message, made when the socket is ready for it: what came meanwhile is in it."""
        kind = "change" if data.version == self._sent + 1 else "snapshot"
        head = {"type": kind, "topic": self.topic.name, "version": data.version}
        if kind == "change":
            head["rows"] = list(self._rows.values())
        self._rows.clear()
        self._sent = data.version
        return f'{json.dumps(head)[:-1]}, "data": {data.text}}}'


class SamplesFeed(Feed):
    """What the client missed, then new samples, several in one message."""

    def __init__(self, consumer: LiveConsumer, topic: Topic, kind: SamplesKind, since: float | None) -> None:
        super().__init__(consumer, topic, kind)
        self._history = kind.history
        self._since = since
        self._fresh: list[dict[str, Any]] = []
        self._wake = asyncio.Event()
        self._missed = True

    def add(self, samples: list[dict[str, Any]]) -> None:
        """New samples arrived."""
        self._fresh.extend(samples)
        del self._fresh[:-600]
        self._wake.set()

    def resync(self) -> None:
        """Send what lies between the newest sample sent and now."""
        self._missed = True
        self._wake.set()

    async def feed(self) -> None:
        """Send history and news until cancelled."""
        await self.join()
        while True:
            if self._missed:
                self._missed = False
                await self._send_missed()
            await self._wake.wait()
            await self.consumer.outbox.room()
            self._wake.clear()
            self._send_fresh()
            # The first sample after a pause goes out at once; what comes meanwhile goes out together.
            await asyncio.sleep(FLUSH_SECONDS)

    async def _send_missed(self) -> None:
        samples = await pool.run(self._history, self.topic.key, self._since)
        if samples:
            self._since = samples[-1]["at"]
        self.consumer.tell(Snapshot(topic=self.topic.name, version=0, data={"samples": samples}))

    def _send_fresh(self) -> None:
        fresh = [sample for sample in self._fresh if self._since is None or sample["at"] > self._since]
        self._fresh = []
        if fresh:
            self._since = fresh[-1]["at"]
            self.consumer.tell(Samples(topic=self.topic.name, samples=fresh))


class LogFeed(Feed):
    """Tails a log file, at most 1/FLUSH_SECONDS messages a second and only as fast as the socket takes them."""

    def __init__(self, consumer: LiveConsumer, topic: Topic, kind: LogKind, offset: int | None) -> None:
        super().__init__(consumer, topic, kind)
        self._path_of = kind.path
        self._offset = offset
        self._tail: LogTail | ElsewhereTail | None = None
        self._path = ""
        self._looked_at = 0.0

    async def feed(self) -> None:
        """Read and send until cancelled."""
        while True:
            await self._find_file()
            await self.consumer.outbox.room()
            if self._tail is not None:
                chunk = await pool.run(self._tail.read)
                if chunk is not None:
                    self.consumer.tell(
                        LogLines(
                            topic=self.topic.name, text=chunk.text, start=chunk.start, offset=chunk.offset
                        )
                    )
            away = isinstance(self._tail, ElsewhereTail)
            await asyncio.sleep(ELSEWHERE_SECONDS if away else FLUSH_SECONDS)

    async def join(self) -> None:
        """Logs have no group."""

    async def leave(self) -> None:
        """Logs have no group."""

    async def _find_file(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._looked_at and now - self._looked_at < PATH_SECONDS:
            return
        self._looked_at = now
        path = await pool.run(self._path_of, self.topic.key)
        if path and path != self._path:
            # A later attempt has a file of its own, which begins at 0.
            offset = self._offset if not self._path else 0
            self._tail = ElsewhereTail(path, offset) if is_elsewhere(path) else LogTail(Path(path), offset)
            self._path = path


def feed_for(
    consumer: LiveConsumer, topic: Topic, kind: TopicKind, offset: int | None, since: float | None
) -> Feed:
    """The feed that fits the kind of topic."""
    if isinstance(kind, LogKind):
        return LogFeed(consumer, topic, kind, offset)
    if isinstance(kind, SamplesKind):
        return SamplesFeed(consumer, topic, kind, since)
    return StateFeed(consumer, topic, cast("StateKind", kind))


def not_allowed(topic: Topic) -> NotAllowed:
    """Why a person does not get a topic."""
    return NotAllowed(
        "topic_not_allowed",
        _("Your roles do not include the live topic “%(topic)s”.") % {"topic": topic.name},
        remedy=_("Ask an administrator to add the role to your account."),
        field="topic",
    )
