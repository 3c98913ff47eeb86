"""The token ids of a prompt, out of the tokenizer that its engine itself uses. Nothing is generated.

The llama.cpp model answers a request with the parameter `tokenize_only`; beside TensorRT-LLM's C++ backend the
ensemble's first step, `preprocessing`, is asked. Other models tokenise inside and tell nobody.
"""

from __future__ import annotations

from typing import Any

import orjson
from django.utils.translation import gettext as _

from apps.gateway.domain.facts import Upstream
from apps.gateway.errors import ApiError, invalid
from apps.gateway.upstreams.triton import StreamFailed, TritonUpstreams
from apps.streaming import triton_errors
from apps.streaming.triton_http import explain

SECONDS = 30.0
MOST_BYTES = 64 * 1024 * 1024
TOKENIZED = "tokenized"
STEP = "preprocessing"


async def token_ids(
    triton: TritonUpstreams, upstream: Upstream, prompt: str, special: bool | None
) -> list[int]:
    """Ids of a prompt; `special` None adds what the engine adds to a prompt by itself (BOS), false nothing.

    Raises StreamFailed where the server is away or refuses, ApiError where it has no tokenizer to ask.
    """
    interface = await triton.interface(upstream)
    if interface.is_ours:
        return await _of_ours(triton, upstream, prompt, special is not False)
    if special is not None:
        raise invalid(
            _("Whether %(model)s adds special tokens is fixed in its server. Leave add_special_tokens out.")
            % {"model": upstream.model},
            "add_special_tokens",
            "unsupported_parameter",
        )
    return await _of_step(triton, upstream, prompt)


async def _of_ours(triton: TritonUpstreams, upstream: Upstream, prompt: str, special: bool) -> list[int]:
    # A server of an older release knows no such parameter and answers: with one token at most.
    asked = {"text_input": prompt, "max_tokens": 1, "tokenize_only": True, "add_special_tokens": special}
    said = await _asked(triton, upstream, f"/v2/models/{upstream.model}/generate", asked)
    if said.get("finish_reason") != TOKENIZED:
        raise ApiError(
            501,
            "not_supported",
            _("The server of %(model)s is of an older release. Restart it.") % {"model": upstream.model},
        )
    return _ids(_json(str(said.get("text_output"))))


async def _of_step(triton: TritonUpstreams, upstream: Upstream, prompt: str) -> list[int]:
    body = {
        "inputs": [
            {"name": "QUERY", "datatype": "BYTES", "shape": [1, 1], "data": [prompt]},
            {"name": "REQUEST_OUTPUT_LEN", "datatype": "INT32", "shape": [1, 1], "data": [1]},
        ],
        "outputs": [{"name": "INPUT_ID"}],
    }
    said = await _asked(triton, upstream, f"/v2/models/{STEP}/infer", body)
    return _ids(next((one["data"] for one in said.get("outputs", ()) if one.get("name") == "INPUT_ID"), None))


async def _asked(
    triton: TritonUpstreams, upstream: Upstream, path: str, body: dict[str, Any]
) -> dict[str, Any]:
    status, said = await triton.call(upstream, "POST", path, orjson.dumps(body), MOST_BYTES, SECONDS)
    if status != 200:
        if STEP in path and b"unknown model" in said:
            raise ApiError(
                501,
                "not_supported",
                _("The engine of %(model)s tells no tokens of a prompt.") % {"model": upstream.model},
            )
        raise StreamFailed(explain(status, said))
    found = _json(said)
    if not isinstance(found, dict):
        raise StreamFailed(triton_errors.unreadable("no object"))
    return found


def _json(said: bytes | str) -> Any:
    try:
        return orjson.loads(said)
    except ValueError as error:
        raise StreamFailed(triton_errors.unreadable(str(error))) from error


def _ids(found: Any) -> list[int]:
    if not isinstance(found, list) or not all(type(one) is int for one in found):
        raise StreamFailed(triton_errors.unreadable("no token ids"))
    return found
