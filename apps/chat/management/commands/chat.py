"""`manage.py chat --deployment NAME "prompt"`: one answer in the terminal, through the same parts as the pages."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils.translation import gettext as _

from apps.chat.params import validate
from apps.core import ids
from apps.core.exceptions import InflightError, InvalidInput
from apps.serving.domain.priority_reach import LEVELS
from apps.serving.selectors import deployment as find_deployment
from apps.streaming import answers, prompts
from apps.streaming.answers import Answer
from apps.streaming.selectors import pick_endpoint
from apps.streaming.token_source import Endpoint, GenerationRequest, SamplingParams
from apps.streaming.triton_grpc import TritonGrpcSource

INTERRUPTED = 130


class Command(BaseCommand):
    """Asks a deployment one question. Without sampling flags the answer is greedy and so the same every time."""

    help = "Ask a deployment one question and stream its answer. Exit 0 when it came, 1 when it was refused."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("prompt", help="the question; - reads it from standard input")
        parser.add_argument("--deployment", required=True, help="public name")
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
            endpoint, request = prepare(options)
            show = None if options["json"] else self._show
            found = asyncio.run(answers.answer(TritonGrpcSource(endpoint), request, show))
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
            self.stdout.write(json.dumps(as_dict(found, options["deployment"]), ensure_ascii=False))
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


def prepare(options: dict[str, Any]) -> tuple[Endpoint, GenerationRequest]:
    """The server to ask and the request. Raises InflightError for what is refused before it is sent."""
    question = sys.stdin.read() if options["prompt"] == "-" else options["prompt"]
    if not question.strip():
        raise InvalidInput(
            "prompt_empty", _("The question is empty."), field="prompt", remedy=_("Write a question.")
        )
    names = ("max_tokens", "temperature", "top_p", "top_k", "seed")
    given = {name: options[name] for name in names if options[name] is not None}
    checked = validate({**given, "stop_words": options["stop"]})
    row = find_deployment(options["deployment"])
    endpoint = pick_endpoint(row)
    messages = prompts.conversation(question, system=options["system"])
    prompt = prompts.render(prompts.serving_checkpoint(row), messages)
    params = SamplingParams(stop=tuple(checked.stop_words), **given)
    level = LEVELS.get(options["priority"] or "")
    return endpoint, GenerationRequest(prompt.text, params, ids.short_id(12), level)


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


def as_dict(found: Answer, deployment: str) -> dict[str, Any]:
    """The object that --json prints; what is not known is null."""
    end, timings = found.end, found.timings
    error = end.error
    return {
        "deployment": deployment,
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
