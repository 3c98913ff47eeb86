"""Triton's side of a token stream, whatever carries it: tensors of a request, messages of an answer, errors.

`RequestTensors` says which inputs a model declares and fills every one of them, as Triton never batches requests
that differ in the optional inputs they carry. `MessageReader` turns messages into events and ends exactly once.
"""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _

from apps.streaming import triton_errors
from apps.streaming.domain.text_stream import RawTextStream, StreamRules, TextStream, echo_forms
from apps.streaming.token_source import (
    AlternativeToken,
    EndReason,
    GenerationRequest,
    SamplingParams,
    StreamEnd,
    StreamError,
    TokenDelta,
    TokenEvent,
    TokenLogprob,
)

# With no number asked for; the engines' own default where they have one.
DEFAULT_MAX_TOKENS = 256
# Inputs that releases of the TensorRT-LLM ensemble name differently: ours -> older.
OLDER_NAMES = {"seed": "random_seed", "min_tokens": "min_length"}
# The same for TensorRT-LLM's llmapi model (all_models/llmapi): its names for what it takes.
LLMAPI_NAMES = {
    "stream": "streaming",
    "max_tokens": "sampling_param_max_tokens",
    "temperature": "sampling_param_temperature",
    "top_k": "sampling_param_top_k",
    "top_p": "sampling_param_top_p",
    "seed": "sampling_param_seed",
    "stop_words": "sampling_param_stop",
    "presence_penalty": "sampling_param_presence_penalty",
    "frequency_penalty": "sampling_param_frequency_penalty",
    "exclude_input_in_output": "sampling_param_exclude_input_from_output",
}
# Their value means nothing is asked for; sent where the model declares them.
NEUTRAL: dict[str, Any] = {
    "bad_words": [""],
    "stop_words": [""],
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "min_tokens": 0,
    "end_id": -1,
    "return_log_probs": False,
    "num_log_probs": 0,
    "exclude_input_in_output": True,
    "beam_width": 1,
    "num_return_sequences": 1,
}
# Only the model of this project takes these values as "nothing"; others are spared them.
OURS_ALONE = ("end_id", "num_log_probs")
# How special tokens look in a rendered prompt; a tokenizer that decodes a prompt leaves them out.
SPECIAL = re.compile(r"<\|[^|<>\s]{1,60}\|>|</?s>|<(?:bos|eos|pad|start_of_turn|end_of_turn)>")
# The request parameter of the llama.cpp model (docs/llamacpp-model.md).
PRIORITY_PARAMETER = "priority_level"


@dataclass(frozen=True, slots=True)
class ModelInterface:
    """What a model declares: {input: datatype} and the names of its outputs. Datatypes as Triton's metadata.

    `batched` is false where its tensors have no batch dimension.
    """

    inputs: Mapping[str, str]
    outputs: frozenset[str]
    batched: bool = True

    @property
    def is_ours(self) -> bool:
        """Whether it is the llama.cpp model of this project: it tells its finish reason and counts its tokens."""
        return {"finish_reason", "token_count"} <= self.outputs

    @property
    def is_llmapi(self) -> bool:
        """Whether it is TensorRT-LLM's llmapi model: each message has the whole text so far."""
        return "sampling_param_max_tokens" in self.inputs


def read_interface(
    inputs: Iterable[tuple[str, str, Sequence[int]]], outputs: Iterable[str]
) -> ModelInterface:
    """Of (name, datatype, shape) of the inputs in a model's metadata, and the names of its outputs."""
    found = list(inputs)
    # With a batch dimension a text is [-1, 1], without [-1] or [1].
    batched = all(len(shape) != 1 for name, _type, shape in found if name == "text_input")
    return ModelInterface({name: kind for name, kind, _shape in found}, frozenset(outputs), batched)


def input_of(name: str, interface: ModelInterface) -> str:
    """The model's own name of one of our inputs; empty where it has none for it."""
    for known in (name, OLDER_NAMES.get(name, ""), LLMAPI_NAMES.get(name, "")):
        if known in interface.inputs:
            return known
    return ""


def tensors(request: GenerationRequest, interface: ModelInterface) -> dict[str, Any]:
    """{input name: value or list of values} for every declared input that has a value.

    Raises UnsupportedParameter when a parameter is set that the model declares no input for.
    """
    explicit = _explicit(request.params)
    values = NEUTRAL | _choice(request.params) | explicit
    values |= {"text_input": request.prompt, "stream": True}
    if not interface.is_ours:
        # Ours takes what is left of its slot where that is less than its default; the ensemble needs a number.
        values.setdefault("max_tokens", DEFAULT_MAX_TOKENS)
    if interface.is_llmapi:
        values |= _llmapi_values(values)
    found: dict[str, Any] = {}
    for name, value in values.items():
        declared = input_of(name, interface)
        if not declared:
            if name in explicit:
                raise UnsupportedParameter(name)
        elif value is not None and (name not in OURS_ALONE or interface.is_ours):
            found[declared] = value
    return found


def priority(request: GenerationRequest, interface: ModelInterface) -> dict[str, int]:
    """Request parameters (no tensors) that carry the class to the model's own queue; empty where none is asked for.

    Only the model of this project reads one; Triton's queue takes `priority`, which gRPC alone carries.
    """
    if request.priority is None or not interface.is_ours:
        return {}
    return {PRIORITY_PARAMETER: request.priority}


class UnsupportedParameter(ValueError):
    """A parameter is asked for that the model has no input for; the argument is the input's name."""


def _llmapi_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the llmapi model understands otherwise. It tells why an answer ended only where it is asked to."""
    return {
        # An empty word would end every answer at once; this model is not batched by Triton, so none may be sent.
        "stop_words": [word for word in values["stop_words"] if word] or None,
        "return_finish_reason": True,
    }


def _explicit(params: SamplingParams) -> dict[str, Any]:
    """What the caller set, by input name."""
    names = ("max_tokens", "repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens")
    found: dict[str, Any] = {
        name: getattr(params, name) for name in names if getattr(params, name) is not None
    }
    if params.samples:
        chosen = _choice(params)
        for name in ("temperature", "top_k", "top_p", "seed"):
            if getattr(params, name) is not None:
                found[name] = chosen[name]
    for name, words in (("stop_words", params.stop), ("bad_words", params.bad_words)):
        if words:
            found[name] = list(words)
    if params.logprobs is not None:
        found["return_log_probs"] = True
    if params.logprobs:
        found["num_log_probs"] = params.logprobs
    return found


def _choice(params: SamplingParams) -> dict[str, Any]:
    """TensorRT-LLM's way: top_k 1 is greedy; top_k 0 and top_p 1 draw from all tokens.

    Its seed is 0 until one is sent, which would give the same "random" answer every time.
    """
    if not params.samples:
        return {"temperature": 1.0, "top_k": 1, "top_p": 1.0, "seed": params.seed or 0}
    return {
        "temperature": 1.0 if params.temperature is None else params.temperature,
        "top_k": params.top_k or 0,
        "top_p": 1.0 if params.top_p is None else params.top_p,
        "seed": secrets.randbits(63) if params.seed is None else params.seed,
    }


@dataclass(frozen=True, slots=True)
class Message:
    """One message of an answer. Missing outputs are None; `final` is Triton's flag, null where none is carried.

    A text that is no UTF-8 by itself, because a character was cut over two messages, is bytes.
    """

    outputs: Mapping[str, Any] = field(default_factory=dict)
    final: bool | None = None
    error: str | None = None
    code: str = ""

    def text(self) -> str | bytes | None:
        """text_output, or None when the message has none (the end of a stream that closes separately)."""
        value = self.outputs.get("text_output")
        return value if value is None or isinstance(value, str | bytes) else str(value)

    def number(self, name: str) -> Any:
        """A numeric output or None."""
        return self.outputs.get(name)


def rules_of(
    prompt: str, interface: ModelInterface, accumulated: bool = False, stop: tuple[str, ...] = ()
) -> StreamRules:
    """How the text of a model with this interface is read.

    `accumulated`: its configuration says that each message has the whole text so far (the BLS model's
    accumulate_tokens). `stop` are words that end the text here, as the model has no input for them.
    """
    if interface.is_ours:
        # Our model drops end tokens by id and repeats nothing; a filter would cut answers that talk about markers.
        return StreamRules(end_markers=(), stop=stop)
    special = SPECIAL.findall(prompt)
    # Without a template an answer may begin with the very words of its prompt; most models can be told not to repeat.
    repeats = bool(special) or not input_of("exclude_input_in_output", interface)
    return StreamRules(
        accumulated=accumulated or interface.is_llmapi,
        echoes=echo_forms(prompt, special) if repeats else (),
        stop=stop,
    )


def fitted(
    request: GenerationRequest, interface: ModelInterface, accumulated: bool = False
) -> tuple[GenerationRequest, StreamRules | None]:
    """What a model has no input for but what can be had without one; the rules are null where its own do.

    Stop strings end the text here and close its stream. A temperature of 1 is how a model draws by itself.
    `accumulated`: see rules_of.
    """
    params, rules = request.params, None
    if accumulated:
        rules = rules_of(request.prompt, interface, accumulated=True)
    if params.stop and not input_of("stop_words", interface):
        rules = rules_of(request.prompt, interface, accumulated, stop=params.stop)
        params = dataclasses.replace(params, stop=())
    others = (params.top_k, params.top_p, params.seed)
    if params.temperature == 1.0 and others == (None, None, None) and not input_of("temperature", interface):
        params = dataclasses.replace(params, temperature=None)
    return dataclasses.replace(request, params=params), rules


class MessageReader:
    """Events out of messages. Feed them in order; nothing comes after the end, whatever the server still sends."""

    def __init__(
        self, request: GenerationRequest, interface: ModelInterface, rules: StreamRules | None = None
    ) -> None:
        if rules is None:
            # Our model drops end tokens by id; a text filter would cut answers that talk about markers.
            rules = rules_of(request.prompt, interface)
        self._raw = RawTextStream(rules.accumulated)
        self._text = TextStream(rules)
        self._counts = interface.is_ours
        self._request = request
        self._tokens = 0
        self._told: dict[str, Any] = {}
        self.ended = False

    def feed(self, message: Message, at: float) -> list[TokenEvent]:
        """The events of one message."""
        if self.ended:
            return []
        if message.error is not None:
            return self._fail(message, at)
        events: list[TokenEvent] = []
        text = message.text()
        if text is not None:
            events = self._delta(message, self._text.feed(self._raw.feed(text)), at)
        self._remember(message)
        if message.final or self._text.ended:
            events += self.finish(at)
        return events

    def finish(self, at: float) -> list[TokenEvent]:
        """The end: told by a flag, by the end of the body, or by a stop string that was met here."""
        if self.ended:
            return []
        self.ended = True
        left = self._raw.flush()
        rest = (self._text.feed(left) if left else "") + self._text.flush()
        events: list[TokenEvent] = [TokenDelta(rest, 0 if self._counts else None, at)] if rest else []
        completion = self._told.get("completion_tokens")
        end = StreamEnd(
            reason=self._reason(completion),
            at=at,
            prompt_tokens=self._told.get("prompt_tokens"),
            completion_tokens=completion
            if completion is not None
            else (self._tokens if self._counts else None),
            cached_tokens=self._told.get("cached_tokens"),
            queue_seconds=self._told.get("queue_seconds"),
        )
        return [*events, end]

    def break_off(self, error: StreamError, at: float) -> list[TokenEvent]:
        """The end by an error of the way here: a timeout, a lost connection."""
        return self._end_with(error, at)

    def _delta(self, message: Message, text: str, at: float) -> list[TokenEvent]:
        tokens = int(message.number("token_count") or 0) if self._counts else None
        self._tokens += tokens or 0
        logprobs = read_logprobs(message.outputs.get("top_log_probs"))
        if not text and not tokens and not logprobs:
            return []
        return [TokenDelta(text, tokens, at, logprobs)]

    def _remember(self, message: Message) -> None:
        for name in ("finish_reason", "prompt_tokens", "completion_tokens", "cached_tokens", "queue_seconds"):
            value = message.outputs.get(name)
            if value is not None:
                self._told[name] = value

    def _reason(self, completion: int | None) -> EndReason:
        told = self._told.get("finish_reason")
        if told in ("stop", "length"):
            return "stop" if told == "stop" else "length"
        # TensorRT-LLM's ensemble names no reason: it is the length when every token that was allowed came.
        most = self._request.params.max_tokens or DEFAULT_MAX_TOKENS
        return "length" if completion is not None and completion >= most and not self._text.ended else "stop"

    def _fail(self, message: Message, at: float) -> list[TokenEvent]:
        if message.code == "CANCELLED":
            self.ended = True
            return [StreamEnd("cancelled", at, completion_tokens=self._tokens if self._counts else None)]
        return self._end_with(triton_errors.explain(message.code, message.error or ""), at)

    def _end_with(self, error: StreamError, at: float) -> list[TokenEvent]:
        if self.ended:
            return []
        self.ended = True
        completion = self._tokens if self._counts else None
        return [StreamEnd("error", at, completion_tokens=completion, error=error)]


def read_logprobs(value: Any) -> tuple[TokenLogprob, ...] | None:
    """The JSON of output top_log_probs (docs/llamacpp-model.md); None where there is none."""
    if not value:
        return None
    return tuple(
        TokenLogprob(_alternative(one), tuple(_alternative(other) for other in one.get("top_logprobs", ())))
        for one in json.loads(value)
    )


def _alternative(value: Mapping[str, Any]) -> AlternativeToken:
    return AlternativeToken(
        value["token"], tuple(value.get("bytes") or ()), value.get("logprob"), value.get("id")
    )


def unsupported(error: UnsupportedParameter) -> StreamError:
    """The error of a parameter that the model has no input for."""
    return StreamError(
        "unsupported_parameter",
        _("This model has no input %(name)s.") % {"name": error.args[0]},
        _("Leave the parameter out, or ask a deployment whose engine has it."),
    )
