"""From a turn to a request of an engine: prompt, parameters, and which server answers."""

from __future__ import annotations

from dataclasses import dataclass

from apps.chat import selectors
from apps.chat.models import Turn
from apps.serving.domain.priority_reach import LEVELS
from apps.streaming import prompts
from apps.streaming.selectors import as_source_endpoint, pick_instance
from apps.streaming.token_source import GenerationRequest, SamplingParams, TokenSource
from apps.streaming.triton_grpc import TritonGrpcSource


@dataclass(frozen=True, slots=True)
class Answering:
    """Who answers a turn, and what is asked. The turn closes the source."""

    source: TokenSource
    request: GenerationRequest
    instance_uid: str
    revision_number: int


def prepare(turn: Turn) -> Answering:
    """Render the prompt and choose a server. Reads the database; the network is not touched yet.

    Raises InflightError where nothing serves or the checkpoint's template refuses the conversation.
    """
    deployment = turn.conversation.deployment
    level = LEVELS.get(turn.params.get("priority", ""))
    request = GenerationRequest(prompt_of(turn), sampling_params(turn), turn.uid, level)
    chosen = pick_instance(deployment)
    source = TritonGrpcSource(as_source_endpoint(chosen))
    return Answering(source, request, chosen.uid, chosen.revision)


def prompt_of(turn: Turn) -> str:
    """The conversation up to the turn's question, by the checkpoint's own template."""
    checkpoint = prompts.serving_checkpoint(turn.conversation.deployment)
    return prompts.render(checkpoint, selectors.history(turn)).text


def sampling_params(turn: Turn) -> SamplingParams:
    """The turn's parameters in the names of apps.streaming."""
    given = dict(turn.params)
    given.pop("priority", None)
    stop = tuple(given.pop("stop_words", ()))
    bad_words = tuple(given.pop("bad_words", ()))
    return SamplingParams(stop=stop, bad_words=bad_words, **given)
