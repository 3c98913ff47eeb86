"""Chat templates: the checkpoint's own Jinja text, rendered in a sandbox with bounds.

The helpers are those that Hugging Face's tokenizers give to templates. A template is a stranger's program: it may
not change anything, not write more than MAX_OUTPUT letters and not run for more than MAX_SECONDS.
"""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError

from apps.core.exceptions import InvalidInput
from apps.streaming.domain.template_sandbox import (
    MAX_OUTPUT,
    MAX_SECONDS,
    TemplateTooLarge,
    TemplateTooSlow,
    environment,
    render_bounded,
)

Message = Mapping[str, Any]
MAX_TEMPLATE = 200_000
DEFAULT_NAME = "default"
REMEDY = "Give the checkpoint another chat template, or send the prompt without a template."


class TemplateFailure(InvalidInput):
    """The prompt cannot be rendered; `code` says why: template_missing, _broken, _refused, _too_large, _too_slow."""


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Texts of the tokens that templates name; empty where the model has none."""

    bos: str = ""
    eos: str = ""


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt and whether the tokenizer must add its BOS: it must not where the template printed it."""

    text: str
    add_bos: bool


class ChatTemplate:
    """One compiled template with its checkpoint's special tokens."""

    def __init__(self, source: str, special: SpecialTokens | None = None) -> None:
        """Raises TemplateFailure for an empty, an oversized and an unreadable template."""
        if not source.strip():
            raise _failure(
                "template_missing",
                "The checkpoint has no chat template, so a conversation cannot be written down for it.",
                "Register a checkpoint of an instruction-tuned model, or send a plain prompt.",
            )
        if len(source) > MAX_TEMPLATE:
            raise _failure(
                "template_too_large",
                f"The chat template has {len(source):,} letters; at most {MAX_TEMPLATE:,} are read.",
            )
        self._special = special or SpecialTokens()
        try:
            self._template = _compile(source)
        except TemplateSyntaxError as error:
            raise _failure(
                "template_broken", f"The chat template cannot be read: line {error.lineno}: {error.message}."
            ) from error
        except RecursionError as error:
            raise _failure("template_broken", "The chat template is nested too deeply to be read.") from error

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **more: Any,
    ) -> RenderedPrompt:
        """Write messages ({role, content, ...}) down as the model expects them.

        `more` are further variables that some templates know (enable_thinking, date_string). Raises TemplateFailure:
        template_refused with the template's own sentence (roles must alternate, no system prompt...), template_broken
        for an error inside, template_too_large and template_too_slow at the bounds.
        """
        variables = {
            "messages": [dict(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
            "tools": list(tools) if tools is not None else None,
            "bos_token": self._special.bos,
            "eos_token": self._special.eos,
            **more,
        }
        try:
            text = render_bounded(self._template, variables)
        except Refusal as error:
            raise _failure(
                "template_refused",
                f"The checkpoint's chat template refuses this conversation: {error}",
                "Change the messages as it says (often: no system prompt, or user and assistant in turn).",
            ) from error
        except TemplateTooLarge as error:
            raise _failure(
                "template_too_large", f"The prompt grows beyond {MAX_OUTPUT:,} letters."
            ) from error
        except TemplateTooSlow as error:
            raise _failure(
                "template_too_slow", f"The chat template did not end within {MAX_SECONDS:g} s."
            ) from error
        except SecurityError as error:
            raise _failure(
                "template_broken", f"The chat template does what a template may not do: {error}"
            ) from error
        except (
            TemplateError,
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
            RecursionError,
            MemoryError,
        ) as error:
            raise _failure(
                "template_broken", f"The chat template fails: {error or type(error).__name__}"
            ) from error
        return RenderedPrompt(one_bos(text, self._special.bos), needs_bos(text, self._special.bos))


class Refusal(TemplateError):
    """What raise_exception in a template raises."""


def needs_bos(rendered: str, bos: str) -> bool:
    """Whether the tokenizer must add BOS. Templates that print it and a tokenizer that adds it make two.

    For the preprocessing model of TensorRT-LLM this is its parameter add_special_tokens.
    """
    return not (bos and rendered.startswith(bos))


def one_bos(rendered: str, bos: str) -> str:
    """The prompt with at most one BOS at its beginning."""
    if bos:
        while rendered.startswith(bos + bos):
            rendered = rendered[len(bos) :]
    return rendered


def from_tokenizer_config(config: Mapping[str, Any], name: str = DEFAULT_NAME) -> ChatTemplate:
    """The template of a tokenizer_config.json; `name` chooses among several. Raises TemplateFailure."""
    found = config.get("chat_template")
    if isinstance(found, list):
        found = choose({str(one.get("name", "")): str(one.get("template", "")) for one in found}, name)
    special = SpecialTokens(_token_text(config.get("bos_token")), _token_text(config.get("eos_token")))
    return ChatTemplate(found if isinstance(found, str) else "", special)


def from_gguf_metadata(
    metadata: Mapping[str, Any], special: SpecialTokens, name: str = DEFAULT_NAME
) -> ChatTemplate:
    """The template of a GGUF's metadata: tokenizer.chat_template, or tokenizer.chat_template.NAME beside it."""
    prefix = "tokenizer.chat_template"
    named = {
        key.removeprefix(f"{prefix}."): str(value)
        for key, value in metadata.items()
        if key.startswith(f"{prefix}.")
    }
    if metadata.get(prefix):
        named.setdefault(DEFAULT_NAME, str(metadata[prefix]))
    return ChatTemplate(choose(named, name), special)


def choose(named: Mapping[str, str], name: str) -> str:
    """One of several templates; a single one serves any name. Raises TemplateFailure naming those that exist."""
    if name in named:
        return named[name]
    if name == DEFAULT_NAME and len(named) <= 1:
        return next(iter(named.values()), "")
    raise _failure(
        "template_missing",
        f"The checkpoint has no chat template named {name!r}; it has {', '.join(sorted(named)) or 'none'}.",
        "Choose one of these.",
    )


def _token_text(value: Any) -> str:
    """A token of tokenizer_config.json: its text, or an object that holds it."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else ""


@functools.lru_cache(maxsize=64)
def _compile(source: str) -> jinja2.Template:
    compiler = environment()
    compiler.filters["tojson"] = _tojson
    compiler.globals["raise_exception"] = _raise_exception
    compiler.globals["strftime_now"] = _strftime_now
    return compiler.from_string(source)


def _raise_exception(message: str) -> None:
    raise Refusal(str(message))


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().astimezone().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """As tokenizers have it: no HTML escapes, letters as they are."""
    if indent is not None and not 0 <= indent <= 16:
        raise ValueError("tojson takes an indent from 0 to 16")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _failure(code: str, sentence: str, remedy: str = REMEDY) -> TemplateFailure:
    return TemplateFailure(code, sentence, field="chat_template", remedy=remedy)
