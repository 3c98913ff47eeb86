"""Embedded engines behind a gateway process with its own Redis and database, and clients that time first tokens."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from apps.serving.domain import repository
from apps.serving.domain.batching import BatchingFacts
from benchmarks import gateway_world
from benchmarks.serving import MODEL_CODE, RunningServer, find_installation, serve_folder

PROMPT = re.compile(r"^inflight_prompt_tokens_total\S* (\S+)$", re.MULTILINE)
CACHED = re.compile(r"^inflight_prompt_tokens_cached_total\S* (\S+)$", re.MULTILINE)
# English words that tokenise to about one token each.
WORDS = (
    *("river", "stone", "garden", "winter", "letter", "silver", "mountain", "window", "paper", "market"),
    *(
        "captain",
        "forest",
        "bridge",
        "lantern",
        "harvest",
        "island",
        "engine",
        "station",
        "copper",
        "weather",
    ),
)


@dataclass(frozen=True, slots=True)
class Spec:
    """One engine: engines of one name are replicas. `threads` of the machine's cores are its own."""

    name: str
    slots: int
    context: int
    threads: int


@dataclass
class EngineWorld:
    """What runs. `keys` are the texts of the keys by name, `all` works everywhere."""

    home: Path
    environ: dict[str, str]
    keys: dict[str, str]
    servers: list[RunningServer]
    stack: ExitStack = field(default_factory=ExitStack)

    def gateway(self, **environ: str) -> int:
        """Start a gateway process with these variables; its port."""
        return gateway_world.gateway(self.stack, self.home, {**self.environ, **environ})

    def prompt_tokens(self) -> tuple[float, float]:
        """Prompt tokens that the engines have processed, and those of them that came out of a cache."""
        texts = [server.metrics() for server in self.servers]
        return _sum(PROMPT, texts), _sum(CACHED, texts)


def _sum(pattern: re.Pattern[str], texts: Sequence[str]) -> float:
    return sum(float(value) for text in texts for value in pattern.findall(text))


@contextmanager
def engine_world(
    gguf: Path,
    specs: Sequence[Spec],
    routes: Sequence[dict[str, Any]] = (),
    keys: Sequence[dict[str, Any]] = (),
) -> Iterator[EngineWorld]:
    """Start the engines, Redis and a database with rows for them; end everything."""
    home = Path(tempfile.mkdtemp(prefix="inflight-engines-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        environ = gateway_world.environment_of(home)
        gateway_world.redis(stack, home, environ)
        installation = find_installation({**os.environ, **environ})
        servers = []
        for spec in specs:
            running = stack.enter_context(serve_folder(installation, partial(_write, gguf=gguf, spec=spec)))
            running.control(f"/v2/repository/models/{spec.name}/load")
            servers.append(running)
        engines = [
            {"name": spec.name, "http": server.http_url, "grpc": server.grpc_url, "slots": spec.slots}
            for spec, server in zip(specs, servers, strict=True)
        ]
        more = {"engines": engines, "routes": list(routes), "keys": list(keys)}
        rows = gateway_world.rows_of(environ, "--more", json.dumps(more))
        yield EngineWorld(home, environ, {**rows["keys"], "all": rows["key"]}, servers, stack)


def _write(root: Path, gguf: Path, spec: Spec) -> None:
    facts = BatchingFacts("inflight", spec.slots, spec.context, spec.threads, 64, 0)
    model = repository.LlamaCppModel(spec.name, str(gguf.resolve()), "cpu", facts)
    code = {path.name: path.read_bytes() for path in sorted(MODEL_CODE.glob("*.py"))}
    repository.write(root, repository.files(model, code))


@dataclass(frozen=True, slots=True)
class Answer:
    """One request: seconds to its first token, tokens of the answer, when it ended (monotonic)."""

    ttft: float
    tokens: int
    ended: float


async def ask(port: int, key: str, model: str, prompt: str, tokens: int) -> Answer:
    """Stream one completion of exactly so many tokens. Raises RuntimeError for anything but an answer."""
    body = {
        "model": model,
        "prompt": prompt,
        "stream": True,
        "max_tokens": tokens,
        "min_tokens": tokens,
        "temperature": 0,
        "stream_options": {"include_usage": True},
    }
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head.encode() + data)
        began, first, told = time.monotonic(), 0.0, 0
        status = await reader.readline()
        async for line in reader:
            if b'"text":"' in line and b'"text":""' not in line and not first:
                first = time.monotonic() - began
            found = re.search(rb'"completion_tokens":(\d+)', line)
            told = int(found[1]) if found else told
        if b" 200 " not in status or not first or not told:
            raise RuntimeError(f"no answer: {status!r}")
        return Answer(first, told, time.monotonic())
    finally:
        writer.close()


def text_of(seed: int, words: int) -> str:
    """A text of about so many tokens that no other seed begins alike."""
    picked, state = [f"Story {seed}:"], seed * 7919 + 17
    for _ in range(words):
        state = (state * 1103515245 + 12345) % 2**31
        picked.append(WORDS[(state >> 8) % len(WORDS)])
    return " ".join(picked)


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest rank; nan of nothing."""
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(values: Sequence[float]) -> float:
    """Of turns."""
    return statistics.median(values)
