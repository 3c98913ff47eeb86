"""Tailing a log by offset."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.realtime import logtail
from apps.realtime.logtail import CHUNK, LogTail
from tests.realtime.conftest import Things


def drained(tail: LogTail) -> str:
    """All that the tail gives now."""
    return "".join(chunk.text for chunk in iter(tail.read, None))


def test_what_is_appended_follows_by_offset(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("one\n")
    tail = LogTail(path, 0)
    first = tail.read()
    assert first is not None
    assert (first.text, first.start, first.offset) == ("one\n", 0, 4)
    assert tail.read() is None
    with path.open("a") as file:
        file.write("two")
    second = tail.read()
    assert second is not None
    assert (second.text, second.start, second.offset) == ("two", 4, 7)


def test_a_file_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    tail = LogTail(tmp_path / "log.txt", None)
    assert tail.read() is None
    (tmp_path / "log.txt").write_text("begun")
    assert drained(tail) == "begun"


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_began_anew_is_read_from_its_beginning(tmp_path: Path, replaced: bool) -> None:
    path = tmp_path / "log.txt"
    path.write_text("a long first attempt\n")
    tail = LogTail(path, 0)
    drained(tail)
    if replaced:
        (tmp_path / "new").write_text("a second attempt, longer than the first\n")
        os.replace(tmp_path / "new", path)
    else:
        path.write_text("short\n")
    chunk = tail.read()
    assert chunk is not None
    assert chunk.start == 0
    assert chunk.text == path.read_text()


def test_a_first_look_shows_the_end_from_the_beginning_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logtail, "FIRST_LOOK", 10)
    path = tmp_path / "log.txt"
    path.write_text("line one\nline two\nline three\n")
    chunk = LogTail(path, None).read()
    assert chunk is not None
    assert chunk.text == ""
    assert LogTail(path, 9).read() is not None
    monkeypatch.setattr(logtail, "FIRST_LOOK", 15)
    chunk = LogTail(path, None).read()
    assert chunk is not None
    assert (chunk.text, chunk.start) == ("line three\n", 18)


def test_a_reader_far_behind_passes_over_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logtail, "MOST_BEHIND", 100)
    monkeypatch.setattr(logtail, "FIRST_LOOK", 50)
    path = tmp_path / "log.txt"
    path.write_text("x" * 9 + "\n")
    tail = LogTail(path, 0)
    drained(tail)
    with path.open("a") as file:
        file.write("".join(f"line {number:03}\n" for number in range(50)))
    chunk = tail.read()
    assert chunk is not None
    assert chunk.start > 10
    assert chunk.text.startswith("line ")
    assert chunk.text.endswith("line 049\n")


def test_one_read_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(b"y" * (CHUNK * 2 + 5))
    tail = LogTail(path, 0)
    sizes = [chunk.offset - chunk.start for chunk in iter(tail.read, None)]
    assert sizes == [CHUNK, CHUNK, 5]


@settings(deadline=None)
@given(text=st.text(max_size=60), cuts=st.lists(st.integers(0, 240), max_size=8))
def test_no_character_is_ever_cut(
    tmp_path_factory: pytest.TempPathFactory, text: str, cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("log") / "log.txt"
    data = text.encode("utf-8", "surrogatepass") if text.isascii() else text.encode("utf-8", "ignore")
    tail = LogTail(path, 0)
    got = ""
    written = 0
    for cut in [*sorted(cuts), len(data)]:
        with path.open("ab") as file:
            file.write(data[written:cut])
        written = max(written, min(cut, len(data)))
        got += drained(tail)
    assert got == data.decode("utf-8")


def test_bytes_that_are_no_text_are_shown_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(b"ok \xff\xfe\x80\x80\x80\x80")
    assert drained(LogTail(path, 0)).startswith("ok ")


@pytest.mark.integration
async def test_a_socket_follows_a_log_and_a_later_attempt(
    person: Callable[..., User],
    live: Callable[[User], Any],
    things: Things,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("apps.realtime.feeds.PATH_SECONDS", 0.0)
    monkeypatch.setattr("apps.realtime.feeds.FLUSH_SECONDS", 0.01)
    socket = await live(await sync_to_async(person)("vera", "viewer"))
    await socket.say("subscribe", topic="log:thing:1", offset=0)
    (tmp_path / "one").write_text("Grüße\n")
    things.paths[1] = str(tmp_path / "one")
    message = await socket.next("log")
    assert message == {"type": "log", "topic": "log:thing:1", "text": "Grüße\n", "start": 0, "offset": 8}
    with (tmp_path / "one").open("a") as file:
        file.write("more\n")
    assert (await socket.next("log"))["start"] == 8
    (tmp_path / "two").write_text("second attempt\n")
    things.paths[1] = str(tmp_path / "two")
    message = await socket.next("log")
    assert (message["start"], message["text"]) == (0, "second attempt\n")
