"""The tuner without a database: the space, what it looks for, what it proposes, what it says; and the simulation."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from apps.core.exceptions import InvalidInput
from apps.loadtests.domain import tuner_goals, tuner_parameters, tuner_prior
from apps.loadtests.domain.queue_model import (
    EMBEDDED,
    Ask,
    Policy,
    Slo,
    closed_loop,
    fit,
    open_loop,
    poisson,
)
from apps.loadtests.domain.scenario import parse
from apps.loadtests.domain.tuner_goals import Constraint, Goals, Tried
from apps.loadtests.domain.tuner_report import report
from apps.loadtests.domain.tuner_request import TuningFields
from apps.loadtests.domain.tuner_space import Config, Parameter, Space, key_of
from apps.loadtests.tuning_search import Budget, Search

SPACE = Space(
    [
        Parameter("strategy", ("inflight", "dynamic")),
        Parameter("max_batch_size", (2, 4, 8, 16, 32), ordered=True),
        Parameter("max_queue_delay_microseconds", (0, 1000, 5000), ordered=True),
    ],
    lambda config: {"max_queue_delay_microseconds"} if config["strategy"] == "inflight" else set(),
)
GOALS = Goals(("output_tokens_per_second",), (Constraint("ttft_p99_ms", 500.0, True),))
PROFILE: dict[str, Any] = {"strategy": "dynamic", "max_batch_size": 6, "trtllm": {}}


def config(strategy: str = "inflight", batch: int = 8, delay: int = 0) -> Config:
    return {"strategy": strategy, "max_batch_size": batch, "max_queue_delay_microseconds": delay}


def measured(number: int, tokens: float | None, ttft: float | None = 100.0, **chosen: Any) -> Tried:
    figures = {"output_tokens_per_second": tokens, "ttft_p99_ms": ttft}
    return Tried(number, config(**chosen), "measured", figures)


# ---------------------------------------------------------------------- simulation


@pytest.mark.parametrize(
    ("strategy", "delay", "measured"),
    [("none", 0.0, 78.8), ("static", 1.0, 165.2), ("dynamic", 0.02, 163.6), ("inflight", 0.0, 181.3)],
)
def test_the_simulation_comes_close_to_what_the_readme_measured(
    strategy: str, delay: float, measured: float
) -> None:
    told = closed_loop(EMBEDDED, Policy(strategy, 16, delay), 16, 120.0)["output_tokens_per_second"]
    assert told == pytest.approx(measured, rel=0.12)


@pytest.mark.parametrize(
    "policy",
    [
        Policy("none"),
        Policy("static", 4, 0.5),
        Policy("dynamic", 4, 0.02, preferred=(2,)),
        Policy("inflight", 4),
        Policy("inflight", 4, instances=2),
        Policy("inflight", 4, queue=2),
    ],
)
def test_every_request_is_answered_or_refused(policy: Policy) -> None:
    asks = poisson(2.0, 60, seed=3)
    told = open_loop(EMBEDDED, policy, asks, Slo(ttft_ms=1000.0))
    answered = (told["requests"] or 0) - (told["rejected"] or 0)
    assert told["requests"] == 60
    assert (told["rejected"] == 0) == (policy.queue is None)
    seconds = answered / (told["requests_per_second"] or 1)
    assert seconds > 20
    assert (told["goodput_per_second"] or 0) * seconds <= answered + 1e-6


def test_in_flight_lets_a_request_join_and_a_batch_does_not() -> None:
    asks = [Ask(0.0, 10, 100), Ask(0.5, 10, 5)]
    joined = open_loop(EMBEDDED, Policy("inflight", 4), asks)["ttft_p99_ms"] or 0
    waited = open_loop(EMBEDDED, Policy("dynamic", 4), asks)["ttft_p99_ms"] or 0
    assert joined < 60 < waited


def test_steps_are_fitted_and_one_point_is_too_few() -> None:
    found = fit([(1, 0.012), (16, 0.0795)], 0.0007)
    assert (found.step_base, found.step_each) == (pytest.approx(0.0075), pytest.approx(0.0045))
    with pytest.raises(ValueError, match="two batch sizes"):
        fit([(1, 0.012)], 0.0)


# ---------------------------------------------------------------------- space and parameters


def test_configurations_that_are_the_same_are_one() -> None:
    assert SPACE.raw_size == 30
    assert len(SPACE.listed()) == 5 + 15
    near = {key_of(each) for each in SPACE.neighbours(config(batch=8))}
    assert near == {key_of(each) for each in (config(batch=4), config(batch=16), config("dynamic", 8))}
    with pytest.raises(ValueError, match="a name of its own"):
        Space([Parameter("a", (1,)), Parameter("a", (2,))])


def test_the_present_value_is_always_among_the_values_and_idle_comes_from_the_profile() -> None:
    found = tuner_parameters.parameters({}, "llamacpp", PROFILE, batches_to=16)
    by_name = {each.name: each for each in found}
    assert by_name["max_batch_size"].values == (1, 2, 4, 6, 8, 16)
    assert by_name["max_batch_size"].ordered
    assert not by_name["strategy"].ordered
    chosen = {"strategy": "inflight", "max_queue_delay_microseconds": 1000, "preferred_batch_sizes": "half"}
    assert tuner_parameters.idle(chosen, PROFILE, "llamacpp") == {
        "max_queue_delay_microseconds",
        "preferred_batch_sizes",
    }


@pytest.mark.parametrize(
    ("asked", "values"),
    [
        ({"max_batch_size": {"least": 3, "most": 20}}, (3, 6, 12, 20)),
        ({"trtllm.kv_cache_free_gpu_mem_fraction": {"least": 0.5, "most": 0.9}}, (0.5, 0.6, 0.7, 0.8, 0.9)),
        ({"threads": [2, 1, 2]}, (1, 2)),
    ],
)
def test_values_are_lists_or_ranges(asked: dict[str, Any], values: tuple[Any, ...]) -> None:
    assert tuner_parameters.parameters(asked, "trtllm", {}, 64)[0].values == values


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"beauty": [1]}, "cannot be tuned"),
        ({"threads": None}, "no usual values"),
        ({"threads": []}, "a list of values"),
        ({"threads": "two"}, "a list of values"),
        ({"threads": [{}]}, "words, numbers"),
        ({"max_batch_size": {"least": 8, "most": 2}}, "in this order"),
        ({"max_batch_size": {"least": 8}}, "least and most"),
        ({"max_batch_size": list(range(1, 40))}, "too many"),
    ],
)
def test_parameters_that_cannot_be_tuned_say_why(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        tuner_parameters.parameters(asked, "llamacpp", {}, 64)
    assert caught.value.field == f"parameters.{next(iter(asked))}"
    assert caught.value.remedy


def test_a_configuration_becomes_settings_of_a_profile() -> None:
    chosen = {"max_batch_size": 8, "trtllm.enable_chunked_context": True, "replicas": 2, "build": "q8"}
    found = tuner_parameters.settings_of({**chosen, "preferred_batch_sizes": "half_and_full"}, PROFILE)
    assert found["preferred_batch_sizes"] == [4, 8]
    assert found["trtllm"] == {"enable_chunked_context": True}
    assert "replicas" not in found
    # Sizes of the base that no longer fit are left out, so that the profile stays valid.
    kept = tuner_parameters.settings_of({"max_batch_size": 4}, {**PROFILE, "preferred_batch_sizes": [4, 8]})
    assert kept["preferred_batch_sizes"] == [4]
    names = ["max_batch_size", "replicas", "build", "trtllm.enable_chunked_context", "preferred_batch_sizes"]
    present = tuner_parameters.present_config(names, {**PROFILE, "preferred_batch_sizes": [3, 6]}, 1, "f16")
    assert present == {
        "max_batch_size": 6,
        "replicas": 1,
        "build": "f16",
        "trtllm.enable_chunked_context": False,
        "preferred_batch_sizes": "half_and_full",
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"objectives": ["beauty"]}, "no figure beauty"),
        ({"objectives": ["ttft_p99_ms", "ttft_p99_ms"]}, "named twice"),
        ({"objectives": []}, "at least 1"),
        ({"constraints": [{"figure": "ttft_p99_ms"}]}, "either most or least"),
        ({"constraints": [{"figure": "ttft_p99_ms", "most": 1.0, "least": 2.0}]}, "either most or least"),
        ({"trials": 1}, "greater than or equal to 2"),
        ({"minutes": 0.0}, "greater than 0"),
        ({"wrong": 1}, "Extra inputs"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        TuningFields.model_validate({"deployment": "demo", **given})


# ---------------------------------------------------------------------- goals


def test_the_front_is_what_nothing_beats_and_the_first_objective_decides() -> None:
    goals = Goals(("output_tokens_per_second", "ttft_p99_ms"))
    found = tuner_goals.candidates(
        [
            measured(1, 100.0, 100.0, batch=2),
            measured(2, 150.0, 200.0, batch=4),
            measured(3, 140.0, 300.0, batch=8),
            measured(4, 180.0, None, batch=16),
        ],
        goals,
    )
    assert [each.numbers for each in tuner_goals.front(found, goals)] == [(2,), (1,)]


def test_constraints_shut_out_and_what_is_absent_breaks_them() -> None:
    trials = [
        measured(1, 100.0, 400.0, batch=2),
        measured(2, 200.0, 600.0, batch=4),
        measured(3, 90.0, None, batch=8),
    ]
    winner = tuner_goals.best(tuner_goals.candidates(trials, GOALS), GOALS)
    assert winner is not None
    assert winner.numbers == (1,)
    assert Constraint("ttft_p99_ms", 500.0, True).violation(600.0) == pytest.approx(0.2)
    assert Constraint("output_tokens_per_second", 100.0, False).violation(80.0) == pytest.approx(0.2)


def test_repeats_are_asked_where_they_decide() -> None:
    goals = Goals(("output_tokens_per_second",))
    apart = [measured(1, 100.0, batch=2), measured(2, 150.0, batch=4)]
    assert tuner_goals.undecided(apart, goals) is None
    close = [*apart, measured(3, 147.0, batch=8)]
    asked = tuner_goals.undecided(close, goals)
    assert asked == config(batch=4)
    # The leader is behind after its repeat: the other one is measured again.
    again = [*close, measured(4, 146.0, batch=4)]
    assert tuner_goals.undecided(again, goals) == config(batch=8)
    # Repeats tell how noisy a run is.
    assert tuner_goals.noise(again, "output_tokens_per_second") < tuner_goals.NOISE
    assert tuner_goals.noise([*close, measured(4, 250.0, batch=4)], "output_tokens_per_second") > 0.1
    # What leads but barely breaks its bound is looked at again too.
    bound = [measured(1, 100.0, 300.0, batch=2), measured(2, 150.0, 505.0, batch=4)]
    assert tuner_goals.undecided(bound, GOALS) == config(batch=4)


# ---------------------------------------------------------------------- search


def figures(chosen: Config) -> dict[str, float | None]:
    """In-flight at 16 is best; TTFT grows with the batch and breaks the bound at 32."""
    size = chosen["max_batch_size"]
    worse = 1.0 if chosen["strategy"] == "inflight" else 0.8 - chosen["max_queue_delay_microseconds"] / 1e5
    return {"output_tokens_per_second": worse * 220 * size / (size + 6), "ttft_p99_ms": 20.0 * size}


def search(seed: int = 1, trials: int = 12, goals: Goals = GOALS) -> tuple[Search, list[Tried]]:
    """A whole tuning; the plan refuses nothing but dynamic at 32."""
    found = Search(SPACE, goals, seed, Budget(trials), config("dynamic", 4, 1000), wanted=16.0)
    told: list[Tried] = []
    while (proposal := found.next(told)) is not None:
        refused = proposal.config["strategy"] == "dynamic" and proposal.config["max_batch_size"] == 32
        state, seen = ("infeasible", {}) if refused else ("measured", figures(proposal.config))
        told.append(Tried(len(told) + 1, proposal.config, state, seen, proposal.source))  # type: ignore[arg-type]
    return found, told


def test_a_tuning_begins_with_what_runs_finds_the_best_and_goes_on_where_it_was_left() -> None:
    found, told = search()
    assert told[0].config == config("dynamic", 4, 1000)
    assert sum(trial.state == "measured" for trial in told) <= 12
    keys = [key_of(trial.config) for trial in told if trial.why != "repeat"]
    assert len(keys) == len(set(keys))
    winner = tuner_goals.best(tuner_goals.candidates(told, GOALS), GOALS)
    assert winner is not None
    assert winner.config == config("inflight", 16)
    # Another process with the same trials proposes the same: nothing is kept elsewhere.
    other = Search(SPACE, GOALS, 1, Budget(12), config("dynamic", 4, 1000), wanted=16.0)
    for many in (0, 3, 5, 7):
        assert other.next(told[:many]) == found.next(told[:many])


def test_several_objectives_and_a_space_that_is_used_up() -> None:
    goals = Goals(("output_tokens_per_second", "ttft_p99_ms"))
    _found, told = search(trials=60, goals=goals)
    assert {key_of(trial.config) for trial in told} == {key_of(each) for each in SPACE.listed()}
    kept = tuner_goals.front(tuner_goals.candidates(told, goals), goals)
    assert all(each.config["strategy"] == "inflight" for each in kept)


def test_a_space_too_large_to_list_is_searched_too() -> None:
    large = Space([Parameter(name, tuple(range(12)), ordered=True) for name in "abcde"])
    goals = Goals(("output_tokens_per_second",))
    found = Search(large, goals, 3, Budget(8), None, wanted=4.0)
    told: list[Tried] = []
    while (proposal := found.next(told)) is not None:
        total = float(sum(proposal.config.values()))
        told.append(
            Tried(len(told) + 1, proposal.config, "measured", {"output_tokens_per_second": 1 + total})
        )
    assert large.listed() == []
    assert len(told) == 8


def test_the_prior_begins_where_batching_usually_ends_up() -> None:
    closed = parse({"target": "x", "load": {"concurrency": [16]}})
    begun = parse({"target": "x", "load": {"mode": "open", "rate": [2.0]}, "slo": {"tpot_ms": 100.0}})
    assert tuner_prior.under_way(closed) == 16
    assert tuner_prior.under_way(begun) == pytest.approx(2.0 * 68 * 0.1)
    chosen = tuner_prior.begin_with(SPACE, None, 16.0, 4)
    assert chosen[0] == config("inflight", 16)
    assert len({key_of(each) for each in chosen}) == 4


# ---------------------------------------------------------------------- report


def test_the_report_says_who_won_by_how_much_and_what_it_cost() -> None:
    _found, told = search(trials=20)
    said = " ".join(report(told, GOALS, SPACE, config("dynamic", 4, 1000)))
    assert "Best: strategy inflight, max_batch_size 16 (trial" in said
    assert "Against what runs now (" in said
    assert "Changed: strategy dynamic to inflight; max_batch_size 4 to 16; max_queue_delay" in said
    assert "max_queue_delay_microseconds does nothing any more." in said
    assert "Without constraints strategy inflight, max_batch_size 32" in said
    assert "it breaks: TTFT p99 at most 500" in said
    assert "What mattered: max_batch_size" in said
    assert "left out because the memory plan refuses them" in said
    nan = [word for word in said.split() if word == "nan"]
    assert not nan


@pytest.mark.parametrize(
    ("trials", "words"),
    [
        ([], "Nothing could be measured"),
        ([Tried(1, config(), "failed", {}, "It died.")], "1 trials ended without a result: It died."),
        ([measured(1, 100.0, 900.0)], "keeps every constraint. Nearest: strategy inflight"),
        ([measured(1, None, 100.0)], "No run tells Output tokens"),
    ],
)
def test_a_tuning_without_a_winner_says_why(trials: list[Tried], words: str) -> None:
    assert words in " ".join(report(trials, GOALS, SPACE, None))


def test_nothing_is_infinite_where_figures_are_missing() -> None:
    assert GOALS.losses({"output_tokens_per_second": math.inf}) is None
