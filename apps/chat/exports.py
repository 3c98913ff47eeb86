"""Conversations and comparisons as JSON, for programs, and as Markdown, for people."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from django.utils.translation import gettext as _

from apps.chat import comparison_figures, comparisons, selectors, word_diff
from apps.chat.compared_models import Comparison
from apps.chat.models import Conversation
from apps.chat.serialize import conversation_dict, turn_dict
from apps.core.exceptions import InvalidInput

Format = Literal["json", "markdown"]
FORMATS: dict[str, tuple[str, str]] = {
    "json": ("application/json", "json"),
    "markdown": ("text/markdown", "md"),
}
# Raised where a reader of an older file would be misled.
CONVERSATION_FORMAT, COMPARISON_FORMAT = "inflight/conversation/v1", "inflight/comparison/v1"
_COLUMNS = (
    ("ttft_ms", "TTFT ms"),
    ("itl_p50_ms", "ITL p50 ms"),
    ("itl_p99_ms", "ITL p99 ms"),
    ("tokens_per_second", "tokens/s"),
    ("tokens", "tokens"),
    ("cached_tokens", "cached"),
    ("queue_ms", "queue ms"),
)


def export(target: Conversation | Comparison, wanted: str) -> str:
    """The text of a conversation or comparison in a format: json or markdown. Raises InvalidInput for another."""
    if wanted not in FORMATS:
        raise InvalidInput(
            "unknown_format",
            _("There is no format %(name)s.") % {"name": wanted[:40]},
            field="format",
            remedy=_("Use one of: %(names)s.") % {"names": ", ".join(FORMATS)},
        )
    if isinstance(target, Conversation):
        value = conversation_value(target)
        return _json(value) if wanted == "json" else conversation_markdown(value)
    value = comparison_value(target)
    return _json(value) if wanted == "json" else comparison_markdown(value)


def file_name(target: Conversation | Comparison, wanted: str) -> str:
    """What a download is called; letters that every file system takes."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", str(target)).strip("-").lower()[:60]
    return f"{target.kind}-{target.pk}{'-' if words else ''}{words}.{FORMATS[wanted][1]}"


def conversation_value(row: Conversation) -> dict[str, Any]:
    """A conversation with the turns of the branch that it shows."""
    shown = selectors.branch(row)
    turns = [turn_dict(each.turn, siblings=each.siblings) for each in shown]
    return {"format": CONVERSATION_FORMAT, **conversation_dict(row), "turns": turns}


def comparison_value(row: Comparison) -> dict[str, Any]:
    """A comparison with every answer, its figures, and how each differs from the first side's. Absent is null."""
    answers = comparisons.answers(row)
    differing = comparison_figures.differences(answers)
    figures = comparison_figures.summary(answers, differing)
    return {
        "format": COMPARISON_FORMAT,
        "id": row.pk,
        "title": row.title,
        "owner": row.owner.get_username(),
        "mode": row.mode,
        "chained": row.chained,
        "prompt_set": row.prompt_set.name if row.prompt_set else None,
        "system_prompt": row.system_prompt,
        "params": row.params,
        "created_at": row.created_at.timestamp(),
        "updated_at": row.updated_at.timestamp(),
        "sides": [
            {**side, "name": comparisons.side_name(side), "figures": figures[index].as_dict()}
            for index, side in enumerate(row.sides)
        ],
        "questions": [
            {
                "prompt": question["prompt"],
                "answers": [_answer(*pair) for pair in zip(answers[index], differing[index], strict=True)],
            }
            for index, question in enumerate(row.questions)
        ],
    }


def conversation_markdown(value: Mapping[str, Any]) -> str:
    """A conversation as a document."""
    lines = [f"# {_plain(value['title'] or _('Conversation'))}", ""]
    lines += [_("Deployment: %(name)s") % {"name": f"`{value['deployment'] or value['external']}`"}, ""]
    lines += _settings(value)
    for turn in value["turns"]:
        lines += [f"## {_('Question')}", "", *_block(turn["prompt"]), "", f"## {_('Answer')}", ""]
        lines += [*_block(turn["answer"]), "", _measured(turn), ""]
    return "\n".join(lines).rstrip() + "\n"


def comparison_markdown(value: Mapping[str, Any]) -> str:
    """A comparison as a document: timings first, then each question with its answers."""
    lines = [f"# {_plain(value['title'])}", ""]
    lines += _settings(value)
    lines += _table([(side["name"], side["figures"]) for side in value["sides"]])
    for question in value["questions"]:
        lines += ["", f"## {_('Question')}", "", *_block(question["prompt"])]
        for side, answer in zip(value["sides"], question["answers"], strict=True):
            lines += ["", f"### {_plain(side['name'])}", ""]
            if answer is None:
                lines += [f"*{_('no answer yet')}*"]
                continue
            lines += [*_block(answer["answer"]), "", _measured(answer)]
            if answer["likeness"] is not None:
                lines += [
                    "",
                    _("%(share)s of the text is that of the first side.")
                    % {"share": f"{answer['likeness']:.0%}"},
                ]
    return "\n".join(lines).rstrip() + "\n"


def _answer(found: Mapping[str, Any] | None, segments: list[Any] | None) -> dict[str, Any] | None:
    if found is None:
        return None
    names = ("state", "answer", "metrics", "instance", "revision", "started_at")
    told = [[each.kind, each.text] for each in segments] if segments is not None else None
    likeness = word_diff.likeness(segments) if segments is not None else None
    return {**{name: found.get(name) for name in names}, "difference": told, "likeness": likeness}


def _settings(value: Mapping[str, Any]) -> list[str]:
    lines = []
    if value["system_prompt"]:
        lines += [_("System prompt:"), "", *_block(value["system_prompt"]), ""]
    if value["params"]:
        told = ", ".join(f"{name} {given}" for name, given in value["params"].items())
        lines += [_("Parameters: %(told)s") % {"told": f"`{told}`"}, ""]
    return lines


def _table(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    heads = [_("engine"), *(name for _key, name in _COLUMNS)]
    lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * len(_COLUMNS)}"]
    for name, metrics in rows:
        cells = [_plain(name), *(_number(metrics.get(key)) for key, _title in _COLUMNS)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _measured(answer: Mapping[str, Any]) -> str:
    metrics = answer["metrics"]
    told = [f"{title} {_number(metrics[key])}" for key, title in _COLUMNS if metrics.get(key) is not None]
    if answer.get("instance"):
        told.append(_("instance %(uid)s") % {"uid": answer["instance"]})
    if answer.get("revision"):
        told.append(_("revision %(number)d") % {"number": answer["revision"]})
    if answer["state"] != "done":
        told.insert(0, answer["state"])
    return f"*{', '.join(told)}*" if told else ""


def _block(text: str) -> list[str]:
    """Text as it is: what a model wrote may hold any Markdown, fences too, and must not become part of ours."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", text, fence]


def _plain(text: str) -> str:
    """Text in a heading or cell, on one line, with what Markdown would read marked as text."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))


def _number(value: float | None) -> str:
    if value is None:
        return "\N{EN DASH}"
    return str(value) if isinstance(value, int) else f"{value:.1f}"


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
