"""What the compare page shows: verdict, timings, and each question with its answers side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext as _

from apps.chat import comparison_figures, comparisons, word_diff
from apps.chat.compared_models import Comparison, ComparisonPart
from apps.chat.comparison_figures import SideFigures
from apps.dashboard import formats
from apps.gateway.selectors import externals
from apps.serving.models import Deployment
from apps.serving.selectors import deployments
from apps.serving.states import DEGRADED, READY

# Key, heading, unit, and whether less is better (null: neither).
COLUMNS: tuple[tuple[str, str, str, bool | None], ...] = (
    ("ttft_ms", "TTFT", "ms", True),
    ("itl_p50_ms", "ITL p50", "ms", True),
    ("itl_p99_ms", "ITL p99", "ms", True),
    ("tokens_per_second", "Speed", "tokens/s", False),
    ("tokens", "Answer", "tokens", None),
    ("prompt_tokens", "Prompt", "tokens", None),
    ("cached_tokens", "From cache", "tokens", None),
    ("queue_ms", "Queued", "ms", True),
)
# A difference below this share is not worth a word.
_NEAR = 0.02


def context(row: Comparison, mine: bool) -> dict[str, Any]:
    """Everything that templates/pages/comparison_part.html draws, and the state that its script begins with."""
    answers = comparisons.answers(row)
    differing = comparison_figures.differences(answers)
    figures = comparison_figures.summary(answers, differing)
    names = [comparisons.side_name(side) for side in row.sides]
    return {
        "row": row,
        "sides": [{**side, "name": name} for side, name in zip(row.sides, names, strict=True)],
        "verdict": verdict(names, figures, len(row.questions)),
        "columns": [{"title": title, "unit": unit} for _key, title, unit, _less in COLUMNS],
        "timings": [_timing(names[index], figures, index) for index in range(len(names))],
        "questions": [
            {
                "number": number,
                "prompt": question["prompt"],
                "cells": [
                    _cell(names[side], answers[number][side], differing[number][side])
                    for side in range(len(names))
                ],
            }
            for number, question in enumerate(row.questions)
        ],
        "state": _state(row, answers, mine),
    }


def engines() -> list[dict[str, str]]:
    """What can be asked now, for a choice: each deployment, its revisions where several serve, external ones."""
    found = []
    for deployment in deployments().filter(state__in=(READY, DEGRADED), repository__isnull=True):
        found.append({"value": deployment.name, "label": deployment.name})
        found += _revisions(deployment)
    words = _("%(name)s (external)")
    return [
        *found,
        *({"value": f"external:{row.name}", "label": words % {"name": row.name}} for row in externals()),
    ]


def verdict(names: Sequence[str], figures: Sequence[SideFigures], questions: int) -> str:
    """One sentence of what came out; of the first side against each other one."""
    if not figures or any(each.answered == 0 for each in figures):
        return _("Not every side has answered yet.")
    told = [
        _against(names[0], figures[0], names[index], figures[index], questions)
        for index in range(1, len(names))
    ]
    return " ".join(told)


def _against(first: str, base: SideFigures, name: str, other: SideFigures, questions: int) -> str:
    parts = []
    if base.tokens_per_second and other.tokens_per_second:
        parts.append(_speed(first, base.tokens_per_second, name, other.tokens_per_second))
    if other.likeness is not None:
        share = formats.percent(other.likeness)
        if questions == 1:
            parts.append(
                _("the answers are the same")
                if other.same
                else _("%(share)s of the text is the same") % {"share": share}
            )
        else:
            words = _("%(same)d of %(all)d answers are the same, %(share)s of the text")
            parts.append(words % {"same": other.same, "all": questions, "share": share})
    return f"{'; '.join(parts)}." if parts else _("%(name)s told no figures.") % {"name": name}


def _speed(first: str, base: float, name: str, other: float) -> str:
    numbers = {
        "name": name,
        "other": formats.significant(other),
        "base": formats.significant(base),
        "first": first,
    }
    if abs(other / base - 1) < _NEAR:
        return _("%(name)s is as fast as %(first)s: %(other)s and %(base)s tokens/s") % numbers
    if other > base:
        return _("%(name)s is faster than %(first)s: %(other)s against %(base)s tokens/s") % numbers
    return _("%(name)s is slower than %(first)s: %(other)s against %(base)s tokens/s") % numbers


def _timing(name: str, figures: Sequence[SideFigures], index: int) -> dict[str, Any]:
    mine, base = figures[index].as_dict(), figures[0].as_dict()
    cells = []
    for key, title, unit, less in COLUMNS:
        value, before = mine[key], base[key]
        share = value / before - 1 if index and less is not None and value is not None and before else None
        tone = "" if share is None or abs(share) < _NEAR else ("good" if (share < 0) is less else "poor")
        cells.append(
            {
                "label": f"{title} {unit}",
                "value": formats.significant(value),
                "change": formats.change(share) if share is not None else "",
                "tone": tone,
            }
        )
    likeness = figures[index].likeness
    return {
        "name": name,
        "answered": figures[index].answered,
        "cells": cells,
        "likeness": formats.percent(likeness) if likeness is not None else "",
    }


def _cell(name: str, answer: dict[str, Any] | None, segments: list[Any] | None) -> dict[str, Any]:
    if answer is None:
        return {"name": name, "answer": None, "segments": [], "likeness": ""}
    share = word_diff.likeness(segments) if segments is not None else None
    return {
        "name": name,
        "answer": answer,
        "segments": segments if segments is not None else [],
        "likeness": formats.percent(share) if share is not None else "",
    }


def _state(row: Comparison, answers: Sequence[Sequence[dict[str, Any] | None]], mine: bool) -> dict[str, Any]:
    """For static/js/playground/compare.js: what is left to ask, in order, and which answers still come."""
    parts = {
        (part.side, part.question): part.conversation_id
        for part in ComparisonPart.objects.filter(comparison=row)
    }
    work = []
    for question, prompt in enumerate(row.questions):
        for side in range(len(row.sides)):
            conversation = parts.get((side, 0 if row.chained else question))
            answer = answers[question][side]
            if conversation is None or (answer is not None and answer["state"] == "done"):
                continue
            work.append(
                {
                    "question": question,
                    "side": side,
                    "conversation": conversation,
                    "prompt": prompt["prompt"],
                    "turn": answer["uid"] if answer else None,
                    "running": answer is not None and answer["state"] == "streaming",
                }
            )
    return {
        "mode": row.mode,
        "mine": mine,
        "system_prompt": row.system_prompt,
        "params": row.params,
        "work": work,
    }


def _revisions(deployment: Deployment) -> list[dict[str, str]]:
    numbers = comparisons.engines_of(deployment)
    if len(numbers) < 2:
        return []
    words = _("%(name)s, revision %(number)d")
    return [
        {"value": f"{deployment.name}@{number}", "label": words % {"name": deployment.name, "number": number}}
        for number in numbers
    ]
