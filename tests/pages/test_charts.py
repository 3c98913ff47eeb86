"""First figures and sparklines: nothing is made up, and a gap stays a gap."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from apps.dashboard import charts, sparklines


def _samples(*seconds: float, **values: float | None) -> list[dict[str, Any]]:
    return [{"at": at, "generated_tokens_per_second": at - 1000, **values} for at in seconds]


LINES = (charts.Line("generated_tokens_per_second", "generated"),)


def test_rows_break_where_seconds_are_missing() -> None:
    found = charts.rows(_samples(1000, 1001, 1005), LINES, window=300, step=1, now=1010)
    assert found == [[1000, 0], [1001, 1], [1002, None], [1005, 5]]


def test_a_late_second_is_no_gap() -> None:
    found = charts.rows(_samples(1000.1, 1001.6), LINES, window=300, step=1, now=1010)
    assert [row[1] for row in found] == [0.1, 1.6]


def test_absent_is_null_and_not_zero() -> None:
    samples = _samples(1000, generated_tokens_per_second=None)
    assert charts.rows(samples, LINES, window=300, step=1, now=1001) == [[1000, None]]


def test_samples_outside_the_window_are_left_out() -> None:
    assert charts.rows(_samples(100, 1000), LINES, window=300, step=1, now=1001) == [[1000, 0]]


def test_longer_windows_show_means_of_steps() -> None:
    found = charts.rows(_samples(1002, 1004, 1008), LINES, window=3600, step=6, now=1010)
    assert found == [[1003, 3], [1008, 8]]


def test_a_share_is_scaled_to_percent() -> None:
    found = charts.rows([{"at": 1000, "kv_use": 0.125}], charts.KV.lines, window=300, step=1, now=1001)
    assert found == [[1000, 12.5]]


@pytest.mark.parametrize("name", charts.RANGES)
def test_no_range_has_more_than_600_points(name: str) -> None:
    window, step = charts.RANGES[name]
    assert window / step <= 600


@pytest.mark.parametrize(
    "panels", [charts.live_panels(False), charts.live_panels(True), charts.playground_panels(True)]
)
def test_cards_are_json_and_carry_no_colour(panels: tuple[charts.Panel, ...]) -> None:
    card = charts.card(panels, [], topic="metrics:1")
    text = json.dumps(card, default=str)
    assert "#" not in text.replace("&#", "")
    assert card["note"] == "No samples yet."
    assert (
        len(card["figure"]["keys"]) == len(card["figure"]["figure"]["data"]) == len(card["figure"]["colors"])
    )


def test_rows_of_a_stack_share_one_time_axis() -> None:
    layout = charts.card(charts.playground_panels(False), [], topic="metrics:1")["figure"]["figure"]
    assert {trace["xaxis"] for trace in layout["data"]} == {"x"}
    domains = [layout["layout"][f"yaxis{n or ''}"]["domain"] for n in ("", 2, 3, 4, 5)]
    assert all(above[0] > below[1] for above, below in pairwise(domains))


class TestSparklines:
    """Means of five seconds over five minutes."""

    def test_buckets_have_one_place_for_each_step(self) -> None:
        values = sparklines.buckets(_samples(1195, 1197, 1203), "generated_tokens_per_second", 1204)
        assert len(values) == sparklines.POINTS
        assert values[-2:] == [196, 203]
        assert values[:-2] == [None] * (sparklines.POINTS - 2)

    def test_a_gap_lifts_the_pen(self) -> None:
        assert sparklines.path([0, 2, None, 1]) == "M0.0 22.5h.01L33.3 1.5M100.0 12.0h.01"

    def test_nothing_known_draws_nothing(self) -> None:
        assert sparklines.path([None, None]) == ""

    def test_all_zero_is_a_line_at_the_bottom(self) -> None:
        assert sparklines.path([0, 0]) == "M0.0 22.5h.01L100.0 22.5"

    @pytest.mark.parametrize(
        ("values", "share"),
        [
            ([10.0] * 60 + [12.0] * 60, 0.2),
            ([10.0] * 60 + [None] * 60, None),
            ([0.0] * 60 + [5.0] * 60, None),
            ([None] * 55 + [10.0] * 5 + [5.0] * 60, None),
            ([None] * 54 + [10.0] * 6 + [5.0] * 60, -0.5),
        ],
    )
    def test_change_against_the_time_before(self, values: list[float | None], share: float | None) -> None:
        found = sparklines.change(values)
        assert found == (None if share is None else pytest.approx(share))
