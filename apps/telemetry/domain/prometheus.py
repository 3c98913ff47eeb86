"""A quick, tolerant reader of the Prometheus text format, for the families that are wanted.

A server is scraped every second, so only wanted lines are looked at, and label texts, which repeat in every scrape,
are parsed once. Lines that cannot be read are counted and passed over: one odd family must not hide the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

# Suffixes under which the samples of a histogram or summary are written.
SUFFIXES = ("_bucket", "_sum", "_count")

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_BLOCK = re.compile(r'\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\}')
_PAIR = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|$)')
_ESCAPE = re.compile(r'\\[\\n"]')
_ESCAPED = {r"\\": "\\", r"\n": "\n", r"\"": '"'}
_NUMBER = re.compile(
    r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|inf(?:inity)?|nan)", re.IGNORECASE
)


class Sample(NamedTuple):
    """One line: its labels and value. The mapping is shared between scrapes; never change it."""

    labels: Mapping[str, str]
    value: float


@dataclass(slots=True)
class Exposition:
    """What one scrape said. `samples` by line name (…_bucket and so on keep their own), `kinds` by family name.

    A family that is announced without samples is in `kinds` and not in `samples`: known, without a value.
    """

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    unreadable: int = 0

    def values(self, name: str, **labels: str) -> list[float]:
        """Values of the lines of `name` with these labels, without NaN (no value)."""
        return [
            sample.value
            for sample in self.samples.get(name, ())
            if not math.isnan(sample.value) and all(sample.labels.get(k) == v for k, v in labels.items())
        ]

    def total(self, name: str, **labels: str) -> float | None:
        """Sum over the lines of `name` with these labels; None where there is none with a value."""
        values = self.values(name, **labels)
        return sum(values) if values else None


# What stands before a value, by its text: name and labels, or that it is not wanted. One table for each set of
# wanted names; a server that makes up ever new labels fills it once and is then read the slow way.
_Head = tuple[str, Mapping[str, str]]
_UNWANTED: Final[_Head] = ("", {})
_UNKNOWN: Final[_Head] = ("", {})
_MOST_HEADS = 100_000
_tables: dict[Collection[str] | None, dict[str, _Head]] = {}


def _heads_of(wanted: Collection[str] | None) -> dict[str, _Head]:
    if wanted is not None and not isinstance(wanted, frozenset):
        return {}
    if len(_tables) > 16:  # sets of wanted names are constants of this program; anything else is a test
        _tables.clear()
    return _tables.setdefault(wanted, {})


def parse(text: str, wanted: Collection[str] | None = None) -> Exposition:
    """Read an exposition; with `wanted` only these families (their histogram and summary lines included).

    A frozenset of wanted names is quickest: what stands before a value is then looked at once, not at each scrape.
    """
    found = Exposition()
    heads = _heads_of(wanted)
    samples = found.samples
    for line in text.split("\n"):
        head, _space, last = line.rpartition(" ")
        known = heads.get(head, _UNKNOWN)
        if known is _UNWANTED:
            continue
        if known is not _UNKNOWN and "_" not in last:
            name, labels = known
            try:
                samples[name].append(Sample(labels, float(last)))
                continue
            except KeyError:
                samples[name] = []
                samples[name].append(Sample(labels, float(last)))
                continue
            except ValueError:
                pass
        _line(line, head, wanted, found, heads)
    return found


def _line(
    line: str, head: str, wanted: Collection[str] | None, found: Exposition, heads: dict[str, _Head]
) -> None:
    """One line that is not known yet; what is before its value is remembered."""
    if not line or line.isspace():
        return
    if line[0] == "#":
        if "TYPE" in line:
            _comment(line, wanted, found)
        return
    match = _NAME.match(line, len(line) - len(line.lstrip()))
    if match is None:
        found.unreadable += 1
        return
    name = match.group()
    if wanted is not None and not _is_wanted(name, wanted):
        # The name lies before the last space only where there is one.
        if head and len(heads) < _MOST_HEADS:
            heads[head] = _UNWANTED
        return
    sample, plain = _sample(line, match.end())
    if sample is None:
        found.unreadable += 1
        return
    found.samples.setdefault(name, []).append(sample)
    if plain and head and line.rstrip() == line and len(heads) < _MOST_HEADS:
        heads[head] = (name, sample.labels)


def family_of(name: str) -> str:
    """Family of a line name: the name without _bucket, _sum or _count."""
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return name[: -len(suffix)]
    return name


def _is_wanted(name: str, wanted: Collection[str]) -> bool:
    return name in wanted or family_of(name) in wanted


def _comment(line: str, wanted: Collection[str] | None, found: Exposition) -> None:
    parts = line.split(None, 3)
    if len(parts) == 4 and parts[0] == "#" and parts[1] == "TYPE":
        name = parts[2]
        if wanted is None or name in wanted:
            found.kinds[name] = parts[3].strip()


def _sample(line: str, position: int) -> tuple[Sample | None, bool]:
    """The sample of a line whose name ends at `position`, and whether nothing follows its value.

    A time stamp and an exemplar after the value are cut.
    """
    labels: Mapping[str, str] | None = _NO_LABELS
    rest = line[position:].lstrip()
    if rest.startswith("{"):
        block = _BLOCK.match(rest)
        if block is None:
            return None, False
        labels = _labels(block.group(1))
        rest = rest[block.end() :]
    fields = rest.split("#", 1)[0].split()
    if labels is None or not 1 <= len(fields) <= 2 or not _NUMBER.fullmatch(fields[0]):
        return None, False
    # Only where the value is all that follows the last space may the rest be remembered as what stands before it.
    plain = rest == f" {fields[0]}"
    return Sample(labels, float(fields[0])), plain


_NO_LABELS: Mapping[str, str] = {}


@lru_cache(maxsize=8192)
def _labels(text: str) -> Mapping[str, str] | None:
    """Labels of a block's inside; None where it is not well formed. A comma at the end is allowed."""
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _PAIR.match(text, position)
        if match is None:
            return found if not text[position:].strip() else None
        found[match.group(1)] = _ESCAPE.sub(lambda part: _ESCAPED[part.group()], match.group(2))
        position = match.end()
    return found
