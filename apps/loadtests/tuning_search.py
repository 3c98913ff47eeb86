"""Which configuration to try next. Nothing is kept between two questions: the trials are all that it knows, so a
tuning goes on after any process has died.

First the present configuration and what the prior holds for likely. Then mostly where a Gaussian process over
what was measured (domain.tuner_surrogate) expects the largest improvement within the constraints, and every
fourth time what Optuna's TPE sampler proposes, which does not share its errors; of a space too large to list,
the sampler's proposals and what lies around the leaders are what the process chooses from. Several objectives
are weighed anew for each proposal, so that the whole front is looked for. Towards the end of the budget
repeats, where noise could decide who wins.
Optuna is imported when it is first needed: it takes half a second, and only the load worker needs it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from apps.loadtests.domain import tuner_goals, tuner_prior
from apps.loadtests.domain.scenario import Scenario
from apps.loadtests.domain.tuner_goals import FIGURES, Candidate, Constraint, Goals, Tried
from apps.loadtests.domain.tuner_space import Config, Parameter, Space, key_of
from apps.loadtests.domain.tuner_surrogate import Floats, Surrogate, below, encode, improvement

Source = Literal["present", "prior", "model", "sampler", "random", "repeat"]
# How often the sampler is asked for something new before something else is taken.
ASKS = 24
# Of a space too large to list: what is drawn by chance beside the sampler's proposals and the leaders' neighbours.
DRAWN = 300
# Every so many trials the sampler proposes.
SAMPLER_EVERY = 4
# Draws of what a configuration would show; and how wide the edge of a bound may be, in logarithms: requests differ.
DRAWS, EDGES = 128, (0.03, 0.06, 0.12, 0.25, 0.5)
# How long the prior counts beside what was measured: its weight falls with the number of trials (as piBO does).
BELIEF = 10.0
# Weight of the sum of the losses beside the worst of them (several objectives).
AUGMENTED = 0.05


@dataclass(frozen=True, slots=True)
class Proposal:
    """What to try next, and who proposed it."""

    config: Config
    source: Source


@dataclass(frozen=True, slots=True)
class Budget:
    """Trials that may be run in all, and how many of the first are the prior's and of the last kept for repeats."""

    trials: int

    @property
    def first(self) -> int:
        """Trials that the prior chooses, the present configuration among them."""
        return max(2, min(6, self.trials // 4))

    @property
    def repeats(self) -> int:
        """Trials at the end that repeat what is not decided."""
        return max(1, self.trials // 8)


class Search:
    """Proposals for one space.

    `wanted`: requests under way at once, as tuner_prior.under_way tells. `slo`: the bounds of a good request,
    milliseconds, by ttft, tpot and latency (bounds_of).
    """

    def __init__(
        self,
        space: Space,
        goals: Goals,
        seed: int,
        budget: Budget,
        present: Config | None,
        wanted: float,
        slo: Mapping[str, float | None] | None = None,
    ) -> None:
        self.slo = dict(slo or {})
        self.space, self.goals, self.seed, self.budget = space, goals, seed, budget
        self.present = space.same(present) if present is not None and space.has(present) else None
        self._wanted = wanted
        self._begin = tuner_prior.begin_with(space, self.present, wanted, 4 * budget.first)

    def next(self, trials: Sequence[Tried]) -> Proposal | None:
        """What to try next; None where everything was tried and nothing is open, or the budget is used up.

        Trials that were not run (infeasible by the plan) cost nothing of the budget.
        """
        run = sum(trial.state != "infeasible" for trial in trials)
        if run >= self.budget.trials:
            return None
        seen = {key_of(trial.config) for trial in trials}
        if run < self.budget.first and (found := self._prior(seen)) is not None:
            return found
        if self.budget.trials - run <= self.budget.repeats and (open_ := self._repeat(trials)) is not None:
            return open_
        drawn = np.random.default_rng([self.seed, len(trials)])
        makers = [self._model, self._sampler] if run % SAMPLER_EVERY else [self._sampler, self._model]
        for make in [*makers, self._random]:
            if (proposal := make(trials, seen, drawn)) is not None:
                return proposal
        return self._repeat(trials)

    # ------------------------------------------------------------------ who proposes

    def _prior(self, seen: set[str]) -> Proposal | None:
        for config in self._begin:
            if key_of(config) not in seen:
                return Proposal(config, "present" if config is self.present else "prior")
        return None

    def _repeat(self, trials: Sequence[Tried]) -> Proposal | None:
        found = tuner_goals.undecided(trials, self.goals)
        return Proposal(found, "repeat") if found is not None else None

    def _random(self, trials: Sequence[Tried], seen: set[str], drawn: np.random.Generator) -> Proposal | None:
        left = [config for config in self.space.listed() if key_of(config) not in seen]
        if left:
            return Proposal(left[int(drawn.integers(len(left)))], "random")
        for _try in range(0 if self.space.listed() else 200):
            config = self.space.draw(drawn)
            if key_of(config) not in seen:
                return Proposal(config, "random")
        return None

    def _model(self, trials: Sequence[Tried], seen: set[str], drawn: np.random.Generator) -> Proposal | None:
        """Where most is expected of what was not tried."""
        found = tuner_goals.candidates(trials, self.goals)
        known = [each for each in found if self.goals.losses(each.figures) is not None]
        pool = self._pool(trials, seen, drawn, known)
        if len(known) < 2 or not pool:
            return None
        rows, owners = encode(self.space, [each.config for each in known])
        asked, _owners = encode(self.space, pool)
        worth = self._kept(trials, known, rows, owners, asked)
        feasible = [each for each in known if each.feasible]
        if feasible:
            worth = worth * self._gain(trials, known, rows, owners, asked, drawn)
        elif not self.goals.constraints:
            return None
        costs = np.array([tuner_prior.cost(config, self._wanted) for config in pool])
        worth = worth * np.exp(-BELIEF / len(known) * (costs - costs.min()))
        return Proposal(pool[int(worth.argmax())], "model")

    def _pool(
        self,
        trials: Sequence[Tried],
        seen: set[str],
        drawn: np.random.Generator,
        known: Sequence[Candidate],
    ) -> list[Config]:
        """What may be chosen: everything untried, or of a large space a few hundred."""
        if self.space.listed():
            return [config for config in self.space.listed() if key_of(config) not in seen]
        leaders = tuner_goals.front(known, self.goals) or list(known)
        given = [near for each in leaders[:5] for near in self.space.neighbours(each.config)]
        given += self._asked(trials, drawn)
        given += [self.space.draw(drawn) for _ in range(DRAWN)]
        return list({key_of(config): config for config in given if key_of(config) not in seen}.values())

    def _gain(
        self,
        trials: Sequence[Tried],
        known: Sequence[Candidate],
        rows: Floats,
        owners: Sequence[int],
        asked: Floats,
        drawn: np.random.Generator,
    ) -> Floats:
        """How much better than the best so far each configuration is expected to be."""
        parts = self._parts_of_goodput(known)
        if parts:
            found = self._goodput(trials, known, rows, owners, asked, drawn, parts)
            best = max(each.figures["goodput_per_second"] or 0.0 for each in known if each.feasible)
            gain: Floats = np.maximum(0.0, found - best).mean(axis=0)
            return gain
        losses = self._one_loss(known, drawn)
        spread = tuner_goals.noise(trials, self.goals.objectives[0])
        mean, deviation = Surrogate(rows, owners, losses, spread).at(asked)
        best = min(loss for loss, each in zip(losses, known, strict=True) if each.feasible)
        return improvement(float(best), mean, deviation)

    def _parts_of_goodput(self, known: Sequence[Candidate]) -> dict[str, float]:
        """{figure: its bound} of which goodput is made; empty where it is not the objective, or a run lacks one."""
        if self.goals.objectives != ("goodput_per_second",):
            return {}
        bounds = {f"{name}_mean_ms": bound for name, bound in self.slo.items() if bound is not None}
        names = ["requests_per_second", *bounds]
        whole = all((each.figures.get(name) or 0.0) > 0 for each in known for name in names)
        return bounds if whole else {}

    def _goodput(
        self,
        trials: Sequence[Tried],
        known: Sequence[Candidate],
        rows: Floats,
        owners: Sequence[int],
        asked: Floats,
        drawn: np.random.Generator,
        parts: Mapping[str, float],
    ) -> Floats:
        """Draws of goodput (draws x configurations): requests/s times the share that each bound lets through.

        Goodput itself falls off a cliff where a bound is crossed, and beside a cliff a smooth process believes the
        wrong thing; what the bounds are of is smooth (composite optimisation, Astudillo and Frazier 2019).
        """

        def draws(name: str) -> Floats:
            values = np.log([each.figures[name] or 1.0 for each in known])
            told = Surrogate(rows, owners, values, tuner_goals.noise(trials, name)).at(asked)
            found: Floats = told[0] + told[1] * drawn.standard_normal((DRAWS, len(asked)))
            return found

        edge = _edge(known, parts)
        found: Floats = np.exp(draws("requests_per_second"))
        for name, bound in parts.items():
            found = found * _share(draws(name), bound, edge)
        return found

    def _one_loss(self, known: Sequence[Candidate], drawn: np.random.Generator) -> Floats:
        """One number for each configuration, less is better: logarithms, because ratios count; of several objectives
        the worst after weights that are drawn anew (augmented Chebyshev), each scaled to what was seen."""
        columns = [_logs([each.figures[name] for each in known], name) for name in self.goals.objectives]
        if len(columns) == 1:
            return columns[0]
        weights = drawn.dirichlet(np.ones(len(columns)))
        scaled = [
            weight * (column - column.min()) / ((column.max() - column.min()) or 1.0)
            for weight, column in zip(weights, columns, strict=True)
        ]
        found: Floats = np.max(scaled, axis=0) + AUGMENTED * np.sum(scaled, axis=0)
        return found

    def _kept(
        self,
        trials: Sequence[Tried],
        known: Sequence[Candidate],
        rows: Floats,
        owners: Sequence[int],
        asked: Floats,
    ) -> Floats:
        """Probability that each configuration keeps every constraint."""
        worth = np.ones(len(asked))
        for constraint in self.goals.constraints:
            told = [
                index for index, each in enumerate(known) if each.figures.get(constraint.figure) is not None
            ]
            if len(told) < 2:
                continue
            values = np.array([_over(constraint, known[index].figures[constraint.figure]) for index in told])
            spread = tuner_goals.noise(trials, constraint.figure)
            mean, deviation = Surrogate(rows[told], owners, values, spread).at(asked)
            worth = worth * below(0.0, mean, deviation)
        return worth

    def _sampler(
        self, trials: Sequence[Tried], seen: set[str], drawn: np.random.Generator
    ) -> Proposal | None:
        """What Optuna's sampler proposes that is new."""
        new = (config for config in self._asked(trials, drawn) if key_of(config) not in seen)
        config = next(new, None)
        return Proposal(config, "sampler") if config is not None else None

    def _asked(self, trials: Sequence[Tried], drawn: np.random.Generator) -> list[Config]:
        """Proposals of Optuna's sampler for the trials so far."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study = optuna.create_study(
                directions=["minimize"] * len(self.goals.objectives),
                sampler=optuna.samplers.TPESampler(
                    seed=int(drawn.integers(2**31)), n_startup_trials=1, n_ei_candidates=64, multivariate=True
                ),
            )
            distributions = {each.name: _distribution(each) for each in self.space.parameters}
            study.add_trials(self._told(trials, distributions))
            asked = [study.ask(distributions).params for _ in range(ASKS)]
        return [
            self.space.same({each.name: _value(each, params[each.name]) for each in self.space.parameters})
            for params in asked
        ]

    def _told(self, trials: Sequence[Tried], distributions: Mapping[str, Any]) -> list[Any]:
        """The trials as Optuna keeps them; what was not run, or failed, breaks a constraint."""
        import optuna

        found = tuner_goals.candidates(trials, self.goals)
        told = [
            (each.config, self.goals.losses(each.figures), self.goals.violation(each.figures))
            for each in found
        ]
        known = [losses for _config, losses, _violation in told if losses is not None]
        worst = (
            tuple(max(column) for column in zip(*known, strict=True))
            if known
            else (0.0,) * len(self.goals.objectives)
        )
        told += [(trial.config, None, 1.0) for trial in trials if trial.state != "measured"]
        return [
            optuna.trial.create_trial(
                values=list(losses if losses is not None else worst),
                params={each.name: _told_value(each, config[each.name]) for each in self.space.parameters},
                distributions=dict(distributions),
                constraints={"violation": violation if losses is not None else max(1.0, violation)},
            )
            for config, losses, violation in told
        ]


def bounds_of(scenario: Scenario) -> dict[str, float | None]:
    """The bounds of a good request under a scenario, by the word that figures begin with."""
    slo = scenario.slo
    return {"ttft": slo.ttft_ms, "tpot": slo.tpot_ms, "latency": slo.latency_ms}


def _share(logs: Floats, bound: float, edge: float) -> Floats:
    """The share of requests that keep a bound, where the mean of all is at these logarithms."""
    found: Floats = 1 / (1 + np.exp(np.clip((logs - math.log(bound)) / edge, -50.0, 50.0)))
    return found


def _edge(known: Sequence[Candidate], parts: Mapping[str, float]) -> float:
    """The edge with which what was measured is explained best."""

    def wrong(edge: float) -> float:
        total = 0.0
        for each in known:
            share = 1.0
            for name, bound in parts.items():
                share *= float(_share(np.log([each.figures[name] or 1.0]), bound, edge)[0])
            told = (each.figures["goodput_per_second"] or 0.0) / (each.figures["requests_per_second"] or 1.0)
            total += (share - told) ** 2
        return total

    return min(EDGES, key=wrong)


def _logs(values: Sequence[float | None], name: str) -> Floats:
    """Values of an objective as losses, in logarithms where all are above 0."""
    known = np.array([0.0 if value is None else value for value in values])
    losses = np.log(known) if (known > 0).all() else known
    return -losses if FIGURES[name].more else losses


def _over(constraint: Constraint, value: float | None) -> float:
    """How far a value is beyond its bound: a logarithm where that is possible, 0 or below where it is kept."""
    told = 0.0 if value is None else value
    if told > 0 and constraint.bound > 0:
        return math.log(told / constraint.bound) * (1 if constraint.most else -1)
    return constraint.violation(told)


def _distribution(parameter: Parameter) -> Any:
    """Places of ordered values, so that neighbours are alike; words where there is no order."""
    import optuna

    if parameter.ordered:
        return optuna.distributions.IntDistribution(0, len(parameter.values) - 1)
    return optuna.distributions.CategoricalDistribution(
        [str(place) for place in range(len(parameter.values))]
    )


def _told_value(parameter: Parameter, value: Any) -> Any:
    place = parameter.index(value)
    return place if parameter.ordered else str(place)


def _value(parameter: Parameter, told: Any) -> Any:
    return parameter.values[int(told)]
