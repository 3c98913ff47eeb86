"""Rows of a dataset: conversations (ShareGPT, messages, prompts) or a trace of lengths with arrival times.

JSON lines, or one JSON list. What each row may carry: `conversations` [{from, value}], `messages` [{role, content}],
`prompt` or `text` with `output_tokens`; `timestamp` (ms), `input_length`, `output_length` (Mooncake's names).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_ROWS = 100_000
# A word of English is about 1.3 tokens of a byte-pair vocabulary.
TOKENS_A_WORD = 1.3
ASKERS, ANSWERERS = frozenset({"human", "user"}), frozenset({"gpt", "assistant", "model"})


class DatasetProblem(ValueError):
    """A dataset that cannot be used; the text names the line and what to do."""


@dataclass(frozen=True, slots=True)
class Row:
    """One request of a dataset. `text` None: only lengths are known. `at` seconds, None without arrival times."""

    text: str | None
    input_tokens: int
    output_tokens: int | None
    at: float | None = None


def load(path: Path) -> list[Row]:
    """Every usable row. Raises DatasetProblem where there is none, or a line is no JSON."""
    rows: list[Row] = []
    try:
        for number, value in _values(path):
            row = _row(value, number)
            if row is not None:
                rows.append(row)
            if len(rows) >= MOST_ROWS:
                break
    except OSError as error:
        raise DatasetProblem(
            f"{path.name} cannot be read: {error.strerror}. Put it into the home's datasets/."
        ) from error
    if not rows:
        raise DatasetProblem(
            f"{path.name} has no row with a question; give lines conversations, messages, prompt or input_length."
        )
    return rows


def _values(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        first = file.read(1)
        file.seek(0)
        if first == "[":
            try:
                yield from enumerate(json.load(file), 1)
            except ValueError as error:
                raise DatasetProblem(
                    f"{path.name} is no JSON list: {error}. Write one object a line."
                ) from error
            return
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield number, json.loads(line)
                except ValueError as error:
                    raise DatasetProblem(
                        f"{path.name} line {number} is no JSON: {error}. Repair or remove it."
                    ) from error


def _row(value: Any, number: int) -> Row | None:
    if not isinstance(value, dict):
        raise DatasetProblem(f"line {number} is no object; each line is one request.")
    try:
        at = value["timestamp"] / 1000.0 if value.get("timestamp") is not None else None
        length = value.get("input_length")
        if length is not None:
            return Row(None, max(1, int(length)), max(1, int(value.get("output_length") or 1)), at)
        asked, answered = _texts(value)
        told = value.get("output_tokens") or value.get("output_len")
        output = int(told) if told else about_tokens(answered) if answered else None
    except (TypeError, ValueError, AttributeError) as error:
        raise DatasetProblem(f"line {number} has a field of the wrong kind: {error}.") from error
    return Row(asked, about_tokens(asked), output, at) if asked else None


def _texts(value: dict[str, Any]) -> tuple[str, str]:
    turns = value.get("conversations") or value.get("messages") or []
    said = [
        (str(turn.get("from") or turn.get("role") or ""), str(turn.get("value") or turn.get("content") or ""))
        for turn in turns
    ]
    asked = next(
        (text for who, text in said if who in ASKERS), str(value.get("prompt") or value.get("text") or "")
    )
    answered = next((text for who, text in said if who in ANSWERERS), "")
    return asked, answered


def about_tokens(text: str) -> int:
    """About how many tokens a text has; the records hold what the server counted."""
    return max(1, round(len(text.split()) * TOKENS_A_WORD))
