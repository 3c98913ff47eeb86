"""Steps, their shares and the time left."""

from __future__ import annotations

import io

import pytest

from deploy.local.progress import Steps, duration, remaining


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("elapsed", "share", "expected"),
    [(10, 0.5, 10), (10, 1, 0), (10, 0.01, None), (0, 0.5, None), (10, 1.5, None)],
)
def test_time_left_follows_the_pace(elapsed: float, share: float, expected: float | None) -> None:
    assert remaining(elapsed, share) == expected


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.9, "1 min 00 s"),
        (125, "2 min 05 s"),
    ],
)
def test_durations_are_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_log_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    out, clock = io.StringIO(), Clock()
    with Steps(2, out=out, clock=clock).step("Packages") as step:
        for second in range(1, 13):
            clock.now = float(second)
            step.update(second / 24, f"package {second}")
        step.note("24 packages")
    assert out.getvalue().splitlines() == [
        "[1/2] Packages: 21%, about 19 s left, package 5",
        "[1/2] Packages: 42%, about 14 s left, package 10",
        "[1/2] Packages: 24 packages, done in 12 s",
    ]


def test_terminal_line_is_redrawn_and_closed() -> None:
    out, clock = Terminal(), Clock()
    with Steps(1, out=out, clock=clock).step("Packages") as step:
        clock.now = 1.0
        step.update(0.5)
        step.say("a line of a child")
    text = out.getvalue()
    assert "\r\x1b[2K[1/1] Packages: 50%, about 1.0 s left" in text
    assert text.endswith("      a line of a child\n[1/1] Packages: done in 1.0 s\n")


def test_failed_step_says_so() -> None:
    out = io.StringIO()
    with pytest.raises(RuntimeError), Steps(1, out=out).step("Packages") as step:
        step.note("never shown")
        raise RuntimeError
    assert out.getvalue() == "[1/1] Packages: failed after 0.0 s\n"


def test_share_outside_its_bounds_is_held_in_them() -> None:
    out, clock = io.StringIO(), Clock()
    with Steps(1, out=out, clock=clock).step("x") as step:
        clock.now = 6.0
        step.update(1.7)
    assert "x: 100%" in out.getvalue()
