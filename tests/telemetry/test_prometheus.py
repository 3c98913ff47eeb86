"""The reader of the exposition format, against the reference implementation and real servers' oddities."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from apps.telemetry.domain import prometheus

DATA = Path(__file__).parent.parent / "data" / "metrics"

# Values as text: NaN is not equal to itself.
Line = tuple[str, tuple[tuple[str, str], ...], str]


def lines_of(exposition: prometheus.Exposition) -> list[Line]:
    """All samples, comparable."""
    return sorted(
        (name, tuple(sorted(sample.labels.items())), repr(sample.value))
        for name, samples in exposition.samples.items()
        for sample in samples
    )


def reference(text: str) -> list[Line]:
    """The same by prometheus_client, which renames what it is told is a counter; so it is not told."""
    text = "\n".join(line for line in text.split("\n") if not line.startswith("#"))
    return sorted(
        (sample.name, tuple(sorted(sample.labels.items())), repr(float(sample.value)))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    )


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


NAMES = st.from_regex(r"[a-z_:][a-z0-9_:]{0,10}", fullmatch=True)
LABELS = st.dictionaries(
    st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters='\n"\\,{}= #'), max_size=12),
    max_size=4,
)
VALUES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["0", "+Inf", "-Inf", "1e+06", "1.5E-3", "42.000000"]),
)


# Between name, labels, value and time stamp.
SPACES = st.sampled_from([" ", "  ", "\t", " \t"])
TIMES = st.one_of(st.none(), st.integers(0, 2_000_000_000_000))
ROWS = st.tuples(NAMES, LABELS, VALUES, TIMES, SPACES, st.booleans(), st.sampled_from(["", " ", ","]))


def written(rows: list[Any], newline: bool) -> str:
    """An exposition of rows, in the spellings that servers use."""
    lines = []
    for name, labels, value, at, space, announced, odd in rows:
        if announced:
            lines += [f'# HELP {name} Any \\n text {{}} "', f"# TYPE {name} gauge", ""]
        inside = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
        inside += "," if labels and odd == "," else ""
        gap = " " if odd == " " else ""
        block = f"{{{gap}{inside}{gap}}}" if labels or odd else ""
        stamp = "" if at is None else f"{space}{at}"
        lines.append(f"{name}{block}{space}{value}{stamp}")
    return "\n".join(lines) + ("\n" if newline else "")


@settings(deadline=None, max_examples=120)
@given(st.lists(ROWS, max_size=12), st.booleans())
def test_reads_what_the_reference_reads(rows: list[Any], newline: bool) -> None:
    text = written(rows, newline)
    expected = reference(text)
    assert lines_of(prometheus.parse(text)) == expected
    # What stands before the values is known now; other values must not get the old ones.
    assert lines_of(prometheus.parse(text)) == expected
    changed = written([(*row[:2], "7.5", *row[3:]) for row in rows], newline)
    assert lines_of(prometheus.parse(changed)) == reference(changed)


@settings(deadline=None)
@given(st.lists(ROWS, max_size=12), st.frozensets(NAMES, max_size=3))
def test_wanted_names_are_those_of_the_reference(rows: list[Any], others: frozenset[str]) -> None:
    wanted = others | {row[0] for row in rows[::2]}
    text = written(rows, True)
    expected = [
        line for line in reference(text) if line[0] in wanted or prometheus.family_of(line[0]) in wanted
    ]
    for _twice in range(2):
        assert lines_of(prometheus.parse(text, wanted)) == expected


@settings(deadline=None)
@given(st.text(max_size=200))
def test_nothing_makes_it_fail(text: str) -> None:
    first = prometheus.parse(text)
    again = prometheus.parse(text)
    assert (lines_of(first), first.unreadable) == (lines_of(again), again.unreadable)


@pytest.mark.parametrize("name", ["h200-load.txt", "h200-idle.txt", "trtllm-0.7.txt", "trtllm-0.19.txt"])
def test_real_servers(name: str) -> None:
    text = (DATA / name).read_text()
    found = prometheus.parse(text)
    assert found.unreadable == 0
    assert lines_of(found) == reference(text)


def test_oddities_of_servers_of_several_ages() -> None:
    found = prometheus.parse((DATA / "oddities.txt").read_text())
    assert {s.labels["model"]: s.value for s in found.samples["nv_inference_request_success"]} == {
        "simple": 40.0,
        'a,b}"c\\d': 1_500_000.0,
    }
    # Announced without samples: known, and without a value; never 0.
    assert found.kinds["nv_inference_request_failure"] == "counter"
    assert found.kinds["nv_inference_load_ratio"] == "histogram"
    assert found.total("nv_inference_request_failure") is None
    assert found.total("nv_gpu_utilization") == 0.12
    # NaN is no value.
    assert math.isnan(found.samples["nv_gpu_power_usage"][0].value)
    assert found.total("nv_gpu_power_usage") is None
    assert found.total("nv_energy_consumption") == 317_000.0


def test_only_what_is_wanted_is_kept() -> None:
    text = 'a_bucket{le="1"} 1\na_sum 2\na_count 1\nb 3\nab 4\n# TYPE b gauge\n# TYPE a histogram'
    found = prometheus.parse(text, {"a"})
    assert set(found.samples) == {"a_bucket", "a_sum", "a_count"}
    assert found.kinds == {"a": "histogram"}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("a 1 1700000000000", 1.0),
        ('a{x="1"} 2 # {trace="}"} 1', 2.0),
        ('a{x="1",} 3', 3.0),
        ("  a   4  ", 4.0),
        ("a 5\r", 5.0),
        ("a{} 6", 6.0),
        ('a{ x = "1" } 7', 7.0),
    ],
)
def test_spellings_that_servers_use(line: str, value: float) -> None:
    assert prometheus.parse(line).total("a") == value


@pytest.mark.parametrize(
    "line",
    ["a", "a one", "a 1_000", 'a{x="1} 2', "a{x=1} 2", "a 1 2 3", "1a 3", 'a{x="1" y="2"} 3', "a 0x10"],
)
def test_what_cannot_be_read_is_counted_and_passed_over(line: str) -> None:
    found = prometheus.parse(f"before 1\n{line}\nafter 2")
    assert found.unreadable == 1
    assert (found.total("before"), found.total("after"), found.total("a")) == (1.0, 2.0, None)
