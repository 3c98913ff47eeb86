"""Verdicts over time: what fires, what ends, and what a gap does."""

from __future__ import annotations

import pytest

from apps.telemetry.domain.alerting.judge import Verdict, unknown
from apps.telemetry.domain.alerting.lifecycle import Standing, Timing, Track, advance

YES = Verdict(True, False, 1.0, 0.5)
NO = Verdict(False, True, 0.0, 0.5)
BETWEEN = Verdict(False, False, 0.45, 0.5)
NULL, GAP = unknown("null"), unknown("gap")
TIMING = Timing(for_seconds=60, resolve_seconds=30, null_seconds=300)
NEXT: dict[str, Standing] = {
    "pend": "pending", "fire": "firing", "drop": "rest", "resolve": "rest", "resolve_null": "rest"
}  # fmt: skip


class Story:
    """One alert, told a verdict every few seconds."""

    def __init__(self, timing: Timing = TIMING) -> None:
        self.timing, self.now = timing, 0.0
        self.standing: Standing = "rest"
        self.track = Track()
        self.moves: list[tuple[float, str]] = []

    def tell(self, verdict: Verdict, seconds: float, step: float = 5.0) -> Story:
        """The same verdict for so long."""
        end = self.now + seconds
        while self.now < end:
            self.now += step
            move, self.track = advance(self.standing, self.track, verdict, self.now, self.timing)
            if move:
                self.moves.append((self.now, move))
                self.standing = NEXT[move]
        return self

    def miss(self, seconds: float) -> Story:
        """Nobody listens."""
        self.now += seconds
        return self


def test_it_fires_once_when_it_held_long_enough_and_ends_when_it_is_over() -> None:
    story = Story().tell(NO, 20).tell(YES, 200).tell(NO, 60)
    assert [move for _at, move in story.moves] == ["pend", "fire", "resolve"]
    assert story.moves[1][0] - story.moves[0][0] == 60
    assert story.moves[2][0] == 220 + 5 + 30


def test_what_ends_early_never_fires() -> None:
    story = Story().tell(YES, 55).tell(NO, 5).tell(YES, 55).tell(BETWEEN, 5)
    assert [move for _at, move in story.moves] == ["pend", "drop", "pend", "drop"]


def test_hysteresis_keeps_it_up() -> None:
    story = Story().tell(YES, 100).tell(BETWEEN, 600)
    assert story.standing == "firing"
    assert Story().tell(YES, 100).tell(NO, 25).tell(BETWEEN, 5).tell(NO, 25).standing == "firing"


def test_without_a_duration_it_fires_at_once() -> None:
    story = Story(Timing(0, 0, 300)).tell(YES, 5)
    assert [move for _at, move in story.moves] == ["fire"]
    assert story.tell(NO, 5).standing == "rest"


@pytest.mark.parametrize("silent", [NULL, GAP])
def test_a_short_silence_does_not_stop_the_clock_and_a_long_one_does(silent: Verdict) -> None:
    story = Story().tell(YES, 40).tell(silent, 20).tell(YES, 10)
    assert story.standing == "firing"
    story = Story().tell(YES, 55).tell(silent, 40).tell(YES, 55)
    assert [move for _at, move in story.moves] == ["pend", "drop", "pend"]


def test_the_end_of_a_gap_starts_no_burst() -> None:
    """Fifty alerts that were about to fire when telemetry stopped: after it is back each needs its whole time."""
    stories = [Story().tell(YES, 55).miss(3600).tell(YES, 55) for _ in range(50)]
    assert all(story.standing == "pending" for story in stories)
    assert all(story.tell(YES, 10).standing == "firing" for story in stories)


def test_what_fires_stays_so_through_a_gap() -> None:
    story = Story().tell(YES, 100).miss(3600).tell(GAP, 3600)
    assert story.standing == "firing"
    # And being over is counted anew after it.
    story = Story().tell(YES, 100).tell(NO, 25).miss(600).tell(NO, 25)
    assert story.standing == "firing"
    assert story.tell(NO, 10).standing == "rest"


def test_what_tells_no_value_for_long_ends() -> None:
    story = Story().tell(YES, 100).tell(NULL, 295)
    assert story.standing == "firing"
    assert story.tell(NULL, 10).moves[-1][1] == "resolve_null"


def test_a_restart_goes_on_where_the_row_says() -> None:
    before = Story().tell(YES, 40)
    after = Story()
    after.now, after.standing, after.track = before.now + 10, "pending", before.track
    assert after.tell(YES, 15).standing == "firing"
    late = Story()
    late.now, late.standing, late.track = before.now + 120, "pending", before.track
    assert late.tell(YES, 55).standing == "pending"
