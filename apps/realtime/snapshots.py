"""The data of state topics, read once for all sockets of a process that want it."""

from __future__ import annotations

import asyncio
import json
import weakref
from dataclasses import dataclass

from django.core.serializers.json import DjangoJSONEncoder

from apps.realtime import pool, versions
from apps.realtime.topics import Key, SnapshotFunction, Topic


@dataclass(frozen=True, slots=True)
class TopicData:
    """The whole of a topic: `text` is its JSON, at least as new as `version`."""

    version: int
    text: str


class Reader:
    """Reads of one event loop. Askers that come while a read runs share the next one."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[TopicData]] = {}
        self._latest: dict[str, TopicData] = {}

    async def read(self, topic: Topic, snapshot: SnapshotFunction, at_least: int | None) -> TopicData:
        """Data of a topic. `at_least` is the version that must be in it; None asks for a read that starts now.

        Raises what the snapshot function raises, and Redis errors.
        """
        name = topic.name
        if at_least is not None:
            latest = self._latest.get(name)
            if latest is not None and latest.version >= at_least:
                return latest
            running = self._running.get(name)
            if running is not None:
                data = await asyncio.shield(running)
                if data.version >= at_least:
                    return data
        return await asyncio.shield(self._start(topic, snapshot))

    def _start(self, topic: Topic, snapshot: SnapshotFunction) -> asyncio.Task[TopicData]:
        name = topic.name
        task = asyncio.create_task(self._load(topic, snapshot))
        self._running[name] = task

        def finished(done: asyncio.Task[TopicData]) -> None:
            if self._running.get(name) is done:
                del self._running[name]
            if done.cancelled() or done.exception() is not None:
                self._latest.pop(name, None)
                return
            self._keep(name, done.result())

        task.add_done_callback(finished)
        return task

    def _keep(self, name: str, data: TopicData) -> None:
        before = self._latest.pop(name, None)
        self._latest[name] = data if before is None or data.version >= before.version else before
        while len(self._latest) > 256:
            self._latest.pop(next(iter(self._latest)))

    async def _load(self, topic: Topic, snapshot: SnapshotFunction) -> TopicData:
        version = await versions.current(topic.name)
        text = await pool.run(_render, snapshot, topic.key)
        return TopicData(version, text)


def _render(snapshot: SnapshotFunction, key: Key) -> str:
    return json.dumps(snapshot(key), cls=DjangoJSONEncoder, allow_nan=False)


_readers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Reader] = weakref.WeakKeyDictionary()


def reader() -> Reader:
    """The running loop's reader."""
    return _readers.setdefault(asyncio.get_running_loop(), Reader())
