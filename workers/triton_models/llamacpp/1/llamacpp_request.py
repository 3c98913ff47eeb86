"""One generation request, read out of a Triton request's tensors and checked; no Triton in here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llamacpp_contract import (
    DEFAULT_PRIORITY,
    INPUTS,
    PRIORITY_LEVELS,
    PRIORITY_PARAMETER,
    SPECIAL_PARAMETER,
    TOKENIZE_PARAMETER,
    UNSUPPORTED_INPUTS,
    Tensor,
)
from llamacpp_errors import InvalidRequest

# A prompt of more bytes is refused unread: no context that fits on a machine holds it.
MAX_PROMPT_BYTES = 16 * 1024 * 1024
MAX_WORDS = 64
MAX_WORD_BYTES = 1024
# The most that the OpenAI interface of TensorRT-LLM and vLLM offers.
MAX_LOG_PROBS = 20
DECLARED: dict[str, Tensor] = {tensor.name: tensor for tensor in INPUTS}


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. `greedy` follows TensorRT-LLM: top_k 1, or both top_k and top_p 0."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0.0 or self.top_k == 1 or (self.top_k == 0 and self.top_p <= 0.0)

    @property
    def penalised(self) -> bool:
        """Whether tokens already seen count against themselves."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What one caller asks for. `end_id` None means the model's own end tokens only.

    `priority` is the class in which it waits, 1 the most urgent.
    """

    text_input: str
    max_tokens: int
    max_tokens_given: bool = True
    stream: bool = False
    sampling: Sampling = Sampling()
    stop_words: tuple[str, ...] = ()
    bad_words: tuple[str, ...] = ()
    min_tokens: int = 0
    end_id: int | None = None
    return_log_probs: bool = False
    num_log_probs: int = 0
    priority: int = DEFAULT_PRIORITY


def read_request(inputs: Mapping[str, Any], parameters: Mapping[str, Any] | None = None) -> GenerationRequest:
    """Read {input name: numpy array}; `parameters` are the request's parameters by name.

    Raises InvalidRequest naming the field, also for an input of the ensemble that this engine has nothing for:
    nothing that would change the answer is ignored.
    """
    parameters = parameters or {}
    for name in parameters:
        if name in UNSUPPORTED_INPUTS:
            raise InvalidRequest(name, "this engine cannot do that; leave it out.")
    values = {name: _values(name, array) for name, array in inputs.items()}
    _refuse_fixed(values)
    sampling = Sampling(
        temperature=_real(values, "temperature", 0.0, 100.0),
        top_k=_whole(values, "top_k", 0, 2**31 - 1),
        top_p=_real(values, "top_p", 0.0, 1.0),
        seed=_whole(values, "seed", 0, 2**64 - 1),
        repetition_penalty=_real(values, "repetition_penalty", 0.01, 100.0),
        presence_penalty=_real(values, "presence_penalty", -100.0, 100.0),
        frequency_penalty=_real(values, "frequency_penalty", -100.0, 100.0),
    )
    max_tokens = _whole(values, "max_tokens", 1, 2**31 - 1)
    min_tokens = _whole(values, "min_tokens", 0, 2**31 - 1)
    if min_tokens > max_tokens:
        raise InvalidRequest("min_tokens", f"{min_tokens} is more than max_tokens {max_tokens}.")
    num_log_probs = _whole(values, "num_log_probs", 0, MAX_LOG_PROBS)
    return_log_probs = bool(_one(values, "return_log_probs"))
    if num_log_probs and not return_log_probs:
        raise InvalidRequest("num_log_probs", "alternatives need return_log_probs true.")
    end_id = _whole(values, "end_id", -1, 2**31 - 1)
    return GenerationRequest(
        text_input=_prompt(values),
        max_tokens=max_tokens,
        max_tokens_given="max_tokens" in values,
        stream=bool(_one(values, "stream")),
        sampling=sampling,
        stop_words=_words(values, "stop_words"),
        bad_words=_words(values, "bad_words"),
        min_tokens=min_tokens,
        end_id=None if end_id < 0 else end_id,
        return_log_probs=return_log_probs,
        num_log_probs=num_log_probs,
        priority=_priority(parameters.get(PRIORITY_PARAMETER, DEFAULT_PRIORITY)),
    )


@dataclass(frozen=True, slots=True)
class TokenizeRequest:
    """A prompt whose tokens are asked for. `special` adds what the model wants at a prompt's beginning."""

    text_input: str
    special: bool


def read_tokenize(inputs: Mapping[str, Any], parameters: Mapping[str, Any]) -> TokenizeRequest | None:
    """The request as one for tokens alone; None where it wants an answer. Raises InvalidRequest."""
    if not _flag(parameters, TOKENIZE_PARAMETER, default=False):
        return None
    special = _flag(parameters, SPECIAL_PARAMETER, default=True)
    return TokenizeRequest(_prompt({name: _values(name, array) for name, array in inputs.items()}), special)


def _flag(parameters: Mapping[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise InvalidRequest(name, f"{value!r} is neither true nor false.")
    return value


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= PRIORITY_LEVELS:
        raise InvalidRequest(
            PRIORITY_PARAMETER, f"{value!r} is no class; 1 (urgent) to {PRIORITY_LEVELS} are possible."
        )
    return value


def _values(name: str, array: Any) -> list[Any]:
    """The values of a tensor without its batch dimension."""
    if name not in DECLARED:
        raise InvalidRequest(name, f"it is no input of this model; the inputs are {', '.join(DECLARED)}.")
    shape = getattr(array, "shape", None)
    if shape is not None and len(shape) > 1 and shape[0] != 1:
        raise InvalidRequest(
            name, f"one prompt per request, not a batch of {shape[0]}; send {shape[0]} requests."
        )
    flat = array.reshape(-1).tolist() if shape is not None else list(array)
    if DECLARED[name].dims == (1,) and len(flat) != 1:
        raise InvalidRequest(name, f"one value is expected, {len(flat)} came.")
    return flat


def _one(values: Mapping[str, list[Any]], name: str) -> Any:
    return values[name][0] if name in values else DECLARED[name].default


def _whole(values: Mapping[str, list[Any]], name: str, least: int, most: int) -> int:
    value = int(_one(values, name))
    if not least <= value <= most:
        raise InvalidRequest(name, f"{value} is not from {least} to {most}.")
    return value


def _real(values: Mapping[str, list[Any]], name: str, least: float, most: float) -> float:
    value = float(_one(values, name))
    if not (math.isfinite(value) and least <= value <= most):
        raise InvalidRequest(name, f"{value} is not from {least:g} to {most:g}.")
    return value


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(name, f"it is no UTF-8 text (byte {error.start}).") from error


def _prompt(values: Mapping[str, list[Any]]) -> str:
    if "text_input" not in values:
        raise InvalidRequest("text_input", "it is missing; send the prompt.")
    raw = values["text_input"][0]
    if len(raw) > MAX_PROMPT_BYTES:
        raise InvalidRequest(
            "text_input", f"{len(raw):,} bytes are too many; at most {MAX_PROMPT_BYTES:,} are read."
        )
    text = _text("text_input", raw)
    if not text:
        raise InvalidRequest("text_input", "it is empty; send a prompt.")
    return text


def _words(values: Mapping[str, list[Any]], name: str) -> tuple[str, ...]:
    """The words of a list; empty ones mean nothing, so that a default of one empty word can be sent."""
    words = tuple(word for word in (_text(name, value) for value in values.get(name, ())) if word)
    if len(words) > MAX_WORDS:
        raise InvalidRequest(name, f"{len(words)} words are too many; at most {MAX_WORDS} are taken.")
    for word in words:
        if len(word.encode()) > MAX_WORD_BYTES:
            raise InvalidRequest(
                name, f"a word of {len(word.encode())} bytes is too long; at most {MAX_WORD_BYTES}."
            )
    return words


def _refuse_fixed(values: Mapping[str, list[Any]]) -> None:
    """Inputs that exist for callers that send every input of the ensemble: one value of each is possible here."""
    for name in ("beam_width", "num_return_sequences"):
        if int(_one(values, name)) != 1:
            raise InvalidRequest(name, "this engine gives one answer without beam search; use 1.")
    if not _one(values, "exclude_input_in_output"):
        raise InvalidRequest(
            "exclude_input_in_output", "the prompt is never repeated in the answer; use true."
        )
