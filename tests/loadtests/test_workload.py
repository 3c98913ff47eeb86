"""Scenarios, arrivals, lengths, datasets, when a step ends, whether the generator was the bottleneck."""

from __future__ import annotations

import itertools
import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from apps.loadtests.domain import arrivals, datasets
from apps.loadtests.domain.batching_study import arms_of, explain, table
from apps.loadtests.domain.generator import judge
from apps.loadtests.domain.scenario import Length, Load, Prompts, Timing, parse
from apps.loadtests.domain.steady import Tick, is_steady
from apps.loadtests.domain.stopping import StepClock
from apps.loadtests.domain.workload import Workload
from apps.loadtests.policy import MOST_ARMS
from workers.loadgen.plan import processes_for
from workers.loadgen.targets import ONE, THREE, TWO, cut


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({}, "target"),
        ({"target": "demo", "load": {"concurrency": []}}, "concurrency"),
        ({"target": "demo", "load": {"mode": "open", "rate": [0.0]}}, "rate"),
        ({"target": "demo", "load": {"mode": "trace"}}, "dataset"),
        ({"target": "demo", "prompts": {"input": {"distribution": "normal"}}}, "deviation"),
        ({"target": "demo", "prompts": {"dataset": "../secret"}}, "dataset"),
        ({"target": "demo", "prompts": {"input": {"least": 9, "most": 3}}}, "least"),
        ({"target": "demo", "timing": {"seconds": 60.0, "mostSeconds": 30.0}}, "most_seconds"),
        ({"target": "demo", "concurrency": 3}, "concurrency"),
    ],
)
def test_a_scenario_that_makes_no_sense_is_refused(value: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError, match=where):
        parse(value)


def test_the_guides_example_is_a_scenario() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/load-tests.md").read_text(encoding="utf-8")
    document = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    found = parse(document["spec"])
    assert found.load.steps == [1, 2, 4, 8]
    assert found.prompts.shared_prefix == 200


def test_both_spellings_are_one_scenario() -> None:
    camel = parse({"target": "demo", "timing": {"warmUpSeconds": 2.0}, "slo": {"ttftMs": 5.0}})
    assert camel == parse({"target": "demo", "timing": {"warm_up_seconds": 2.0}, "slo": {"ttft_ms": 5.0}})


@pytest.mark.parametrize("kind", ["poisson", "constant", "bursty"])
def test_arrivals_come_at_their_rate_and_are_the_same_for_a_seed(kind: str) -> None:
    load = Load.model_validate({"mode": "open", "arrivals": kind})
    found = list(arrivals.moments(load, 20.0, 200.0, 3))
    assert found == sorted(found)
    assert len(found) / 200 == pytest.approx(20, rel=0.12)
    assert found == list(arrivals.moments(load, 20.0, 200.0, 3))
    gaps = [b - a for a, b in itertools.pairwise(found)]
    variation = statistics.pstdev(gaps) / statistics.mean(gaps)
    assert {"constant": variation < 0.01, "poisson": 0.8 < variation < 1.2, "bursty": variation > 1.8}[kind]


@pytest.mark.parametrize(
    ("shape", "mean", "deviation"),
    [
        ({"distribution": "fixed", "mean": 40.0}, 40, 0),
        ({"distribution": "uniform", "least": 8, "most": 128}, 68, 35),
        ({"distribution": "normal", "mean": 100.0, "deviation": 20.0}, 100, 20),
        ({"distribution": "lognormal", "mean": 100.0, "deviation": 60.0}, 100, 60),
    ],
)
def test_lengths_have_their_distribution(shape: dict[str, Any], mean: float, deviation: float) -> None:
    prompts = Prompts(output=Length.model_validate(shape))
    found = [Workload(prompts, 5).ask(number).tokens for number in range(3000)]
    assert statistics.mean(found) == pytest.approx(mean, rel=0.06)
    assert statistics.pstdev(found) == pytest.approx(deviation, rel=0.12, abs=0.01)


def test_prompts_share_a_beginning_and_differ_by_seed() -> None:
    prompts = Prompts(shared_prefix=20, turns=2)
    one, other = Workload(prompts, 1), Workload(prompts, 2)
    first, again = one.ask(0).text.split(), one.ask(2).text.split()
    assert first[:20] == again[:20]
    assert first[20:] != again[20:]
    assert one.ask(0) == Workload(prompts, 1).ask(0)
    assert one.ask(0).text != other.ask(0).text
    # A follow-up stands behind what was said already.
    assert len(one.ask(1).text.split()) == 32


def test_datasets_of_every_form(tmp_path: Path) -> None:
    lines = [
        {
            "conversations": [
                {"from": "human", "value": "one two three"},
                {"from": "gpt", "value": "a b c d e"},
            ]
        },
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "four"}]},
        {"prompt": "five six", "output_tokens": 9},
        {"conversations": [{"from": "gpt", "value": "no question"}]},
        {"timestamp": 1500, "input_length": 70, "output_length": 5},
    ]
    path = tmp_path / "chats.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    found = datasets.load(path)
    assert [(row.text, row.output_tokens) for row in found] == [
        ("one two three", 6), ("four", None), ("five six", 9), (None, 5),
    ]  # fmt: skip
    assert (found[3].at, found[3].input_tokens) == (1.5, 70)
    whole = tmp_path / "chats.json"
    whole.write_text(json.dumps(lines))
    assert datasets.load(whole) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "line 1 is no JSON"),
        ("[1", "no JSON list"),
        ("3\n", "no object"),
        ('{"input_length": "x"}', "wrong kind"),
        ("{}\n", "no row with a question"),
    ],
)
def test_a_broken_dataset_names_its_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(datasets.DatasetProblem, match=words):
        datasets.load(path)
    with pytest.raises(datasets.DatasetProblem, match="cannot be read"):
        datasets.load(tmp_path / "none.jsonl")


def test_a_step_is_warm_when_every_client_has_had_an_answer() -> None:
    clock = StepClock(Timing(warm_up_seconds=5, seconds=10, requests=4, until_steady=False), "closed", 4, 0.0)
    clock.look(6.0, 0)
    assert clock.begin is None
    clock.tick(10, 4, 0.5)
    clock.look(7.0, 0)
    assert clock.begin == 7.0
    clock.look(16.9, 0)
    assert not clock.ended
    clock.look(17.1, 0)
    assert not clock.ended  # fewer requests than wanted
    clock.tick(10, 4, 0.5)
    clock.look(18.0, 0)
    assert (clock.reason, clock.window and clock.window.seconds) == ("measured", 11.0)


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [([100.0] * 30, "steady"), ([float(10 * second) for second in range(30)], "most_seconds")],
)
def test_a_step_ends_when_it_is_steady_or_when_it_is_long_enough(tokens: list[float], reason: str) -> None:
    clock = StepClock(Timing(warm_up_seconds=0, seconds=10, most_seconds=30, requests=1), "open", 1, 0.0)
    clock.look(0.0, 0)
    for second, count in enumerate(tokens, 1):
        if not clock.ended:
            clock.tick(count, 2, 0.3)
            clock.look(float(second), 0)
    assert clock.reason == reason
    full = StepClock(Timing(warm_up_seconds=0), "open", 1, 0.0)
    full.look(0.0, 0)
    full.look(1.0, 10**8)
    assert full.reason == "records_full"


def test_steady_needs_three_windows_that_agree_in_both() -> None:
    even = [Tick(10, 1, 0.5)] * 9
    assert is_steady(even, 3)
    assert not is_steady(even[:8], 3)
    assert not is_steady([*even[:6], *[Tick(10, 1, 0.7)] * 3], 3)
    assert not is_steady([Tick(0, 0, None)] * 9, 3)


def _part(late: float, lag: float = 1.0, cpu: float = 0.3) -> dict[str, Any]:
    return {
        "late": {"p50_ms": 0.1, "p99_ms": late, "most_ms": 20.0},
        "lag": {"p50_ms": 0.1, "p99_ms": lag},
        "cpu": cpu,
    }


@pytest.mark.parametrize(
    ("parts", "mode", "latency", "bound"),
    [
        ([_part(1.0)], "open", 100.0, False),
        ([_part(1.0), _part(6.0)], "open", 9000.0, True),
        ([_part(6.0)], "closed", 9000.0, False),
        ([_part(6.0)], "closed", 100.0, True),
        ([_part(1.0, lag=30.0)], "open", None, True),
        ([_part(1.0, cpu=0.95)], "open", None, True),
        ([_part(1.0), {}], "open", None, True),
    ],
)
def test_the_generator_says_when_it_was_the_bottleneck(
    parts: list[dict[str, Any]], mode: str, latency: float | None, bound: bool
) -> None:
    found = judge(parts, mode, latency)
    assert found["bound"] is bound
    assert bool(found["reasons"]) is bound


def test_more_load_has_more_processes() -> None:
    load = {"mode": "open", "rate": [1600.0]}
    fixed = {"output": {"mean": 4.0}}
    assert processes_for(parse({"target": "d", "load": load, "prompts": fixed}), 8) == 4
    assert processes_for(parse({"target": "d", "load": load, "prompts": fixed}), 2) == 2
    long = {"output": {"mean": 100.0}}
    assert processes_for(parse({"target": "d", "load": {**load, "rate": [200.0]}, "prompts": long}), 8) == 3
    assert processes_for(parse({"target": "d", "load": load, "processes": 1}), 8) == 1
    assert processes_for(parse({"target": "d", "load": {"concurrency": [300]}}), 8) == 2


def test_the_chat_template_is_cut_around_questions_and_answers() -> None:
    found = cut(f"<s>[U]{ONE}[/U][A]{TWO}[/A][U]{THREE}[/U][A]")
    assert (found.head, found.answer, found.question) == ("<s>[U]", "[/U][A]", "[/A][U]")
    assert cut("no marks").head == ""


def test_the_study_says_what_came_out_and_not_what_is_expected() -> None:
    labels = [arm.label for arm in arms_of(16, full=False)]
    assert labels == ["none", "static", "dynamic", "inflight"]
    assert {"dynamic 0 ms", "inflight batch 8"} <= {arm.label for arm in arms_of(16, full=True)}
    # As many configurations as a comparison takes, however many slots.
    assert max(len(arms_of(slots, full=True)) for slots in (1, 16, 17, 64, 256)) == MOST_ARMS

    def arm(
        label: str, tokens: tuple[float, float, float], p99: tuple[float, float, float]
    ) -> dict[str, Any]:
        def item(base: float, bounds: tuple[float, float, float]) -> dict[str, float]:
            ratio, low, high = bounds
            return {"baseline": base, "value": base * ratio, "ratio": ratio, "low": low, "high": high}

        differences = {"output_tokens_per_second": item(80.0, tokens), "latency_p99_ms": item(9000.0, p99)}
        return {"label": label, "verdict": "v", "differences": differences}

    verdict = {
        "baseline": "none",
        "arms": [
            arm("static", (1.9, 1.8, 2.0), (0.5, 0.45, 0.55)),
            arm("dynamic", (2.0, 1.9, 2.25), (0.5, 0.45, 0.55)),
            arm("inflight", (2.3, 2.2, 2.4), (0.7, 0.6, 0.8)),
        ],
    }
    said = " ".join(explain(verdict))
    assert "more tokens/s than static: their intervals do not overlap" in said
    assert "In-flight and dynamic cannot be told apart" in said
    assert "are higher with in-flight than with static; their intervals do not overlap" in said
    lines = table(verdict)
    assert lines[2].startswith("| none |")
    assert "+130% (120 to 140)" in lines[-1]
