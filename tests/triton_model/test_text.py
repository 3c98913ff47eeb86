"""Text of an answer: whole characters, no stop words. The cases are those of tests/data/cases/59."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from llamacpp_text import TextAssembler

CASE = Path(__file__).resolve().parents[1] / "data/cases/59-characters-cut-over-tokens"
EXPECTED: dict[str, Any] = json.loads((CASE / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_characters_are_never_cut(name: str) -> None:
    tokens = json.loads((CASE / f"input.{name}.json").read_text(encoding="utf-8"))
    assembler = TextAssembler()
    deltas = [assembler.feed(bytes.fromhex(token["hex"])) for token in tokens]
    assert deltas == EXPECTED[name]["deltas"]
    assert assembler.finish() == EXPECTED[name]["flush"]


def through(stop: tuple[str, ...], *pieces: str) -> tuple[list[str], bool]:
    assembler = TextAssembler(stop)
    shown = [assembler.feed(piece.encode()) for piece in pieces]
    return [*shown, assembler.finish()], assembler.stopped


def test_a_stop_word_over_tokens_never_shows() -> None:
    shown, stopped = through(("\nUser:",), "Paris.", "\n", "Us", "er", ":", " more")
    assert "".join(shown) == "Paris."
    assert stopped


def test_what_only_began_like_a_stop_word_comes_out() -> None:
    assert through(("STOP",), "ST", "ART", "S") == (["", "START", "", "S"], False)


def test_a_stop_word_inside_one_piece_cuts_it() -> None:
    assert through(("END",), "abENDcd") == (["ab", ""], True)


def test_the_earliest_of_several_stop_words_counts() -> None:
    assert "".join(through(("zz", "b"), "abzz")[0]) == "a"


def test_a_stop_word_of_several_bytes_is_found_when_its_bytes_are_cut() -> None:
    data = "ok。x".encode()
    assembler = TextAssembler(("。",))
    shown = "".join(assembler.feed(data[place : place + 1]) for place in range(len(data)))
    assert (shown, assembler.stopped) == ("ok", True)


def test_an_overlapping_beginning_is_found() -> None:
    assert "".join(through(("aab",), "a", "a", "a", "b", "c")[0]) == "a"
