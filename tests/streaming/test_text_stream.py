"""Text of streams: the public cases 59 and 61, and more of their kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.streaming.domain.text_stream import (
    AccumulatedStream,
    EchoFilter,
    PieceStream,
    StopFilter,
    StreamRules,
    TextStream,
    Utf8Stream,
    echo_forms,
)

CASES = Path(__file__).resolve().parents[1] / "data/cases"


def load(case: str, name: str) -> Any:
    return json.loads((CASES / case / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["zh", "emoji", "family", "truncated", "invalid"])
def test_case_59_characters_over_tokens(name: str) -> None:
    case = "59-characters-cut-over-tokens"
    wanted = load(case, "expected.json")[name]
    stream = Utf8Stream()
    deltas = [stream.feed(bytes.fromhex(token["hex"])) for token in load(case, f"input.{name}.json")]
    flushed = stream.flush()
    assert (deltas, flushed) == (wanted["deltas"], wanted["flush"])
    assert "".join(deltas) + flushed == wanted["text"]
    assert stream.flush() == ""


@given(st.text(max_size=40), st.integers(1, 5))
def test_any_text_cut_anywhere_comes_out_whole(text: str, size: int) -> None:
    data = text.encode()
    stream = Utf8Stream()
    deltas = [stream.feed(data[at : at + size]) for at in range(0, len(data), size)]
    assert "".join(deltas) + stream.flush() == text


@given(st.binary(max_size=40), st.integers(1, 5))
def test_any_bytes_cut_anywhere_read_as_in_one_piece(data: bytes, size: int) -> None:
    stream = Utf8Stream()
    deltas = [stream.feed(data[at : at + size]) for at in range(0, len(data), size)]
    assert "".join(deltas) + stream.flush() == data.decode(errors="replace")


def test_a_character_cut_by_invalid_bytes_is_one_replacement_and_the_rest_lives() -> None:
    stream = Utf8Stream()
    assert stream.feed(b"\xe8\x8d") == ""
    assert stream.feed(b"A") == "\ufffdA"


def test_case_61_spaces_of_pieces() -> None:
    case = "61-spaces-lost-per-token"
    stream = PieceStream()
    text = "".join(stream.feed(token["piece"]) for token in load(case, "input.json")) + stream.flush()
    wanted = load(case, "expected.json")
    assert text == wanted["text"]
    assert text.strip() != wanted["wrong"]


def test_after_a_text_the_first_piece_keeps_its_space() -> None:
    stream = PieceStream(after_text=True)
    assert stream.feed("▁Paris") == " Paris"


def test_a_first_piece_without_a_mark_goes_on_with_the_word() -> None:
    stream = PieceStream()
    assert [stream.feed(piece) for piece in ("est", "▁land")] == ["est", " land"]


def test_byte_pieces_make_characters() -> None:
    stream = PieceStream()
    pieces = ["▁Ok", "<0xF0>", "<0x9F>", "<0x91>", "<0x8B>", "<0x0A>", "▁▁x"]
    assert "".join(stream.feed(piece) for piece in pieces) + stream.flush() == "Ok👋\n  x"


def test_what_only_looks_like_a_byte_piece_is_text() -> None:
    stream = PieceStream()
    assert stream.feed("a<0x0A>") == "a<0x0A>"
    assert stream.feed("<0xZZ>") == "<0xZZ>"


def test_an_upstream_that_repeats_everything_gives_deltas() -> None:
    stream = AccumulatedStream()
    assert [stream.feed(whole) for whole in ("He", "Hello", "Hello", "Hello!")] == ["He", "llo", "", "!"]
    assert stream.flush() == ""


def test_an_unfinished_character_in_the_whole_text_waits() -> None:
    stream = AccumulatedStream()
    assert [stream.feed(whole) for whole in ("药\ufffd", "药\ufffd\ufffd", "药剂")] == ["药", "", "剂"]


def test_a_character_that_is_never_finished_is_one_replacement() -> None:
    stream = AccumulatedStream()
    assert stream.feed("药\ufffd\ufffd") == "药"
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""


def test_a_text_that_was_changed_behind_us_is_not_repeated() -> None:
    stream = AccumulatedStream()
    assert stream.feed("Hello wurld") == "Hello wurld"
    assert stream.feed("Hello world!") == "!"
    assert stream.feed("Hello") == ""


PROMPT = "<s>[INST] Hi [/INST]"


@pytest.mark.parametrize("echoed", [PROMPT, "[INST] Hi [/INST]", " Hi "])
def test_a_repeated_prompt_is_taken_out(echoed: str) -> None:
    echo = EchoFilter((*echo_forms(PROMPT, ("<s>", "[INST]", "[/INST]")), "[INST] Hi [/INST]"))
    text = echoed + "Hello"
    assert "".join(echo.feed(letter) for letter in text) + echo.flush() == "Hello"


def test_an_answer_that_only_begins_like_the_prompt_stays() -> None:
    echo = EchoFilter(("Tell me a story",))
    assert "".join(echo.feed(part) for part in ("Tell me", " more first.")) == "Tell me more first."
    short = EchoFilter(("Tell me a story",))
    assert short.feed("Tell") == ""
    assert short.flush() == "Tell"


def test_the_prompt_again_in_the_middle_of_an_answer_stays() -> None:
    echo = EchoFilter(("Hi",))
    assert echo.feed("Hi") + echo.feed("Yo Hi") + echo.flush() == "Yo Hi"


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_a_stop_string_over_pieces_never_shows(size: int) -> None:
    text = "The answer is 4.\nUser: more"
    stop = StopFilter(("\nUser:", "###"))
    shown = "".join(stop.feed(text[at : at + size]) for at in range(0, len(text), size)) + stop.flush()
    assert (shown, stop.found) == ("The answer is 4.", "\nUser:")
    assert stop.feed("later") == ""


def test_what_was_held_for_a_stop_string_comes_out_when_it_is_none() -> None:
    stop = StopFilter(("###",))
    assert [stop.feed(part) for part in ("a#", "#", "b", "##")] == ["a", "", "##b", ""]
    assert stop.flush() == "##"


@given(st.text(alphabet="ab#", max_size=30), st.integers(1, 4))
def test_stopping_does_not_depend_on_how_a_text_is_cut(text: str, size: int) -> None:
    whole, cut = StopFilter(("ab#", "##")), StopFilter(("ab#", "##"))
    wanted = whole.feed(text) + whole.flush()
    assert "".join(cut.feed(text[at : at + size]) for at in range(0, len(text), size)) + cut.flush() == wanted
    assert cut.found == whole.found


@pytest.mark.parametrize("marker", ["<|im_end|>", "<|eot_id|>", "</s>", "<end_of_turn>", "<|endoftext|>"])
def test_end_markers_end_the_text_unseen(marker: str) -> None:
    stream = TextStream()
    text = f"Paris.{marker}\n<|im_start|>user"
    shown = "".join(stream.feed(letter) for letter in text) + stream.flush()
    assert (shown, stream.ended, stream.stopped_by) == ("Paris.", True, "")


def test_a_stop_string_is_told_from_an_end_marker() -> None:
    stream = TextStream(StreamRules(stop=("STOP",)))
    assert stream.feed("go STOP it") == "go "
    assert stream.stopped_by == "STOP"


def test_everything_together() -> None:
    rules = StreamRules(accumulated=True, echoes=("Q: hi\nA:",), stop=("\nQ:",))
    stream = TextStream(rules)
    answers = ("", " 你\ufffd", " 你好", " 你好\nQ", " 你好\nQ: x")
    wholes = ["Q: h", *("Q: hi\nA:" + answer for answer in answers)]
    deltas = [stream.feed(whole) for whole in wholes]
    assert "".join(deltas) + stream.flush() == " 你好"
    assert stream.ended


def test_flush_gives_out_what_every_stage_holds() -> None:
    stream = TextStream(StreamRules(accumulated=True, echoes=("hello world",), stop=("!!",)))
    assert stream.feed("hello\ufffd") == ""
    assert stream.flush() == "hello\ufffd"
