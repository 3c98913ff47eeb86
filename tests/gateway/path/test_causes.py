"""What callers are told of an engine's refusal: the cause as code, what to do, and the engine's own words."""

from __future__ import annotations

from typing import Any

import openai as official
import pytest

from tests.gateway.path.serving import double, openai, route, served, triton
from tests.streaming.upstreams import Upstream, http_server

MESSAGES: Any = [{"role": "user", "content": "Hi"}]
TOO_LONG = "Prompt length (9001) exceeds maximum input length (8192)."
CAUSE = "request_exceeds_max_seq_len"


def checked(failed: official.APIStatusError) -> str:
    """The message of an error whose body is of OpenAI's form."""
    body = failed.response.json()["error"]
    assert set(body) == {"message", "type", "param", "code"}
    assert body["code"] == failed.code
    return str(body["message"])


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_that_is_too_long_is_its_senders_fault(stream: bool) -> None:
    upstream = Upstream(
        [{"error": f"Executor failed process requestId 7 due to the following error: {TOO_LONG}"}]
    )
    async with http_server(upstream) as endpoint, served(route(triton(endpoint))) as gate:
        with pytest.raises(official.BadRequestError) as failed:
            await gate.client().chat.completions.create(model="demo", messages=MESSAGES, stream=stream)
        record = await gate.last()
    said = checked(failed.value)
    assert (failed.value.code, failed.value.type) == (CAUSE, "invalid_request_error")
    assert said.startswith("A request asks for more tokens than a sequence may have.")
    assert TOO_LONG in said
    assert "shorten" in said
    # The log of requests has it too.
    assert (record.status, record.outcome, record.reason) == (400, "refused", CAUSE)


# What an OpenAI-style server refuses with, and the status and code that callers get.
EXTERNAL: list[tuple[int, dict[str, Any], int, str]] = [
    # A code of its own is passed on, a mere status is none.
    (400, {"message": TOO_LONG}, 400, "wished"),
    (400, {"message": TOO_LONG, "code": None}, 400, CAUSE),
    (400, {"message": TOO_LONG, "code": 400}, 400, CAUSE),
    (400, {"message": "no such thing", "code": None}, 400, "invalid_request"),
    (500, {"message": TOO_LONG}, 400, CAUSE),
    (500, {"message": "CUDA out of memory"}, 500, "gpu_out_of_memory"),
    (401, {"message": TOO_LONG}, 502, "restricted"),
]


async def test_an_external_servers_words() -> None:
    async with double() as (port, _counts), served(route(openai(port))) as gate:
        for its_status, error, status, code in EXTERNAL:
            how: Any = {"status": its_status, "error": error}
            with pytest.raises(official.APIStatusError) as failed:
                await gate.client().chat.completions.create(model="demo", messages=MESSAGES, metadata=how)
            assert (failed.value.status_code, failed.value.code) == (status, code), error
            said = checked(failed.value)
            assert error["message"] in said
            if code in ("wished", "invalid_request"):
                assert said == error["message"]
