"""Figures and times as a person reads them; the browser's copy says the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from apps.dashboard import formats

T = formats.THIN
NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (None, 0, "\u2013"),
        (0, 0, "0"),
        (999, 0, "999"),
        (1234, 0, f"1{T}234"),
        (1234567.89, 1, f"1{T}234{T}567.9"),
    ],
)
def test_grouped(value: float | None, digits: int, text: str) -> None:
    assert formats.grouped(value, digits) == text


SIGNIFICANT = [
    (None, "\u2013"),
    (0, "0"),
    (0.424, "0.42"),
    (4.2, "4.2"),
    (42.06, "42.1"),
    (421.4, "421"),
    (4210, f"4{T}210"),
]
DURATIONS = [
    (None, "\u2013"), (0.42, f"0.4{T}s"), (9.94, f"9.9{T}s"), (45, f"45{T}s"), (192, f"3{T}min 12{T}s"),
    (7500, f"2{T}h 05{T}min"), (270000, f"3{T}d 3{T}h"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), SIGNIFICANT)
def test_significant(value: float | None, text: str) -> None:
    assert formats.significant(value) == text


@pytest.mark.parametrize(("value", "text"), DURATIONS)
def test_duration(value: float | None, text: str) -> None:
    assert formats.duration(value) == text


def test_sizes_name_their_unit() -> None:
    assert str(formats.filesize(98_362_432)) == f"98.4{T}MB"
    assert str(formats.filesize(512)) == f"512{T}B"
    assert str(formats.memory(360 * 2**20)) == f"360{T}MiB"
    assert str(formats.count(134_515_008)) == f"135{T}M"
    assert str(formats.filesize(None)) == formats.ABSENT


@pytest.mark.parametrize(
    ("before", "text"),
    [(1, "now"), (12, f"12{T}s ago"), (180, f"3{T}min ago"), (7200, f"2{T}h ago"), (86400, "1 day ago"),
     (4 * 86400, "4 days ago"), (40 * 86400, "2025-11-23"), (-60, f"in 1{T}min")],
)  # fmt: skip
def test_relative(before: int, text: str) -> None:
    assert formats.relative(NOW - timedelta(seconds=before), NOW) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, ""), (0.004, ""), (0.124, f"+12{T}%"), (-0.5, f"\u221250{T}%"), (40.0, f"+999{T}%")],
)
def test_change(share: float | None, text: str) -> None:
    assert formats.change(share) == text
