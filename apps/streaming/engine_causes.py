"""What the rules of apps.diagnosis know of an engine's words about one request, told before these words.

Only failures come here, never a token. Nothing is read but the text, and of that a bounded part; whatever goes wrong
in here leaves the error as it was.
"""

from __future__ import annotations

import dataclasses
import logging

from django.utils.translation import ngettext

from apps.diagnosis.domain.rules import Diagnosis, diagnose
from apps.streaming.token_source import StreamError

log = logging.getLogger(__name__)

# The cause stands at the beginning of what an engine says, or at the end of a traceback.
MOST_LETTERS = 4_000
# The engine is well and would refuse the same request again: its sender has to change it.
OF_THE_REQUEST = frozenset({"request_exceeds_max_seq_len", "optimization_profile"})


def cause_of(text: str) -> Diagnosis | None:
    """What the rules of requests say of an engine's words; None for words that they do not know."""
    if len(text) > 2 * MOST_LETTERS:
        text = f"{text[:MOST_LETTERS]}\n{text[-MOST_LETTERS:]}"
    try:
        return diagnose(text, "request").diagnosis
    except Exception:
        log.exception("An engine's error could not be diagnosed")
        return None


def with_cause(error: StreamError, text: str) -> StreamError:
    """The error with the cause that `text`, the engine's own words, shows; as it is where none is known.

    `code` stays what retries and health go by, but for a request that no engine will take.
    """
    found = cause_of(text)
    if found is None:
        return error
    return dataclasses.replace(
        error,
        code="invalid_request" if found.id in OF_THE_REQUEST else error.code,
        sentence=f"{found.title} {error.sentence}".strip(),
        remedy=remedy_of(found) or error.remedy,
        cause=found.id,
    )


def remedy_of(found: Diagnosis) -> str:
    """The first remedy, with the figure that follows from the engine's words; empty where there is none."""
    remedy = found.remedies[0] if found.remedies else ""
    room = found.facts.get("max_new_allowed")
    if not isinstance(room, int) or room < 1:
        return remedy
    more = ngettext(
        "Behind this prompt %(tokens)d new token fits.",
        "Behind this prompt at most %(tokens)d new tokens fit.",
        room,
    )
    return f"{remedy} {more % {'tokens': room}}".strip()
