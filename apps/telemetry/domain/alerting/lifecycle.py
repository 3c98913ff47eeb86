"""Verdicts over time -> what happens to one alert.

A condition must hold for `for_seconds` without a break before the alert fires. A time in which nothing could be said
(no samples, telemetry not running) breaks it: the clock starts anew, so that the end of a gap never starts a burst.
What fires stays so through any gap; it ends when the condition was over for `resolve_seconds`, or when samples come
and tell no value for `null_seconds` (nothing happens any more that could be wrong).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from apps.telemetry.domain.alerting.judge import Verdict

# "rest": no alert. Acknowledged alerts are "firing" here.
Standing = Literal["rest", "pending", "firing"]
Move = Literal["", "pend", "fire", "drop", "resolve", "resolve_null"]

# A condition that was not seen to hold for this long is no longer the same occurrence.
LONGEST_BREAK = 30.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that a condition holds before it fires, is over before it ends, or tells nothing before it ends."""

    for_seconds: float
    resolve_seconds: float
    null_seconds: float


@dataclass(frozen=True, slots=True)
class Track:
    """Moments (epoch seconds) of one alert: since when it holds, when it last held, since when it is over or null."""

    true_since: float | None = None
    last_true: float | None = None
    clear_since: float | None = None
    null_since: float | None = None
    seen: float | None = None


def advance(
    standing: Standing, track: Track, verdict: Verdict, now: float, timing: Timing
) -> tuple[Move, Track]:
    """The move that this verdict asks for, and the moments as they are after it."""
    # After a break in listening, times that were counted before it do not go on.
    broken = track.seen is not None and now - track.seen > LONGEST_BREAK
    if broken:
        track = replace(track, clear_since=None, null_since=None)
    if verdict.active is None:
        return _nothing_said(standing, track, verdict, now, timing)
    track = replace(track, seen=now, null_since=None)
    if verdict.active:
        return _holds(standing, track, now, timing)
    if standing == "pending":
        return "drop", Track(seen=now)
    if standing == "rest":
        return "", Track(seen=now)
    if not verdict.cleared:
        return "", replace(track, clear_since=None)
    since = track.clear_since if track.clear_since is not None else now
    move: Move = "resolve" if now - since >= timing.resolve_seconds else ""
    return move, replace(track, clear_since=since)


def _holds(standing: Standing, track: Track, now: float, timing: Timing) -> tuple[Move, Track]:
    fresh = track.last_true is None or now - track.last_true > LONGEST_BREAK
    since = now if fresh or track.true_since is None else track.true_since
    track = replace(track, true_since=since, last_true=now, clear_since=None)
    if standing == "firing":
        return "", track
    if now - since >= timing.for_seconds:
        return "fire", track
    return ("pend" if standing == "rest" else ""), track


def _nothing_said(
    standing: Standing, track: Track, verdict: Verdict, now: float, timing: Timing
) -> tuple[Move, Track]:
    track = replace(track, seen=now, clear_since=None)
    if standing == "pending" and (track.last_true is None or now - track.last_true > LONGEST_BREAK):
        return "drop", Track(seen=now)
    if standing != "firing" or verdict.silence != "null":
        return "", replace(track, null_since=None)
    since = track.null_since if track.null_since is not None else now
    move: Move = "resolve_null" if now - since >= timing.null_seconds else ""
    return move, replace(track, null_since=since)
