"""The file of rows that a quality run's child appends to, and how far it is."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from apps.loadtests.domain.quality import Answered, TextWindow, UnreadableRows, read_rows
from workers.builders.llamacpp_steps.events import send

ROWS, PLAN = "rows.jsonl", "plan.json"


class Rows:
    """Appends rows and sends progress; what a file for the same `key` holds already is not done again."""

    def __init__(self, path: Path, key: str, total: float) -> None:
        self.windows: set[int] = set()
        self.answers: set[str] = set()
        self._total, self._done = max(total, 1.0), 0.0
        kept = self._kept(path, key)
        self._file = path.open("w", encoding="utf-8")
        self._line({"key": key})
        for window in kept[0]:
            self.windows.add(window.index)
            self._line({"window": asdict(window)})
        for answer in kept[1]:
            self.answers.add(answer.name)
            self._line({"answer": asdict(answer)})

    def window(self, row: TextWindow) -> None:
        """Keep a window."""
        self._line({"window": asdict(row)})

    def answer(self, row: Answered) -> None:
        """Keep an answer."""
        self._line({"answer": asdict(row)})

    def advance(self, amount: float) -> None:
        """So much more of the work is done."""
        self._done += amount
        send("progress", done=self._done, total=self._total, unit="tokens")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _line(self, value: dict[str, Any]) -> None:
        self._file.write(json.dumps(value, ensure_ascii=False) + "\n")
        self._file.flush()

    @staticmethod
    def _kept(path: Path, key: str) -> tuple[list[TextWindow], list[Answered]]:
        try:
            text = path.read_text(encoding="utf-8")
            first = json.loads(text.partition("\n")[0])
            if first.get("key") != key:
                return [], []
            return read_rows(text)
        except (OSError, ValueError, AttributeError, UnreadableRows):
            return [], []
