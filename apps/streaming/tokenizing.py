"""How many tokens a prompt is, by the tokenizer that its engine itself uses. Nothing is generated, no slot is taken.

The llama.cpp model answers a request with the parameter `tokenize_only`; beside TensorRT-LLM's C++ backend the
ensemble's first step, `preprocessing`, is asked. The llmapi model tokenises inside and tells nobody.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from apps.serving.domain.acting import EngineKind
from apps.streaming.http_client import (
    UpstreamLost,
    UpstreamUnreachable,
    read_origin,
    request_head,
    shared_pool,
    with_body,
)
from apps.streaming.token_source import Endpoint

SECONDS = 5.0
MOST_BYTES = 64 * 1024 * 1024
TOKENIZED = "tokenized"
STEP = "preprocessing"


async def count_tokens(endpoint: Endpoint, kind: EngineKind, prompt: str) -> int | None:
    """Tokens of a rendered prompt; null where the engine does not tell, or does not answer in time."""
    asked = _asked(endpoint.model_name, kind, prompt)
    if asked is None:
        return None
    path, body = asked
    origin = read_origin(endpoint.http_url)
    head = request_head(origin, "POST", path, {"Content-Type": "application/json"})
    pool = shared_pool()
    try:
        async with asyncio.timeout(SECONDS):
            connection = await pool.send(origin, with_body(head, orjson.dumps(body)))
            try:
                said = await connection.body(MOST_BYTES)
            finally:
                pool.release(connection, origin)
        return read_count(kind, orjson.loads(said)) if connection.status == 200 else None
    except (UpstreamLost, UpstreamUnreachable, TimeoutError, ValueError):
        return None


def _asked(model: str, kind: EngineKind, prompt: str) -> tuple[str, dict[str, Any]] | None:
    if kind == "llamacpp":
        # A server of an older release knows no such parameter and answers: with one token at most.
        return f"/v2/models/{model}/generate", {"text_input": prompt, "max_tokens": 1, "tokenize_only": True}
    if kind == "trtllm":
        inputs = [
            {"name": "QUERY", "datatype": "BYTES", "shape": [1, 1], "data": [prompt]},
            {"name": "REQUEST_OUTPUT_LEN", "datatype": "INT32", "shape": [1, 1], "data": [1]},
        ]
        return f"/v2/models/{STEP}/infer", {"inputs": inputs, "outputs": [{"name": "INPUT_ID"}]}
    return None


def read_count(kind: EngineKind, said: Any) -> int | None:
    """The number in an answer; null where it holds none."""
    if not isinstance(said, dict):
        return None
    if kind == "llamacpp":
        count = said.get("prompt_tokens")
        return count if said.get("finish_reason") == TOKENIZED and isinstance(count, int) else None
    for output in said.get("outputs") or ():
        if isinstance(output, dict) and output.get("name") == "INPUT_ID":
            data = output.get("data")
            return len(data) if isinstance(data, list) else None
    return None
