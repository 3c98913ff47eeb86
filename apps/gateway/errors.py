"""Errors of the API: OpenAI's envelope, with a stable code that clients branch on and a sentence that people read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from django.utils.translation import gettext as _

from apps.core.exceptions import InflightError
from apps.streaming.token_source import StreamError

# What went wrong on the way to an engine -> status. What is missing here is the engine's own failure.
STATUS = {
    "invalid_request": 400,
    "unsupported_parameter": 400,
    "overloaded": 503,
    "not_ready": 503,
    "unreachable": 503,
    "engine_died": 503,
    "restricted": 502,
    "connection_lost": 502,
    "protocol_error": 502,
    "first_token_timeout": 504,
    "idle_timeout": 504,
    "engine_error": 500,
}
# Another server may do better with the same request, as long as nothing of an answer was sent.
TRY_ELSEWHERE = frozenset(
    {"overloaded", "not_ready", "unreachable", "engine_died", "connection_lost", "restricted"}
)
# 499 is nginx's: the caller went away, or the request was ended by hand. Official clients do not repeat it.
CLIENT_CLOSED = 499
RETRY_SECONDS = 1.0


@dataclass(slots=True)
class ApiError(Exception):
    """What a caller gets instead of an answer. `param` is the field to blame, null for none."""

    status: int
    code: str
    message: str
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """OpenAI's coarse word for it."""
        if self.status == 429:
            return "rate_limit_error"
        if self.status == 403:
            return "permission_error"
        return "invalid_request_error" if self.status < 500 else "server_error"

    def body(self) -> bytes:
        """The JSON body; in a stream it is the data of an event."""
        return orjson.dumps({"error": self.as_dict()})

    def as_dict(self) -> dict[str, Any]:
        """message, type, param, code."""
        return {"message": self.message, "type": self.type, "param": self.param, "code": self.code}


def of_stream(error: StreamError) -> ApiError:
    """What an engine, or the way to it, failed with; the code is that of the cause where one is known."""
    status = STATUS.get(error.code, 500)
    headers = {"retry-after": str(int(RETRY_SECONDS))} if status == 503 else {}
    message = f"{error.sentence} {error.remedy}".strip()
    return ApiError(status, error.reason, message, headers=headers)


def of_input(error: InflightError, param: str | None = None) -> ApiError:
    """What a service of Inflight refused, as a chat template does."""
    message = f"{error.sentence} {error.remedy}".strip()
    return ApiError(400, error.code, message, param or error.field or None)


def refused(
    status: int, code: str, sentence: str, limit_name: str, retry_after_seconds: float | None
) -> ApiError:
    """What admission refused: a limit, a full queue, a deadline."""
    headers: dict[str, str] = {}
    if retry_after_seconds is not None:
        headers["retry-after"] = str(max(1, math.ceil(retry_after_seconds)))
    if limit_name:
        headers["x-inflight-limit"] = limit_name
    return ApiError(status, code, sentence, headers=headers)


def invalid(message: str, param: str | None = None, code: str = "invalid_request") -> ApiError:
    """The request itself is at fault."""
    return ApiError(400, code, message, param)


def unknown_model(name: str) -> ApiError:
    """One sentence for what does not exist and for what the key may not see, so that names cannot be guessed."""
    return ApiError(
        404,
        "model_not_found",
        _("The model `%(name)s` does not exist or you do not have access to it.") % {"name": name[:200]},
        "model",
    )


def no_key() -> ApiError:
    """No bearer token came."""
    return ApiError(
        401,
        "invalid_api_key",
        _("You didn't provide an API key. Send it as a header: `Authorization: Bearer YOUR_KEY`."),
        headers={"www-authenticate": "Bearer"},
    )


def wrong_key(reason: str = "") -> ApiError:
    """A key that is unknown, revoked (which is the same) or over."""
    message = reason or _("Incorrect API key provided: it is unknown here, or it was revoked.")
    return ApiError(401, "invalid_api_key", message, headers={"www-authenticate": "Bearer"})


def internal() -> ApiError:
    """A fault of ours; its trace is in the log."""
    return ApiError(
        500, "internal_error", _("The gateway failed. Its log has the details, by the request's id.")
    )


def cancelled() -> ApiError:
    """Ended by hand, from the page of running requests or the command line."""
    return ApiError(CLIENT_CLOSED, "cancelled", _("The request was cancelled by an operator."))


def stopping() -> ApiError:
    """This process ends."""
    return ApiError(
        503,
        "shutting_down",
        _("The gateway is being restarted. Send the request again."),
        headers={"retry-after": "1"},
    )
