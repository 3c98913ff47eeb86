"""From a turn to a request of an engine: prompt, parameters, and which server answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from apps.chat import comparisons, external, selectors
from apps.chat.models import Turn
from apps.chat.targets import own
from apps.serving.domain.priority_reach import LEVELS
from apps.serving.trtllm_files import engine_kind
from apps.streaming import prompts, served
from apps.streaming.selectors import as_source_endpoint
from apps.streaming.token_source import Endpoint, GenerationRequest, SamplingParams, TokenSource
from apps.streaming.triton_grpc import TritonGrpcSource
from apps.streaming.triton_http import TritonHttpSource

# Up to so many answers of this process at once come over gRPC, where a request that still waits leaves the engine's
# queue at once; more over HTTP, which costs a third of the time for each token.
MOST_BY_GRPC = 8
_running = 0


@dataclass(frozen=True, slots=True)
class Answering:
    """Who answers a turn, and what is asked. The turn closes the source."""

    source: TokenSource
    request: GenerationRequest
    instance_uid: str
    revision_number: int | None


def prepare(turn: Turn) -> Answering:
    """Render the prompt and choose a server. Reads the database; the network is not touched yet.

    Raises InflightError where nothing serves or the checkpoint's template refuses the conversation.
    """
    elsewhere = turn.conversation.external
    if elsewhere is not None:
        source: TokenSource = external.source_of(elsewhere, selectors.history(turn), turn.params)
        return Answering(source, GenerationRequest("", request_id=turn.uid), external.EXTERNAL, None)
    request = request_of(turn)
    chosen = comparisons.pick(turn.conversation)
    known = served.of(own(turn.conversation).pk).capabilities
    source = source_of(as_source_endpoint(chosen), request.priority, known.accumulated, chosen.uid)
    return Answering(source, request, chosen.uid, chosen.revision)


@contextmanager
def counted() -> Iterator[None]:
    """One more answer runs in this process meanwhile. From the event loop alone."""
    global _running  # noqa: PLW0603 - of the process
    _running += 1
    try:
        yield
    finally:
        _running -= 1


def running() -> int:
    """Answers that run in this process now."""
    return _running


def source_of(
    endpoint: Endpoint, level: int | None = None, accumulated: bool = False, known_as: str = ""
) -> TokenSource:
    """The way to an engine: gRPC while few answers run, or where a class must reach Triton's queue, else HTTP.

    `accumulated`: its model is configured to send the whole text so far with each message. `known_as` is the id of
    the instance, where it is one.
    """
    if level is not None or _running <= MOST_BY_GRPC:
        return TritonGrpcSource(endpoint, accumulated=accumulated)
    return TritonHttpSource(endpoint, shared=True, accumulated=accumulated, known_as=known_as)


def request_of(turn: Turn) -> GenerationRequest:
    """What the engine is asked for a turn, whichever server answers it."""
    level = LEVELS.get(turn.params.get("priority", ""))
    return GenerationRequest(prompt_of(turn), sampling_params(turn), turn.uid, level)


def prompt_of(turn: Turn) -> str:
    """The conversation up to the turn's question, by the checkpoint's own template."""
    checkpoint = comparisons.checkpoint_of(turn.conversation)
    rendered = prompts.render(checkpoint, selectors.history(turn))
    return prompts.for_engine(checkpoint, rendered, engine_kind(own(turn.conversation).build_profile))


def sampling_params(turn: Turn) -> SamplingParams:
    """The turn's parameters in the names of apps.streaming."""
    given = dict(turn.params)
    given.pop("priority", None)
    stop = tuple(given.pop("stop_words", ()))
    bad_words = tuple(given.pop("bad_words", ()))
    return SamplingParams(stop=stop, bad_words=bad_words, **given)
