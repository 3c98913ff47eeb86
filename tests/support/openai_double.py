"""A light OpenAI-style server for tests and benchmarks: raw asyncio, so that a gateway is what gets measured.

    python -m tests.support.openai_double --port 0 --chunks 64 --gap-ms 20

It streams CHUNKS chunks, one every GAP, on a schedule of its own; a stream's chunk n is due at its start + (n + 1) x
GAP whatever happened before. Without `stream` it answers whole at once. A request's `metadata`, which gateways pass
on, changes one answer as tests need it: `status` (an error with this status, `error` fields of it), `break_after`
(close after so many chunks), `garbage` (an event that is no JSON before this chunk), `silent` (nothing at all until
the caller leaves), `chunks`, `gap_ms`, `size` (letters of each chunk).
`GET /counts` tells {requests, open, cancelled, chunks}: what was really served, to compare with usage.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from dataclasses import asdict, dataclass
from typing import Any

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)


@dataclass
class Counts:
    """What the server did. `cancelled` are streams whose caller left before their end."""

    requests: int = 0
    open: int = 0
    cancelled: int = 0
    chunks: int = 0


def _kind(chat: bool) -> str:
    """What each event of a stream calls itself; clients tell the API by it."""
    return "chat.completion.chunk" if chat else "text_completion"


class Double:
    """One server."""

    def __init__(self, chunks: int = 64, gap: float = 0.02) -> None:
        self.chunks, self.gap = chunks, gap
        self.counts = Counts()

    async def serve(self, port: int = 0) -> asyncio.Server:
        """Listen on the loopback address."""
        return await asyncio.start_server(self._connection, "127.0.0.1", port, backlog=2048)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = 0
                for line in head.split(b"\r\n"):
                    if line.lower().startswith(b"content-length:"):
                        size = int(line.split(b":")[1])
                body = await reader.readexactly(size) if size else b"{}"
                if head.startswith(b"GET /counts"):
                    self._whole(writer, 200, asdict(self.counts))
                else:
                    await self._answer(json.loads(body or b"{}"), head, reader, writer)
        except (asyncio.IncompleteReadError, OSError, ValueError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, asked: dict[str, Any], head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.counts.requests += 1
        how = asked.get("metadata") or {}
        if how.get("status"):
            error = {"message": "as you wished", "type": "server_error", "code": "wished", "param": None}
            error |= how.get("error") or {}
            self._whole(writer, int(how["status"]), {"error": error})
        elif asked.get("stream"):
            await self._stream(asked, b"/chat/" in head.split(b"\r\n")[0], reader, writer)
        else:
            self._whole(writer, 200, self._completion(asked, b"/chat/" in head.split(b"\r\n")[0]))

    async def _stream(
        self, asked: dict[str, Any], chat: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.counts.open += 1
        how = asked.get("metadata") or {}
        chunks = int(how.get("chunks", self.chunks))
        gap = float(how.get("gap_ms", self.gap * 1000)) / 1000
        try:
            if how.get("silent"):
                await reader.read(1)
                raise ConnectionResetError
            writer.write(HEAD)
            await self._chunks(how, chat, chunks, gap, writer)
            usage = {"prompt_tokens": 5, "completion_tokens": chunks, "total_tokens": 5 + chunks}
            if (asked.get("stream_options") or {}).get("include_usage"):
                _event(writer, json.dumps({"object": _kind(chat), "choices": [], "usage": usage}).encode())
            _event(writer, b"[DONE]")
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        except OSError:
            self.counts.cancelled += 1
            raise
        finally:
            self.counts.open -= 1

    async def _chunks(
        self, how: dict[str, Any], chat: bool, chunks: int, gap: float, writer: asyncio.StreamWriter
    ) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        padding = "x" * int(how.get("size", 0))
        for number in range(chunks):
            due += gap
            wait = due - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            if number == how.get("break_after"):
                raise ConnectionResetError
            if writer.is_closing():
                raise ConnectionResetError
            if number == how.get("garbage"):
                _event(writer, b"{not json")
            text = f"tok{number} {padding}"
            reason = "stop" if number == chunks - 1 else None
            where = {"delta": {"content": text}} if chat else {"text": text}
            choice = {"index": 0, **where, "finish_reason": reason}
            _event(writer, json.dumps({"object": _kind(chat), "choices": [choice]}).encode())
            self.counts.chunks += 1
            if padding:
                await writer.drain()

    def _completion(self, asked: dict[str, Any], chat: bool) -> dict[str, Any]:
        text = "".join(f"tok{number} " for number in range(3))
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        choice |= {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        return {
            "id": "chatcmpl-double",
            "object": "chat.completion" if chat else "text_completion",
            "created": 1,
            "model": asked.get("model"),
            "choices": [choice],
            "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8},
        }

    def _whole(self, writer: asyncio.StreamWriter, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        writer.write(
            b"HTTP/1.1 %d -\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (status, len(data), data)
        )


def _event(writer: asyncio.StreamWriter, data: bytes) -> None:
    event = b"data: " + data + b"\n\n"
    writer.write(b"%x\r\n%b\r\n" % (len(event), event))


async def run(port: int, chunks: int, gap: float) -> None:
    """Serve until killed; prints the port first."""
    server = await Double(chunks, gap).serve(port)
    print(server.sockets[0].getsockname()[1], flush=True)
    with contextlib.suppress(asyncio.CancelledError):
        await server.serve_forever()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--chunks", type=int, default=64)
    parser.add_argument("--gap-ms", type=float, default=20.0)
    given = parser.parse_args()
    try:
        import uvloop
    except ImportError:
        sys.exit("The double needs uvloop: run it with the control plane's Python.")
    uvloop.run(run(given.port, given.chunks, given.gap_ms / 1000))


if __name__ == "__main__":
    main()
