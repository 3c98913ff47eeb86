"""Draining pipes: whole lines, bounded lines, bounded files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workers.pumps import CUT, MAX_LINE_BYTES, LogFile, Pump


def pumped(chunks: list[bytes]) -> list[bytes]:
    read, write = os.pipe()
    lines: list[bytes] = []
    pump = Pump(read, "test", lines.append)
    pump.start()
    for chunk in chunks:
        os.write(write, chunk)
    os.close(write)
    pump.join(5)
    assert not pump.is_alive()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)
    return lines


def test_lines_over_chunks() -> None:
    assert pumped([b"one\ntw", b"o\n", b"\n", b"end"]) == [b"one\n", b"two\n", b"\n", b"end\n"]


def test_a_long_line_is_cut_once_and_the_next_one_is_whole() -> None:
    lines = pumped([b"x" * 20_000, b"y" * 20_000, b"tail\nnext\n"])
    assert lines == [b"x" * MAX_LINE_BYTES + CUT.encode(), b"next\n"]


def test_a_line_without_end_takes_no_memory() -> None:
    lines = pumped([b"z" * 60_000] * 20)
    assert sum(len(line) for line in lines) < 3 * MAX_LINE_BYTES


def test_the_log_is_bounded_and_closed_quietly(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "a" / "log.txt", limit=100)
    for _ in range(10):
        log.write(b"twelve bytes\n")
    log.close()
    log.write(b"late\n")
    text = log.path.read_text()
    assert text.count("twelve") == 8
    assert text.endswith("left out]\n")


def test_tail_begins_with_a_whole_line(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "log.txt")
    for number in range(100):
        log.say(f"line {number}")
    log.write(b"\xff\xfe\n")
    tail = log.tail(60)
    log.close()
    assert tail.splitlines()[0].startswith("[inflight] line")
    assert tail.endswith("\ufffd\ufffd\n")
    assert log.tail(10**6).startswith("[inflight] line 0\n")
    before, text = log.numbered_tail(60)
    assert text.startswith(f"[inflight] line {before}")
    assert log.numbered_tail(10**6)[0] == 0


def test_a_full_disk_loses_the_line_and_nothing_else() -> None:
    log = LogFile(Path("/dev/full"))
    log.say("lost")
    log.close()
