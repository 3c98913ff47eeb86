"""Bodies of requests, read strictly: OpenAI's fields with their types and ranges, and a few that engines here have.

What OpenAI's API takes and no engine here has is accepted where ignoring it changes nothing in the answer, and
refused by name where it would. A field that nobody knows is refused, as OpenAI does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import orjson
from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apps.gateway.errors import ApiError, invalid
from apps.streaming.token_source import SamplingParams

MAX_MESSAGES = 4_096
MAX_TOOLS = 128
MAX_DEPTH = 64
MAX_NUMBER = 2**31 - 1

Request = TypeVar("Request", bound=BaseModel)
Text = Annotated[str, Field(max_length=8_000_000)]
Word = Annotated[str, Field(max_length=1_000)]
Penalty = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]


class StreamOptions(BaseModel):
    """What a stream carries besides its text."""

    model_config = ConfigDict(strict=True, extra="ignore")

    include_usage: bool = False


class _Common(BaseModel):
    """What chat and completions share."""

    model_config = ConfigDict(strict=True, extra="forbid", protected_namespaces=())

    model: Annotated[str, Field(min_length=1, max_length=200)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1, le=MAX_NUMBER)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    n: int | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Word | list[Word] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Any] | None = None
    user: str | None = None
    # Engines here have these; OpenAI's API does not.
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=MAX_NUMBER)] | None = None
    bad_words: Annotated[list[Word], Field(max_length=16)] | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings as a tuple, empty ones left out."""
        words = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(word for word in words if word)

    @property
    def streams(self) -> bool:
        """Whether the answer is asked for as events."""
        return bool(self.stream)

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with its token counts."""
        return bool(self.stream and self.stream_options and self.stream_options.include_usage)

    def sampling(self, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
        """In the names of apps.streaming."""
        # OpenAI's seed may be negative; engines take an unsigned one.
        seed = None if self.seed is None else self.seed % 2**63
        # OpenAI samples by default; apps.streaming takes nothing set as greedy.
        chosen = (self.temperature, self.top_p, self.top_k, seed)
        temperature = 1.0 if all(value is None for value in chosen) else self.temperature
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            seed=seed,
            stop=self.stops,
            bad_words=tuple(self.bad_words or ()),
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty or None,
            frequency_penalty=self.frequency_penalty or None,
            min_tokens=self.min_tokens or None,
            logprobs=logprobs,
        )


class JsonSchema(BaseModel):
    """A named schema that an answer shall keep to."""

    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=())

    name: Annotated[str, Field(min_length=1, max_length=64)]
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(BaseModel):
    """text (the default), json_object or json_schema."""

    model_config = ConfigDict(strict=True, extra="ignore")

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class ChatRequest(_Common):
    """Body of POST /v1/chat/completions."""

    messages: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Annotated[int, Field(ge=1, le=MAX_NUMBER)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[dict[str, Any]], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    # Variables that some templates know, as enable_thinking; vLLM's name.
    chat_template_kwargs: dict[str, Any] | None = None
    # Taken and without effect here.
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    modalities: list[str] | None = None
    prediction: dict[str, Any] | None = None
    # Refused below, by name, where they are set.
    audio: Any = None
    functions: Any = None
    function_call: Any = None
    web_search_options: Any = None

    @property
    def wanted_tokens(self) -> int | None:
        """How many tokens the answer may have; null where nobody said."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def wanted_logprobs(self) -> int | None:
        """Alternatives with each token, null for no log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(_Common):
    """Body of POST /v1/completions."""

    prompt: Text | list[Any]
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None

    @property
    def text(self) -> str:
        """The one prompt."""
        return self.prompt if isinstance(self.prompt, str) else str(self.prompt[0])

    @property
    def wanted_tokens(self) -> int:
        """How many tokens the answer may have; OpenAI's own default where nobody said."""
        return 16 if self.max_tokens is None else self.max_tokens

    @property
    def wanted_logprobs(self) -> int | None:
        """Alternatives with each token, null for no log-probabilities."""
        return self.logprobs


class TokenizeRequest(BaseModel):
    """Body of POST /tokenize: a prompt, or messages that the model's chat template writes down.

    `add_special_tokens` left out means what the engine does with a prompt by itself.
    """

    model_config = ConfigDict(strict=True, extra="forbid", protected_namespaces=())

    model: Annotated[str, Field(min_length=1, max_length=200)]
    prompt: Text | None = None
    messages: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_MESSAGES)] | None = None
    add_generation_prompt: bool = True
    add_special_tokens: bool | None = None
    tools: Annotated[list[dict[str, Any]], Field(max_length=MAX_TOOLS)] | None = None


def read_json(body: bytes) -> dict[str, Any]:
    """The JSON object of a body. Raises ApiError."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        text = _("We could not parse the JSON body of your request: %(problem)s.") % {"problem": error}
        raise invalid(text, code="invalid_json") from error
    if not isinstance(found, dict):
        raise invalid(_("The body of the request must be a JSON object."), code="invalid_json")
    # A flat body cannot be deep; only one with many brackets is walked.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _depth(found) > MAX_DEPTH:
        raise invalid(
            _("The body is nested deeper than %(most)d levels.") % {"most": MAX_DEPTH}, code="invalid_json"
        )
    return found


def read_chat(data: Mapping[str, Any]) -> ChatRequest:
    """Check a chat request. Raises ApiError naming the first field at fault."""
    request = _validated(ChatRequest, data)
    _check_common(request)
    for name in ("audio", "functions", "function_call", "web_search_options", "prediction"):
        if getattr(request, name) is not None:
            raise _unsupported(name)
    if request.modalities not in (None, [], ["text"]):
        raise _unsupported("modalities")
    if request.top_logprobs and not request.logprobs:
        raise invalid(_("top_logprobs needs logprobs to be true."), "top_logprobs")
    _check_tool_choice(request)
    return request


def read_completion(data: Mapping[str, Any]) -> CompletionRequest:
    """Check a completion request. Raises ApiError naming the first field at fault."""
    request = _validated(CompletionRequest, data)
    _check_common(request)
    one = [request.prompt] if isinstance(request.prompt, str) else request.prompt
    if len(one) != 1 or not isinstance(one[0], str):
        raise invalid(
            _("prompt must be one text here: send one request for each prompt, and no token ids."), "prompt"
        )
    if not request.text:
        raise invalid(_("prompt is empty."), "prompt")
    if request.echo:
        raise _unsupported("echo")
    if request.best_of not in (None, 1):
        raise invalid(_("best_of must be 1: one answer is generated for each request."), "best_of")
    if request.suffix:
        raise _unsupported("suffix")
    return request


def read_tokenize(data: Mapping[str, Any]) -> TokenizeRequest:
    """Check a tokenize request. Raises ApiError naming the first field at fault."""
    request = _validated(TokenizeRequest, data)
    if (request.prompt is None) == (request.messages is None):
        raise invalid(_("Send either prompt or messages."), "prompt")
    return request


def plain_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages as chat templates take them: roles checked, text parts joined. Raises ApiError naming the place."""
    return [_plain_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _plain_message(message: dict[str, Any], where: str) -> dict[str, Any]:
    role = message.get("role")
    if role not in ("system", "developer", "user", "assistant", "tool", "function"):
        text = _("%(where)s must be one of system, developer, user, assistant and tool.")
        raise invalid(text % {"where": f"{where}.role"}, f"{where}.role")
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(_part(part, f"{where}.content[{index}]") for index, part in enumerate(content))
    elif content is None and (role == "assistant" and (message.get("tool_calls") or "content" in message)):
        content = ""
    elif not isinstance(content, str):
        text = _("%(where)s must be a text or a list of parts.")
        raise invalid(text % {"where": f"{where}.content"}, f"{where}.content")
    # Templates know `system`; `developer` is OpenAI's newer name of it.
    return {**message, "role": "system" if role == "developer" else role, "content": content}


def _part(part: Any, where: str) -> str:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        text: str = part["text"]
        return text
    kind = part.get("type") if isinstance(part, dict) else None
    sentence = _("%(where)s: only parts of type text are taken, not %(kind)s.")
    raise invalid(sentence % {"where": where, "kind": kind}, where, "unsupported_content")


def _check_common(request: _Common) -> None:
    if request.n not in (None, 1):
        text = _("n must be 1: one answer is generated for each request.")
        raise invalid(text, "n", "unsupported_parameter")
    if isinstance(request.stop, list) and len(request.stop) > 4:
        raise invalid(_("stop takes up to 4 texts."), "stop")
    if request.logit_bias:
        raise _unsupported("logit_bias")
    if request.stream_options is not None and not request.stream:
        raise invalid(_("stream_options is only taken with stream: true."), "stream_options")


def _check_tool_choice(request: ChatRequest) -> None:
    choice = request.tool_choice
    if choice is None or choice in ("none", "auto"):
        return
    if not request.tools:
        raise invalid(_("tool_choice is only taken with tools."), "tool_choice")
    raise invalid(
        _("tool_choice can be auto or none: no engine here can be made to call a tool."),
        "tool_choice",
        "unsupported_parameter",
    )


def _unsupported(name: str) -> ApiError:
    text = _("%(name)s is not supported here. Leave it out.") % {"name": name}
    return invalid(text, name, "unsupported_parameter")


def _validated(kind: type[Request], data: Mapping[str, Any]) -> Request:
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise _of_validation(error) from None


def _of_validation(error: ValidationError) -> ApiError:
    problem = error.errors(include_url=False, include_input=False)[0]
    # A union's branch is no part of the field's name.
    place = [part for part in problem["loc"] if isinstance(part, int) or part.isidentifier()]
    field = ".".join(str(part) for part in place)
    if problem["type"] == "extra_forbidden":
        text = _("Unrecognized request argument supplied: %(name)s")
        return invalid(text % {"name": field}, field, "unknown_parameter")
    if problem["type"] == "missing":
        text = _("Missing required parameter: '%(name)s'.") % {"name": field}
        return invalid(text, field, "missing_required_parameter")
    text = _("Invalid value for '%(name)s': %(problem)s.") % {"name": field, "problem": problem["msg"]}
    return invalid(text, field, "invalid_value")


def _depth(value: Any) -> int:
    """Nesting of lists and objects, without recursion."""
    deepest, level = 0, [value]
    while level:
        deepest += 1
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return deepest
