"""Figures of charts: nothing is made up, a gap stays a gap, a range means what its address says."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import pytest

from apps.core.exceptions import InvalidInput
from apps.dashboard import sparklines
from apps.dashboard.charts import cards, distributions, frames, panels, ranges, source
from apps.dashboard.charts.distributions import BatchLimits, Distribution
from apps.dashboard.charts.frames import Frame
from apps.telemetry.domain.vocabulary import BY_NAME

NOW = 1_700_000_000.0
KEY = "generated_tokens_per_second"


def _samples(*seconds: float, **values: float | None) -> list[dict[str, Any]]:
    return [{"at": at, KEY: at - 1000, **values} for at in seconds]


class TestFrames:
    """Samples and points in columns."""

    def test_a_silence_is_a_row_of_nulls(self) -> None:
        frame = frames.of_samples(_samples(1000, 1001, 1005), [KEY], 900, 1010, 1)
        assert frame.at == [1000, 1001, 1002, 1005]
        assert frame.columns[KEY] == [0, 1, None, 5]

    def test_a_late_second_is_no_gap(self) -> None:
        frame = frames.of_samples(_samples(1000.1, 1001.6), [KEY], 900, 1010, 1)
        assert frame.columns[KEY] == [0.1, 1.6]

    def test_absent_is_null_and_not_zero(self) -> None:
        samples = [{"at": 1000, KEY: None}, {"at": 1001}]
        assert frames.of_samples(samples, [KEY], 900, 1010, 1).columns[KEY] == [None, None]

    def test_the_step_that_goes_on_is_left_to_the_live_samples(self) -> None:
        frame = frames.of_samples(_samples(1002, 1004, 1008), [KEY], 900, 1010, 6)
        assert frame.live_from == 1008
        assert (frame.at, frame.columns[KEY]) == ([1003], [3])

    def test_of_quantiles_a_step_shows_the_highest(self) -> None:
        samples = [{"at": 1002, "ttft_p99_ms": 10.0}, {"at": 1004, "ttft_p99_ms": 90.0}]
        frame = frames.of_samples(samples, ["ttft_p99_ms"], 900, 1010, 6)
        assert frame.columns["ttft_p99_ms"] == [90.0]
        assert frame.as_json()["kinds"] == {"ttft_p99_ms": "highest"}

    def test_an_earlier_period_is_moved_onto_the_range(self) -> None:
        frame = frames.shifted(Frame(1, 20, [10, 11], {KEY: [1, None]}), 100)
        assert (frame.at, frame.columns[KEY]) == ([110, 111], [1, None])


class TestCards:
    """What a card shows of a frame."""

    def _frame(self, **columns: list[float | None]) -> Frame:
        length = max((len(column) for column in columns.values()), default=0)
        return Frame(1, 1000 + length, [1000.0 + n for n in range(length)], dict(columns))

    def test_cards_are_json_and_carry_no_colour(self) -> None:
        cost = panels.cost(2.0, "", "")
        for gpu in (False, True):
            for section in panels.deployment_sections(gpu, cost):
                for panel in section.panels:
                    card = cards.line_card([panel], self._frame())
                    text = json.dumps(card, default=str)
                    assert "#" not in text.replace("&#", "")
                    assert card["note"] == "No samples yet."
                    assert len(card["figure"]["lines"]) == len(card["figure"]["figure"]["data"])

    def test_every_line_speaks_the_vocabulary(self) -> None:
        every = [*panels.fleet_panels(), *panels.playground_panels(True), *panels.playground_panels(False)]
        for gpu in (True, False):
            for section in panels.deployment_sections(gpu, panels.cost(1.0, "", "")):
                every += section.panels
        unknown = {key for panel in every for line in panel.lines for key in line.keys} - set(BY_NAME)
        assert unknown == set()

    def test_gpu_charts_stand_only_where_a_gpu_is(self) -> None:
        cost = panels.cost(None, "Set it.", "/fleet/")
        found = {
            gpu: {p.id for section in panels.deployment_sections(gpu, cost) for p in section.panels}
            for gpu in (True, False)
        }
        assert {"power", "temperature", "efficiency"} <= found[True]
        assert not {"power", "gpu", "efficiency"} & found[False]
        assert "cpu" in found[False]

    def test_optional_lines_stand_only_where_something_is_told(self) -> None:
        frame = self._frame(itl_p50_ms=[1.0], tpot_p50_ms=[None])
        names = [trace["name"] for trace in cards.line_card([panels.ITL], frame)["traces"]]
        assert names == ["p50", "p99"]

    def test_a_quotient_is_absent_where_its_divisor_is_zero_or_absent(self) -> None:
        (line,) = panels.EFFICIENCY.lines
        column = {"generated_tokens_per_second": [400.0], "gpu_power_watts": [200.0]}
        assert cards.value(self._frame(**column), line) == 2.0
        assert cards.value(self._frame(**column | {"gpu_power_watts": [0.0]}), line) is None
        assert cards.value(self._frame(**column | {"gpu_power_watts": [None]}), line) is None

    def test_cost_of_a_million_tokens(self) -> None:
        # 3.6 an hour is 0.001 a second; at 100 tokens a second a million of them takes 10 000 s.
        (line,) = panels.cost(3.6, "", "").lines
        assert cards.value(self._frame(generated_tokens_per_second=[100.0]), line) == pytest.approx(10.0)

    def test_an_unknown_price_draws_nothing_and_says_what_to_set(self) -> None:
        card = cards.line_card([panels.cost(None, "Set the price.", "/fleet/")], self._frame())
        assert (card["traces"], card["hint"], card["hint_url"]) == ([], "Set the price.", "/fleet/")

    def test_rows_of_a_stack_share_one_time_axis(self) -> None:
        card = cards.conversation_card(panels.playground_panels(False), [], topic="metrics:1", name="x")
        figure = card["figure"]["figure"]
        assert {trace["xaxis"] for trace in figure["data"]} == {"x"}
        domains = [figure["layout"][f"yaxis{n or ''}"]["domain"] for n in ("", 2, 3, 4, 5)]
        assert all(above[0] > below[1] for above, below in pairwise(domains))


class TestRanges:
    """Time ranges in addresses."""

    @pytest.mark.parametrize("name", ranges.RANGES)
    def test_a_named_range_ends_now_and_moves_on(self, name: str) -> None:
        found = ranges.parse({"range": name}, NOW)
        assert (found.until, found.seconds, found.live) == (NOW, ranges.RANGES[name], True)
        assert ranges.parse(dict(pair.split("=") for pair in found.query.split("&")), NOW) == found

    @pytest.mark.parametrize(
        ("since", "until"),
        [
            ("1699990000", "1699999000"),
            ("2023-11-14T19:26:40", "2023-11-14T21:56:40+00:00"),
            ("2023-11-14T20:26:40+01:00", "1699999000.0"),
        ],
    )
    def test_a_range_of_ones_own(self, since: str, until: str) -> None:
        found = ranges.parse({"from": since, "to": until}, NOW)
        assert (found.since, found.until, found.live) == (1_699_990_000, 1_699_999_000, False)

    def test_the_future_is_cut_off(self) -> None:
        assert ranges.parse({"from": str(NOW - 60), "to": str(NOW + 60)}, NOW).until == NOW

    def test_the_compared_period_never_overlaps(self) -> None:
        assert ranges.parse({"range": "1h", "compare": "before"}, NOW).offset == 3600
        assert ranges.parse({"range": "7d", "compare": "day"}, NOW).offset == 7 * 86_400
        assert ranges.parse({"range": "1h", "compare": "week"}, NOW).offset == 7 * 86_400

    @pytest.mark.parametrize(
        ("query", "field"),
        [
            ({"range": "2h"}, "range"),
            ({"range": "<script>"}, "range"),
            ({"compare": "year"}, "compare"),
            ({"from": "yesterday"}, "from"),
            ({"from": "nan", "to": "1"}, "from"),
            ({"from": str(NOW - 60), "to": "inf"}, "to"),
            ({"from": "1700000000000"}, "from"),
            ({"from": "5", "to": "6"}, "from"),
            ({"from": str(NOW - 60), "to": str(NOW - 61)}, "from"),
            ({"from": str(NOW + 60), "to": str(NOW + 120)}, "from"),
            ({"from": "1000000001", "to": str(NOW)}, "from"),
        ],
    )
    def test_nonsense_names_the_parameter_and_a_remedy(self, query: dict[str, str], field: str) -> None:
        with pytest.raises(InvalidInput) as refused:
            ranges.parse(query, NOW)
        assert refused.value.field == field
        assert refused.value.remedy


class TestDistributions:
    """Histograms as charts."""

    def test_buckets_that_nothing_fell_into_are_left_out_at_both_ends(self) -> None:
        counts = [[0.0, 2.0, 0.0, 1.0, 0.0], None]
        found = distributions.heat_json(Distribution([10.0, 20.0], [5, 10, 20, 50, math.inf], counts))
        assert found["labels"] == ["≤ 10", "≤ 20", "≤ 50"]
        assert found["counts"] == [[2, 0, 1], None]
        assert found["total"] == 3

    def test_no_observations_are_no_chart(self) -> None:
        assert distributions.heat_json(Distribution([], [], []))["times"] == []
        assert distributions.heat_json(Distribution([1.0], [5, math.inf], [[0.0, 0.0]]))["times"] == []

    def test_a_silence_has_an_empty_column_at_each_end(self) -> None:
        found = source.with_gaps([5, 15, 35, 95], [1, math.inf], [[1, 0]] * 4, 10)
        assert found.times == [5, 15, 25, 35, 45, 85, 95]
        assert [column is None for column in found.counts] == [False, False, True, False, True, True, False]

    def test_the_shown_histogram_is_one_that_has_something(self) -> None:
        some = {"times": [1.0], "labels": ["≤ 5"], "counts": [[1]], "unit": "ms", "total": 1}
        card = distributions.heat_card({"ttft": {**some, "times": []}, "e2e": some})
        assert [choice["name"] for choice in card["choices"] if choice["chosen"]] == ["e2e"]

    def test_names_of_batch_sizes(self) -> None:
        labels = distributions.size_labels([1, 2, 4, 8, math.inf])
        assert labels == ["1", "2", "3\u20134", "5\u20138", "> 8"]

    def test_sizes_that_never_form_are_shown_up_to_the_largest_possible(self) -> None:
        found = distributions.bars_json(
            Distribution([1.0], [1, 2, 4, 8, 16, math.inf], [[3.0, 1.0, 0.0, 0.0, 0.0, 0.0]]),
            BatchLimits(8, (4, 8)),
        )
        assert found["labels"] == ["1", "2", "3\u20134", "5\u20138"]
        assert found["shares"] == [75, 25, 0, 0]
        assert (found["most"], found["preferred"], found["steps"]) == (3, [2, 3], 4)

    def test_without_steps_there_is_nothing_to_show(self) -> None:
        found = distributions.bars_json(Distribution([], [], []), BatchLimits(16))
        assert (found["labels"], found["shares"], found["most"]) == ([], [], None)


class TestSparklines:
    """Means of five seconds over five minutes."""

    def test_buckets_have_one_place_for_each_step(self) -> None:
        values = sparklines.buckets(_samples(1195, 1197, 1203), KEY, 1204)
        assert len(values) == sparklines.POINTS
        assert values[-2:] == [196, 203]
        assert values[:-2] == [None] * (sparklines.POINTS - 2)

    def test_a_gap_lifts_the_pen(self) -> None:
        assert sparklines.path([0, 2, None, 1]) == "M0.0 22.5h.01L33.3 1.5M100.0 12.0h.01"

    def test_several_lines_share_a_scale(self) -> None:
        assert sparklines.path([0, 2], top=4) == "M0.0 22.5h.01L100.0 12.0"

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
