"""Triton's statistics API: batch sizes as executed. Asked every few seconds beside the metrics, and never waited for.

The API is restricted: it needs the instance's secret (header x-inflight-control). A server that does not answer it
keeps its metrics; it only has no distribution of executed batches.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import aiohttp
import orjson

from apps.telemetry.domain import batch_stats
from apps.telemetry.domain.figures import Series
from apps.telemetry.domain.histogram import Histogram
from apps.telemetry.domain.reading import Reading
from apps.telemetry.fetch import Fetcher, Refused
from apps.telemetry.target import Target

log = logging.getLogger(__name__)

EVERY_SECONDS = 5.0
# After a refusal (no secret, switched off) it is asked again this much later.
REFUSED_SECONDS = 60.0
TIMEOUT_SECONDS = 2.0
HEADER = "x-inflight-control"


class Statistics:
    """Batch sizes of one server, at most as old as EVERY_SECONDS."""

    def __init__(self, target: Target, fetcher: Fetcher) -> None:
        self._target = target
        self._fetcher = fetcher
        self._next = 0.0
        self._asked: asyncio.Task[dict[Series, Histogram]] | None = None

    async def add_to(self, reading: Reading) -> None:
        """Put what the last question brought into a reading, and ask anew when it is time."""
        asked = self._asked
        if asked is not None and asked.done():
            self._asked = None
            try:
                reading.figures.histogram("triton_batch_size", asked.result())
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError, Refused) as error:
                log.debug("%s does not give its statistics: %s", self._target.uid, error)
                self._next = time.monotonic() + REFUSED_SECONDS
        if self._target.statistics_url and self._asked is None and time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY_SECONDS
            self._asked = asyncio.create_task(self._ask(), name=f"statistics {self._target.uid}")

    async def _ask(self) -> dict[Series, Histogram]:
        secret = await asyncio.to_thread(_secret, self._target.secret_path)
        headers = {HEADER: secret} if secret else None
        text = await self._fetcher.text(self._target.statistics_url, TIMEOUT_SECONDS, headers)
        return batch_stats.read(orjson.loads(text))


def _secret(path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
