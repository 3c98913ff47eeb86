"""The live socket of the pages: topics that come and go."""

from __future__ import annotations

import asyncio
from typing import Any

from django.utils.translation import gettext as _

from apps.core.exceptions import NotPossibleNow
from apps.realtime import topics, versions
from apps.realtime.base import BaseConsumer, live_unavailable
from apps.realtime.feeds import Feed, SamplesFeed, StateFeed, feed_for, not_allowed
from apps.realtime.schema import MAX_TOPICS, Ping, Pong, Resync, Subscribe, Unsubscribe, live_command


class LiveConsumer(BaseConsumer):
    """Live topics of the pages, at most MAX_TOPICS at a time."""

    permission = "view"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.feeds: dict[str, Feed] = {}
        # Joining and leaving one after the other: a late leave must not undo a newer join.
        self._turn = asyncio.Lock()

    async def on_command(self, text: str) -> None:
        """Subscribe, unsubscribe, resync or ping."""
        command = live_command.validate_json(text)
        match command:
            case Subscribe():
                self._subscribe(command)
            case Unsubscribe():
                self._unsubscribe(command.topic)
            case Resync():
                self._resync(command.topic)
            case Ping():
                self.tell(Pong(at=command.at))

    async def on_access(self) -> None:
        """Take away the topics that the person's roles no longer include; find news that was lost."""
        for feed in list(self.feeds.values()):
            if not await self.db(feed.allowed):
                await self._exchange(self.feeds.pop(feed.topic.name, None), None)
                self.refuse(not_allowed(feed.topic), topic=feed.topic.name)
        await self._catch_up()

    async def on_layer(self, back: bool) -> None:
        """Join all groups again and send everything anew, or say that the page stands still."""
        if not back:
            self.refuse(live_unavailable())
            return
        async with self._turn:
            for feed in list(self.feeds.values()):
                await feed.join()
                feed.resync()

    async def on_close(self, code: int) -> None:
        """Leave the topics."""
        while self.feeds:
            await self._exchange(self.feeds.popitem()[1], None)

    async def drop(self, feed: Feed) -> None:
        """Leave a topic whose feed ends by itself."""
        async with self._turn:
            if self.feeds.get(feed.topic.name) is feed:
                del self.feeds[feed.topic.name]
                await feed.leave()

    # ------------------------------------------------------------ events of the layer

    async def topic_touched(self, message: dict[str, Any]) -> None:
        """A state topic has news."""
        feed = self.feeds.get(message["topic"])
        if isinstance(feed, StateFeed):
            feed.touched(message["version"], message["rows"])

    async def topic_samples(self, message: dict[str, Any]) -> None:
        """A metric topic has samples."""
        feed = self.feeds.get(message["topic"])
        if isinstance(feed, SamplesFeed):
            feed.add(message["samples"])

    # ------------------------------------------------------------ inside

    def _subscribe(self, command: Subscribe) -> None:
        topic, kind = topics.parse(command.topic)
        if len(self.feeds) >= MAX_TOPICS and topic.name not in self.feeds:
            raise NotPossibleNow(
                "too_many_topics",
                _("One page may follow %(limit)d topics at a time.") % {"limit": MAX_TOPICS},
                remedy=_("Close what you do not look at."),
                field="topic",
            )
        before = self.feeds.get(topic.name)
        feed = feed_for(self, topic, kind, command.offset, command.since)
        self.feeds[topic.name] = feed
        self.spawn(self._exchange(before, feed))

    async def _exchange(self, before: Feed | None, after: Feed | None) -> None:
        async with self._turn:
            if before is not None:
                await before.stop()
            if after is not None and self.feeds.get(after.topic.name) is after:
                after.start()

    async def _catch_up(self) -> None:
        """Pub/sub delivers at most once; a message lost in a reconnect of milliseconds shows in the counters."""
        waiting = {name: feed for name, feed in self.feeds.items() if isinstance(feed, StateFeed)}
        for name, version in (await versions.known(list(waiting))).items():
            waiting[name].touched(version, [])

    def _unsubscribe(self, name: str) -> None:
        self.outbox.discard(name)
        self.spawn(self._exchange(self.feeds.pop(name, None), None))

    def _resync(self, name: str) -> None:
        feed = self.feeds.get(name)
        if feed is None:
            raise NotPossibleNow(
                "not_subscribed",
                _("The topic “%(topic)s” is not subscribed.") % {"topic": name},
                remedy=_("Subscribe to it first."),
                field="topic",
            )
        feed.resync()
