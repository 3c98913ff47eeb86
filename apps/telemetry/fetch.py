"""Bounded HTTP reads of servers on this host (or of a node proxy)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

# An exposition larger than this is no exposition of ours.
MOST_BYTES = 8_388_608


class Refused(Exception):
    """The answer is none that can be read."""


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Reads texts; follows no redirects, never waits longer than it is told."""

    session: aiohttp.ClientSession

    async def text(self, url: str, seconds: float, headers: Mapping[str, str] | None = None) -> str:
        """Body of a GET. Raises aiohttp.ClientError, TimeoutError or Refused."""
        # One timer for all of it: aiohttp's own ClientTimeout costs a handle for each of its parts.
        async with (
            asyncio.timeout(seconds),
            self.session.get(url, allow_redirects=False, headers=headers) as response,
        ):
            response.raise_for_status()
            if response.status != 200:
                raise Refused(f"HTTP {response.status}")
            body = bytearray()
            async for chunk in response.content.iter_chunked(65_536):
                body += chunk
                if len(body) > MOST_BYTES:
                    raise Refused(f"more than {MOST_BYTES} bytes")
        return body.decode("utf-8", errors="replace")
