"""Every request's record: one JSON line each, gzipped, written as requests end, so memory stays bounded.

Keys of a line, times in microseconds since the run began: `i` number, `st` step of the load, `d` when it was due, `s`
when it was sent, `a` arrivals since `s` (messages with content only), `k` tokens of each arrival (absent: one each;
null: nobody counted), `e` end since `s`, `n` tokens as the server counted them, `p` prompt tokens, `w` tokens asked
for, `r` result (ok, error, rejected, unfinished), `c` code of an error, `t` turn of a conversation.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
OK, ERROR, REJECTED, UNFINISHED = "ok", "error", "rejected", "unfinished"
RESULTS = (OK, ERROR, REJECTED, UNFINISHED)
MICRO = 1e-6


@dataclass(frozen=True, slots=True)
class Record:
    """One request. Times are seconds since the run began.

    `counts` are the tokens of each arrival, None where nobody counted them; `tokens` is the server's own total, else
    the sum of the counts, else None.
    """

    due: float
    sent: float
    arrivals: tuple[float, ...] = ()
    counts: tuple[int, ...] | None = ()
    ended: float = 0.0
    tokens: int | None = None
    prompt_tokens: int | None = None
    asked: int | None = None
    result: str = OK
    code: str = ""
    step: int = 0
    index: int = 0
    turn: int = 0


def of_chunks(
    start: float, chunks: Iterable[Sequence[Any]], *, ended: float | None = None, tokens: int | None = None
) -> Record:
    """A record out of (time, tokens[, text]) messages, all in one unit of time.

    Messages with no token are no arrivals: neither an empty first one, nor a last one that only says the end,
    nor text that was held back. A message whose tokens are None counts where it has text.
    """
    kept = [
        (float(at), count)
        for at, count, *text in chunks
        if count or (count is None and (not text or text[0]))
    ]
    counted = all(count is not None for _, count in kept)
    total = sum(int(count or 0) for _, count in kept) if counted else None
    times = tuple(at for at, _ in kept)
    return Record(
        due=start,
        sent=start,
        arrivals=times,
        counts=tuple(int(count or 0) for _, count in kept) if counted else None,
        ended=ended if ended is not None else (times[-1] if times else start),
        tokens=tokens if tokens is not None else total,
    )


def as_line(record: Record) -> dict[str, Any]:
    """The record as a line's object."""
    sent = record.sent
    line: dict[str, Any] = {
        "i": record.index,
        "d": round(record.due / MICRO),
        "s": round(sent / MICRO),
        "a": [round((at - sent) / MICRO) for at in record.arrivals],
        "e": round((record.ended - sent) / MICRO),
        "n": record.tokens,
        "p": record.prompt_tokens,
        "w": record.asked,
        "r": record.result,
    }
    if record.counts is None or any(count != 1 for count in record.counts):
        line["k"] = None if record.counts is None else list(record.counts)
    for key, value in (("c", record.code), ("st", record.step), ("t", record.turn)):
        if value:
            line[key] = value
    return line


def of_line(line: dict[str, Any]) -> Record:
    """The record of a line's object. Raises KeyError, TypeError, ValueError for what is none."""
    sent = line["s"] * MICRO
    arrivals = tuple(sent + at * MICRO for at in line["a"])
    counts = line.get("k", [1] * len(arrivals))
    if counts is not None and len(counts) != len(arrivals):
        raise ValueError("k and a differ in length")
    if line["r"] not in RESULTS:
        raise ValueError(f"unknown result {line['r']!r}")
    return Record(
        due=line["d"] * MICRO,
        sent=sent,
        arrivals=arrivals,
        counts=None if counts is None else tuple(counts),
        ended=sent + line["e"] * MICRO,
        tokens=line.get("n"),
        prompt_tokens=line.get("p"),
        asked=line.get("w"),
        result=line["r"],
        code=line.get("c", ""),
        step=line.get("st", 0),
        index=line["i"],
        turn=line.get("t", 0),
    )


def read(paths: Iterable[Path]) -> Iterator[Record]:
    """Records of files in their order; a line that a killed writer left unfinished ends its file."""
    for path in paths:
        with gzip.open(path, "rb") as file:
            try:
                for line in file:
                    yield of_line(json.loads(line))
            except (EOFError, ValueError, KeyError, TypeError, OSError):
                continue


@dataclass(frozen=True, slots=True)
class Columns:
    """Records as columns: one value a request, NaN where there is none; arrivals of all requests one after another.

    `owner` is the request of an arrival, `arrival_tokens` NaN where nobody counted. Seconds.
    """

    step: npt.NDArray[np.int64]
    due: Floats
    sent: Floats
    first: Floats
    second: Floats
    last: Floats
    ended: Floats
    tokens: Floats
    prompt_tokens: Floats
    result: npt.NDArray[np.str_]
    owner: npt.NDArray[np.int64]
    arrival: Floats
    arrival_tokens: Floats

    @property
    def size(self) -> int:
        """Number of requests."""
        return int(self.due.size)

    def of_step(self, step: int) -> Columns:
        """The requests of one step of the load."""
        return self.where(self.step == step)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Columns:
        """The chosen requests."""
        number = np.cumsum(chosen) - 1
        of_chosen = chosen[self.owner] if self.owner.size else np.zeros(0, dtype=bool)
        return Columns(
            step=self.step[chosen],
            due=self.due[chosen],
            sent=self.sent[chosen],
            first=self.first[chosen],
            second=self.second[chosen],
            last=self.last[chosen],
            ended=self.ended[chosen],
            tokens=self.tokens[chosen],
            prompt_tokens=self.prompt_tokens[chosen],
            result=self.result[chosen],
            owner=number[self.owner[of_chosen]].astype(np.int64),
            arrival=self.arrival[of_chosen],
            arrival_tokens=self.arrival_tokens[of_chosen],
        )


def columns(records: Iterable[Record]) -> Columns:
    """Records as columns, in the order of being due."""
    rows = sorted(records, key=lambda record: record.due)
    nan = float("nan")
    lengths = [len(row.arrivals) for row in rows]
    counted: list[float] = []
    for row in rows:
        counted += [nan] * len(row.arrivals) if row.counts is None else row.counts

    def column(values: Iterable[float | int | None]) -> Floats:
        return np.array([nan if value is None else value for value in values], dtype=np.float64)

    return Columns(
        step=np.array([row.step for row in rows], dtype=np.int64),
        due=column(row.due for row in rows),
        sent=column(row.sent for row in rows),
        first=column(row.arrivals[0] if row.arrivals else None for row in rows),
        second=column(row.arrivals[1] if len(row.arrivals) > 1 else None for row in rows),
        last=column(row.arrivals[-1] if row.arrivals else None for row in rows),
        ended=column(row.ended for row in rows),
        tokens=column(row.tokens for row in rows),
        prompt_tokens=column(row.prompt_tokens for row in rows),
        result=np.array([row.result for row in rows], dtype=np.str_),
        owner=np.repeat(np.arange(len(rows)), lengths).astype(np.int64),
        arrival=column(at for row in rows for at in row.arrivals),
        arrival_tokens=np.array(counted, dtype=np.float64),
    )
