"""What two answers share, word by word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.chat.word_diff import EXACT_PIECES, likeness, segments

TEXTS = st.text(alphabet="ab ,\nÄ日", max_size=60)


@pytest.mark.parametrize(
    ("first", "other", "told"),
    [
        ("", "", []),
        ("one", "one", [("same", "one")]),
        ("", "one", [("added", "one")]),
        ("one", "", [("removed", "one")]),
        (
            "a big dog",
            "a small dog",
            [("same", "a "), ("removed", "big"), ("added", "small"), ("same", " dog")],
        ),
        # A changed comma is no changed word.
        ("yes, no", "yes; no", [("same", "yes"), ("removed", ","), ("added", ";"), ("same", " no")]),
        # Words that changed side by side are one change.
        (
            "x one two y",
            "x six ten y",
            [("same", "x "), ("removed", "one two"), ("added", "six ten"), ("same", " y")],
        ),
        ("Grüße 日本", "Grüße 日本!", [("same", "Grüße 日本"), ("added", "!")]),
    ],
)
def test_words_that_differ(first: str, other: str, told: list[tuple[str, str]]) -> None:
    assert [(each.kind, each.text) for each in segments(first, other)] == told


@given(TEXTS, TEXTS)
def test_both_texts_are_whole_in_the_segments(first: str, other: str) -> None:
    found = segments(first, other)
    assert "".join(each.text for each in found if each.kind != "added") == first
    assert "".join(each.text for each in found if each.kind != "removed") == other
    assert 0.0 <= likeness(found) <= 1.0
    assert (likeness(found) == 1.0) == (first == other)


def test_a_long_text_is_compared_by_lines() -> None:
    line = "word " * 20 + "\n"
    first = line * (EXACT_PIECES // 20)
    found = segments(first, first + "more\n")
    assert [(each.kind, len(each.text)) for each in found] == [("same", len(first)), ("added", 5)]
