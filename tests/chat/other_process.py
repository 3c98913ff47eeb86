"""Run as a process: streams one turn as a web process does, a word for each line on its input, until "end".

python -m tests.chat.other_process TURN_ID
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator

import django

django.setup()

from apps.chat import sources, turn_runner  # noqa: E402
from apps.chat.models import Turn  # noqa: E402
from apps.chat.sources import Answering  # noqa: E402
from apps.streaming.token_source import (  # noqa: E402
    GenerationRequest,
    StreamEnd,
    TokenDelta,
    TokenEvent,
)


class FromInput:
    """A token source whose tokens are lines."""

    async def stream(self, request: GenerationRequest) -> AsyncGenerator[TokenEvent, None]:
        try:
            while (line := (await asyncio.to_thread(sys.stdin.readline)).rstrip("\n")) != "end":
                yield TokenDelta(line, 1, time.perf_counter())
            yield StreamEnd("stop", time.perf_counter())
        except asyncio.CancelledError:
            print("cancelled", flush=True)
            raise

    async def close(self) -> None:
        print("closed", flush=True)


async def main(turn_id: int) -> None:
    turn = await Turn.objects.select_related("conversation", "replaces").aget(pk=turn_id)
    runner = turn_runner.start(turn)
    print("streaming", flush=True)
    await runner.ended.wait()
    assert runner.turn is not None
    print(runner.turn["state"], flush=True)


if __name__ == "__main__":
    sources.prepare = lambda turn: Answering(FromInput(), GenerationRequest("p"), "i-other", 1)
    asyncio.run(main(int(sys.argv[1])))
