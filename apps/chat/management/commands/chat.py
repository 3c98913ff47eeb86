"""`manage.py chat --deployment NAME "prompt"`: one answer in the terminal, through the same parts as the pages.

`--external NAME` asks an external deployment of the gateway.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils.translation import gettext as _

from apps.chat import external, targets
from apps.chat.params import require_supported, validate
from apps.core import ids
from apps.core.exceptions import InflightError, InvalidInput
from apps.gateway.models import ExternalDeployment
from apps.serving.domain.priority_reach import LEVELS
from apps.streaming import answers, capabilities, prompts
from apps.streaming.answers import Answer
from apps.streaming.selectors import pick_endpoint
from apps.streaming.token_source import GenerationRequest, SamplingParams, TokenSource
from apps.streaming.triton_grpc import TritonGrpcSource

INTERRUPTED = 130


class Command(BaseCommand):
    """Asks a deployment one question. Without sampling flags the answer is greedy and so the same every time."""

    help = "Ask a deployment one question and stream its answer. Exit 0 when it came, 1 when it was refused."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("prompt", help="the question; - reads it from standard input")
        engine = parser.add_mutually_exclusive_group(required=True)
        engine.add_argument("--deployment", help="public name")
        engine.add_argument("--external", help="name of an external deployment of the gateway")
        parser.add_argument("--system", default="", help="system prompt")
        parser.add_argument("--max-tokens", type=int, help="most new tokens")
        parser.add_argument("--temperature", type=float, help="above 0 draws at random")
        parser.add_argument(
            "--top-p", type=float, help="draw among the likeliest tokens of this total probability"
        )
        parser.add_argument("--top-k", type=int, help="draw among so many of the likeliest tokens")
        parser.add_argument("--seed", type=int, help="makes a random answer repeatable")
        parser.add_argument(
            "--stop", action="append", default=[], help="end before this text; may be repeated"
        )
        parser.add_argument(
            "--priority", choices=sorted(LEVELS), help="class in which the request waits; default: normal"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        """Stream, then print the figures."""
        try:
            source, request = prepare(options)
            show = None if options["json"] else self._show
            found = asyncio.run(answers.answer(source, request, show))
        except InflightError as error:
            self._refuse(error.as_dict(), options["json"])
        except KeyboardInterrupt:
            self.stderr.write(_("Stopped."))
            sys.exit(INTERRUPTED)
        else:
            self._print(found, options)

    def _show(self, text: str) -> None:
        self.stdout.write(text, ending="")
        self.stdout.flush()

    def _print(self, found: Answer, options: dict[str, Any]) -> None:
        error = found.end.error
        if options["json"]:
            self.stdout.write(json.dumps(as_dict(found, options), ensure_ascii=False))
        elif error is None:
            self.stdout.write("\n\n" + figures(found))
        if error is not None:
            if not options["json"]:
                self.stderr.write(f"\n{error.sentence}\n{error.remedy}")
            sys.exit(1)

    def _refuse(self, error: dict[str, Any], as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps({"error": error}, ensure_ascii=False))
        else:
            self.stderr.write(f"{error['message']}\n{error['remedy']}".rstrip())
        sys.exit(1)


def prepare(options: dict[str, Any]) -> tuple[TokenSource, GenerationRequest]:
    """The way to the server, and the request. Raises InflightError for what is refused before it is sent."""
    question = sys.stdin.read() if options["prompt"] == "-" else options["prompt"]
    if not question.strip():
        raise InvalidInput(
            "prompt_empty", _("The question is empty."), field="prompt", remedy=_("Write a question.")
        )
    names = ("max_tokens", "temperature", "top_p", "top_k", "seed")
    given = {name: options[name] for name in names if options[name] is not None}
    priority = {"priority": options["priority"]} if options["priority"] else {}
    checked = validate({**given, **priority, "stop_words": options["stop"]})
    target = targets.named(options["deployment"], options["external"])
    messages = prompts.conversation(question, system=options["system"])
    if isinstance(target, ExternalDeployment):
        asked = given | priority | ({"stop_words": options["stop"]} if options["stop"] else {})
        require_supported(target.name, targets.params_of(target), asked)
        return external.source_of(target, messages, asked), GenerationRequest("", request_id=ids.short_id(12))
    endpoint, known = pick_endpoint(target), capabilities.of(target)
    checkpoint = prompts.serving_checkpoint(target)
    prompt = prompts.for_engine(checkpoint, prompts.render(checkpoint, messages), known.kind)
    params = SamplingParams(stop=tuple(checked.stop_words), **given)
    level = LEVELS.get(options["priority"] or "")
    source = TritonGrpcSource(endpoint, accumulated=known.accumulated)
    return source, GenerationRequest(prompt, params, ids.short_id(12), level)


def figures(found: Answer) -> str:
    """One line: time to first token, tokens, speed."""
    timings, end = found.timings, found.end
    parts = [
        _("first token after %(ms)s ms") % {"ms": _number(timings.ttft_ms)},
        _("%(tokens)s tokens (%(reason)s)")
        % {"tokens": _number(end.completion_tokens), "reason": end.reason},
        _("%(speed)s tokens/s") % {"speed": _number(timings.tokens_per_second, 1)},
        _("prompt of %(tokens)s tokens, %(cached)s from the cache")
        % {"tokens": _number(end.prompt_tokens), "cached": _number(end.cached_tokens)},
    ]
    return " · ".join(parts)


def as_dict(found: Answer, options: dict[str, Any]) -> dict[str, Any]:
    """The object that --json prints; what is not known is null."""
    end, timings = found.end, found.timings
    error = end.error
    return {
        "deployment": options["deployment"],
        "external": options["external"],
        "answer": found.text,
        "finish_reason": end.reason,
        "tokens": end.completion_tokens,
        "prompt_tokens": end.prompt_tokens,
        "cached_tokens": end.cached_tokens,
        "ttft_ms": timings.ttft_ms,
        "tokens_per_second": timings.tokens_per_second,
        "itl_p50_ms": timings.itl_p50_ms,
        "itl_p99_ms": timings.itl_p99_ms,
        "duration_ms": timings.duration_ms,
        "queue_ms": None if end.queue_seconds is None else end.queue_seconds * 1000,
        "error": None
        if error is None
        else {"code": error.reason, "message": error.sentence, "remedy": error.remedy},
    }


def _number(value: float | None, digits: int = 0) -> str:
    return "?" if value is None else f"{value:.{digits}f}"
