"""Text in, verdict out: what the log of a failed build or server says about the cause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Literal

from apps.diagnosis.domain.anchors import anchors
from apps.diagnosis.domain.circumstances import Circumstances
from apps.diagnosis.domain.derived import DERIVED
from apps.diagnosis.domain.lines import FAILED, NOISE, is_quiet, plain
from apps.diagnosis.domain.rule import Fact, Kind, Rule
from apps.diagnosis.domain.table import RULES

Status = Literal["succeeded", "failed", "unknown"]
# Lines beyond this are not looked at from the front; a log's cause stands near its end.
MAX_LINES = 50_000
MAX_EVIDENCE = 5
MAX_TEXT = 500
# Of a longer line only the beginning is searched.
MAX_LINE = 2_000
# What undoes a recoverable line follows within so many lines.
CLOSE = 4
# Exit codes of a process that somebody else ended: what it complained about before is not why it ended.
KILLED = frozenset({-9, -15, 137, 143})
PROMPT_LIMIT = re.compile(r"maxInputLen: (?P<tokens>\d+)")
SEQUENCE_LIMIT = re.compile(r"maxSequenceLen: (?P<tokens>\d+)")
TOKENS_LIMIT = re.compile(r"maxNumTokens: (?P<tokens>\d+)")


@dataclass(frozen=True, slots=True)
class Evidence:
    """A line of the log, counted from 1."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A cause. `facts` holds what the lines name (bytes as numbers)."""

    id: str
    title: str
    fatal: bool
    evidence: tuple[Evidence, ...]
    facts: dict[str, Fact]
    remedies: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """JSON form: id, title, fatal, evidence [{line, text}], facts, remedies."""
        return {
            **asdict(self),
            "evidence": [asdict(item) for item in self.evidence],
            "remedies": list(self.remedies),
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the run succeeded, and the cause where it did not and one is known.

    `limits` is what a server's log says about the engine's own: max_prompt_tokens, max_sequence_tokens, limited_by.
    """

    status: Status
    diagnosis: Diagnosis | None
    limits: dict[str, Fact] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """JSON form: status, diagnosis (or null), and the limits where the log says any."""
        found = {"status": self.status, "diagnosis": self.diagnosis.as_dict() if self.diagnosis else None}
        return {**found, **self.limits}


def diagnose(
    text: str,
    kind: Kind = "build",
    exit_code: int | None = None,
    known: Circumstances | None = None,
    *,
    before: int = 0,
) -> Verdict:
    """Say what a log shows. `exit_code` 0 is a success whatever the log says; negative is a signal's number.

    `known` is what is known besides: some facts follow from it only. `before`: so many lines of the log stand before
    the text, for the numbers of the evidence.

    The earliest cause of any rank counts, before hints and before what the exit code alone says; lines that stand for
    nothing are passed over. Without an exit code a known cause counts as a failure and anything else as unknown.
    """
    limits = _limits(text) if kind != "build" else {}
    if exit_code == 0:
        return Verdict("succeeded", None, limits)
    lines = [plain(line[:MAX_LINE]) for line in text.splitlines()]
    skipped = max(0, len(lines) - MAX_LINES)
    found = _first(lines[skipped:], before + skipped, kind, exit_code, known or Circumstances())
    if found is None:
        return Verdict("unknown" if exit_code is None else "failed", None, limits)
    failed = found.fatal or exit_code is not None or kind == "request"
    return Verdict("failed" if failed else "unknown", found, limits)


def _first(
    lines: list[str], skipped: int, kind: Kind, exit_code: int | None, known: Circumstances
) -> Diagnosis | None:
    matches = list(_matches(_Log(lines, exit_code), kind))
    chosen = _earliest(matches, "cause") or _earliest(matches, "hint")
    if chosen is None:
        chosen = next((rule for rule in RULES if kind in rule.kinds and exit_code in rule.exits), None)
    if chosen is None:
        # What is no end of a run, a request that was refused, stands behind everything that may be one.
        chosen = matches[0].rule if matches else None
    if chosen is None:
        return None
    fitting = [match for match in matches if match.rule.id == chosen.id]
    return _diagnosis(chosen, fitting, lines, skipped, known)


def _earliest(matches: list[_Match], strength: str) -> Rule | None:
    fitting = (match.rule for match in matches if match.rule.fatal and match.rule.strength == strength)
    return next(fitting, None)


@dataclass(frozen=True, slots=True)
class _Match:
    """A rule that fits a line; `index` counts from 0."""

    rule: Rule
    index: int
    match: re.Match[str]


class _Log:
    """The lines, and what of the whole a rule may ask; looked for once."""

    def __init__(self, lines: list[str], exit_code: int | None) -> None:
        self.lines = lines
        # By its exit code the run failed by itself, so what it did not recover from counts.
        self.failed_by_code = exit_code is not None and exit_code not in KILLED
        self._firsts: dict[re.Pattern[str], int] = {}
        self._failed_at: int | None = None

    def seen_before(self, pattern: re.Pattern[str], index: int) -> bool:
        """Whether a line before this one fits."""
        if pattern not in self._firsts:
            fits = (number for number, line in enumerate(self.lines) if pattern.search(line))
            self._firsts[pattern] = next(fits, len(self.lines))
        return self._firsts[pattern] < index

    def fails_after(self, index: int) -> bool:
        """Whether a later line says that the run failed."""
        if self._failed_at is None:
            last = len(self.lines) - 1
            self._failed_at = next((n for n in range(last, -1, -1) if FAILED.search(self.lines[n])), -1)
        return self._failed_at > index


def _matches(log: _Log, kind: Kind) -> Iterator[_Match]:
    """What the lines show, in their order. One line shows one cause: that of the first rule that fits."""
    wanted = _anchored(kind)
    for index, line in enumerate(log.lines):
        low = line.lower()
        rules = {place: rule for text, place, rule in wanted if text in low}
        if not rules or NOISE.search(line):
            continue
        quiet = is_quiet(line)
        for _place, rule in sorted(rules.items()):
            if quiet and rule.levels == "errors":
                continue
            match = _match(rule, line)
            if match is not None and _counts(rule, log, index):
                yield _Match(rule, index, match)
                break


@lru_cache(maxsize=3)
def _anchored(kind: Kind) -> tuple[tuple[str, int, Rule], ...]:
    """(text that a fitting line contains, place of the rule in the table, rule) for every pattern."""
    return tuple(
        (text, place, rule)
        for place, rule in enumerate(RULES)
        if kind in rule.kinds
        for pattern in rule.patterns
        for text in anchors(pattern)
    )


def _match(rule: Rule, line: str) -> re.Match[str] | None:
    if rule.unless is not None and rule.unless.search(line):
        return None
    return next((match for pattern in rule.patterns if (match := pattern.search(line))), None)


def _counts(rule: Rule, log: _Log, index: int) -> bool:
    """Whether a line that fits means what it says, given what stands before and behind it."""
    if rule.unless_before is not None and log.seen_before(rule.unless_before, index):
        return False
    if not rule.recoverable:
        return True
    close = log.lines[index + 1 : index + 1 + CLOSE]
    if rule.undone is not None and any(rule.undone.search(line) for line in close):
        return False
    return log.failed_by_code or log.fails_after(index)


def _diagnosis(
    rule: Rule, matches: list[_Match], lines: list[str], skipped: int, known: Circumstances
) -> Diagnosis:
    facts: dict[str, Fact] = {}
    for pattern in rule.context:
        for line in lines:
            if found := pattern.search(line):
                _take(facts, found)
    for item in matches:
        _take(facts, item.match)
    derive = DERIVED.get(rule.id)
    if derive is not None:
        facts.update(derive(facts, known))
    evidence = [
        Evidence(skipped + item.index + 1, lines[item.index].strip()[:MAX_TEXT])
        for item in matches[:MAX_EVIDENCE]
    ]
    return Diagnosis(
        id=rule.id,
        title=rule.title,
        fatal=rule.fatal,
        evidence=tuple(evidence),
        facts={**rule.states, **facts},
        remedies=rule.remedies,
    )


def _take(facts: dict[str, Fact], match: re.Match[str]) -> None:
    for name, value in match.groupdict().items():
        if value:
            facts.setdefault(name, int(value) if value.isdecimal() else value)


def _limits(text: str) -> dict[str, Fact]:
    """What a server that loaded an engine says about its limits: the longest prompt and sequence, and what binds."""
    found: dict[str, Fact] = {}
    prompt = PROMPT_LIMIT.search(text)
    sequence = SEQUENCE_LIMIT.search(text)
    if sequence:
        found["max_sequence_tokens"] = int(sequence["tokens"])
    if prompt:
        tokens = int(prompt["tokens"])
        found["max_prompt_tokens"] = tokens
        tokens_limit = TOKENS_LIMIT.search(text)
        if tokens_limit and int(tokens_limit["tokens"]) == tokens:
            found["limited_by"] = "max_num_tokens"
        elif sequence:
            found["limited_by"] = "max_seq_len"
    return found
