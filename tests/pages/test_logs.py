"""Log files behind the log view."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from apps.accounts.roles import VIEWER
from apps.dashboard import logs
from tests.pages.conftest import World


@pytest.fixture
def log_file() -> Path:
    """A log of 5000 lines inside the home."""
    path = Path(settings.INFLIGHT_HOME) / "builds" / "7-1" / "log.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"line {number}\n" for number in range(5000)), encoding="utf-8")
    return path


def test_the_tail_begins_at_a_line_and_counts_those_before(log_file: Path) -> None:
    tail = logs.tail(str(log_file), 1000)
    lines = tail.text.splitlines()
    assert lines[0] == f"line {tail.lines_before}"
    assert lines[-1] == "line 4999"
    assert tail.end == log_file.stat().st_size
    assert len(lines) + tail.lines_before == 5000


def test_a_short_log_is_there_from_its_first_line(log_file: Path) -> None:
    log_file.write_text("one\ntwo\n", encoding="utf-8")
    assert logs.tail(str(log_file)) == logs.Tail("one\ntwo\n", 8, 0)


@pytest.mark.parametrize("path", ["", "/etc/passwd", "builds/none.txt"])
def test_no_file_and_files_outside_the_home_give_nothing(path: str) -> None:
    assert logs.tail(path) == logs.Tail()


def test_a_link_that_leads_out_of_the_home_is_not_followed(log_file: Path) -> None:
    link = log_file.parent / "out.txt"
    link.unlink(missing_ok=True)
    link.symlink_to("/etc/passwd")
    assert logs.tail(str(link)) == logs.Tail()


def test_broken_utf8_does_not_break_the_page(log_file: Path) -> None:
    log_file.write_bytes(b"good\n\xff\xfe bad\n")
    assert "bad" in logs.tail(str(log_file)).text


def test_the_log_of_a_build(world: World, log_file: Path, sign_in: Callable[..., Client]) -> None:
    client = sign_in(VIEWER)
    empty = client.get("/builds/7/log")
    assert (empty.status_code, empty.content) == (200, b"")
    type(world.build).objects.update(log_path=str(log_file))
    answer = client.get("/builds/7/log")
    assert answer.headers["X-Log-End"] == str(log_file.stat().st_size)
    assert answer.content.decode().startswith("line 0\n")
    saved = client.get("/builds/7/log?download=1")
    assert 'filename="build-7.log"' in saved.headers["Content-Disposition"]
    assert b"".join(saved.streaming_content).endswith(b"line 4999\n")  # type: ignore[attr-defined]
    assert "line 4999" in client.get("/builds/7/").content.decode()


def test_a_missing_download_says_so(world: World, sign_in: Callable[..., Client]) -> None:
    answer = sign_in(VIEWER).get("/builds/7/log?download=1")
    assert answer.status_code == 404
    assert "There is no log file." in answer.content.decode()
