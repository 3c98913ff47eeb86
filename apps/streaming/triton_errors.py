"""Errors of Triton and of the way to it as sentences with a remedy. The codes are stable: clients branch on them."""

from __future__ import annotations

import re

from django.utils.translation import gettext as _

from apps.streaming.engine_causes import with_cause
from apps.streaming.token_source import StreamError

# The text of the llama.cpp model's refusals begins with the input's name.
FIELD = re.compile(r"^([a-z_]{2,40}): (.+)", re.DOTALL)
# The C++ executor of TensorRT-LLM wraps the useful text.
EXECUTOR = re.compile(r"Executor failed process requestId \d+ due to the following error: (.+)", re.DOTALL)
UNREACHABLE = ("failed to connect", "connection refused", "socket closed", "connection reset", "goaway")
QUEUE_FULL = ("maximum queue size", "exceeds maximum queue size")
QUEUE_TIMEOUT = "request timeout expired"
NOT_READY = ("unknown model", "no available versions", "not at ready state", "is not available", "not ready")
DYING = ("is being unloaded", "server is stopping", "server exiting")
DEAD = ("is not healthy", "engine is broken", "stub process")
TRACEBACK = "Traceback (most recent call last):"
# Internal traces name files and addresses; one line of what happened is enough for a reader.
MOST_LETTERS = 400


def explain(code: str, text: str) -> StreamError:
    """The error for a Triton or gRPC code (empty where none is carried) and its message."""
    lower = text.lower()
    if any(part in lower for part in UNREACHABLE):
        return unreachable()
    if any(part in lower for part in QUEUE_FULL):
        return StreamError(
            "overloaded",
            _("The engine's queue is full."),
            _("Try again in a moment; more replicas or a longer queue take more load."),
        )
    if QUEUE_TIMEOUT in lower:
        return StreamError(
            "overloaded",
            _("The request waited longer in the server's queue than its batching profile allows."),
            _(
                "Try again in a moment; more replicas take more load, a longer queue timeout lets requests wait."
            ),
        )
    if any(part in lower for part in DEAD):
        return StreamError(
            "engine_died",
            _("The engine's process has died."),
            _("It is started again by itself; the deployment's log says why it died."),
        )
    if any(part in lower for part in NOT_READY) or any(part in lower for part in DYING):
        return StreamError(
            "not_ready",
            _("The model is not loaded on this server now."),
            _("Wait until the deployment is serving again."),
        )
    if "protocol is restricted" in lower or "api is restricted" in lower:
        return StreamError(
            "restricted",
            _("The server does not allow this call without its secret."),
            _("Inference must not be restricted; look at the instance's start command."),
        )
    return with_cause(_of_request(code, text), text)


def _of_request(code: str, text: str) -> StreamError:
    inner = EXECUTOR.search(text)
    said = first_line(inner[1] if inner else text)
    field = FIELD.match(text)
    if field or code in ("INVALID_ARGUMENT", "INVALID_ARG"):
        return StreamError("invalid_request", said, _("Change the request as the message says."))
    return StreamError(
        "engine_error",
        _("The engine failed: %(text)s") % {"text": said or code or _("it gave no reason")},
        _("Try again; if it happens again, the deployment's log has the details."),
    )


def first_line(text: str) -> str:
    """The last line of a Python traceback, else the first line; never more than a paragraph."""
    bare = text.replace(TRACEBACK, "")
    lines = [line.strip() for line in bare.splitlines() if line.strip()]
    if not lines:
        return ""
    line = lines[0] if bare == text else lines[-1].removeprefix("...").strip()
    return line if len(line) <= MOST_LETTERS else line[: MOST_LETTERS - 1] + "…"


def unreachable() -> StreamError:
    """Nothing answers at the address."""
    return StreamError(
        "unreachable",
        _("The model server does not answer."),
        _(
            "Its instance may just have ended; wait until the deployment is serving and send the request again."
        ),
    )


def lost() -> StreamError:
    """The connection broke in the middle of an answer."""
    return StreamError(
        "connection_lost",
        _("The connection to the model server broke before the answer was complete."),
        _("Send the request again."),
    )


def first_token_timeout(seconds: float) -> StreamError:
    """Nothing came for too long."""
    return StreamError(
        "first_token_timeout",
        _("No token came within %(seconds).0f s.") % {"seconds": seconds},
        _("The engine is overloaded or stuck: look at its waiting requests, or try a shorter prompt."),
    )


def idle_timeout(seconds: float) -> StreamError:
    """The answer stopped in the middle."""
    return StreamError(
        "idle_timeout",
        _("No further token came for %(seconds).0f s.") % {"seconds": seconds},
        _("The engine is stuck: restart the instance from the deployment's page."),
    )


def unreadable(detail: str) -> StreamError:
    """The server sent what cannot be understood."""
    return StreamError(
        "protocol_error",
        _("The model server's answer cannot be read: %(detail)s") % {"detail": first_line(detail)},
        _("Check that the endpoint is a Triton server with this model."),
    )
