"""What a tuner looks for: objectives, constraints, the front of what nothing beats, and when to measure again.

Objectives are figures of runs (domain.compare.METRICS) and two more that need power or prices, and the share
of requests without an answer. Figures of repeated configurations are their geometric means; the noise of a
single run is the spread of repeats around their means, of all configurations together, and NOISE before there
are any.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from apps.loadtests.domain.compare import METRICS
from apps.loadtests.domain.tuner_space import Config, key_of

# Relative spread of a run's figure on an otherwise idle host, before repeats tell it (docs/load-tests.md's repeats).
NOISE = 0.04
# Two figures further apart than so many standard errors are told apart.
APART = 2.0
MOST_REPEATS = 3
State = Literal["measured", "infeasible", "failed"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that can be looked for. `more`: more of it is better."""

    title: str
    unit: str
    more: bool


FIGURES: dict[str, Figure] = {
    **{name: Figure(metric.title, metric.unit, metric.more) for name, metric in METRICS.items()},
    "tokens_per_watt": Figure("Tokens per watt", "tokens/s/W", True),
    "cost_per_million_tokens": Figure("Cost of a million tokens", "currency", False),
    "failed_share": Figure("Requests without an answer", "of all", False),
}
MOST_OBJECTIVES = 3


@dataclass(frozen=True, slots=True)
class Constraint:
    """A bound that a configuration must keep: `most` or `least` of a figure."""

    figure: str
    bound: float
    most: bool

    def violation(self, value: float | None) -> float:
        """How far beyond, relative to the bound; 0 or below: kept. A figure that is absent is beyond."""
        if value is None:
            return 1.0
        distance = (value - self.bound) / max(abs(self.bound), 1e-12)
        return distance if self.most else -distance

    @property
    def text(self) -> str:
        """As a person reads it."""
        return f"{FIGURES[self.figure].title} {'at most' if self.most else 'at least'} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Goals:
    """Objectives, the first of which decides; and constraints."""

    objectives: tuple[str, ...]
    constraints: tuple[Constraint, ...] = ()

    @property
    def needed(self) -> tuple[str, ...]:
        """Figures that a run must tell."""
        return tuple(dict.fromkeys([*self.objectives, *(each.figure for each in self.constraints)]))

    def violation(self, figures: Mapping[str, float | None]) -> float:
        """The worst violation; 0 or below: every constraint is kept."""
        return max((each.violation(figures.get(each.figure)) for each in self.constraints), default=-1.0)

    def losses(self, figures: Mapping[str, float | None]) -> tuple[float, ...] | None:
        """The objectives as numbers of which less is better; None where one is absent."""
        found = []
        for name in self.objectives:
            value = figures.get(name)
            if value is None or not math.isfinite(value):
                return None
            found.append(-value if FIGURES[name].more else value)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Tried:
    """One trial that has ended: `figures` of its run, empty where it was not run or failed; `why` it was not."""

    number: int
    config: Config
    state: State
    figures: Mapping[str, float | None]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration with the mean of its runs. `numbers` are its trials."""

    config: Config
    numbers: tuple[int, ...]
    figures: Mapping[str, float | None]
    feasible: bool

    @property
    def key(self) -> str:
        """The same for the same configuration."""
        return key_of(self.config)

    @property
    def runs(self) -> int:
        """How often it was measured."""
        return len(self.numbers)


def candidates(trials: Iterable[Tried], goals: Goals) -> list[Candidate]:
    """Measured configurations, each once, in the order of their first trials."""
    groups: dict[str, list[Tried]] = defaultdict(list)
    for trial in trials:
        if trial.state == "measured":
            groups[key_of(trial.config)].append(trial)
    found = []
    for group in groups.values():
        names = sorted({name for trial in group for name in trial.figures})
        figures = {name: _mean([trial.figures.get(name) for trial in group]) for name in names}
        feasible = goals.violation(figures) <= 0 and goals.losses(figures) is not None
        numbers = tuple(trial.number for trial in group)
        found.append(Candidate(group[0].config, numbers, figures, feasible))
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    """Geometric where all are above 0; None where a run does not have it."""
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return None
    if all(value > 0 for value in known):
        return math.exp(sum(math.log(value) for value in known) / len(known))
    return sum(known) / len(known)


def front(found: Sequence[Candidate], goals: Goals) -> list[Candidate]:
    """Feasible configurations that no other beats in every objective, the best of the first objective first."""
    losses = {each.key: goals.losses(each.figures) for each in found if each.feasible}
    kept = [
        each
        for each in found
        if (mine := losses.get(each.key)) is not None
        and not any(_beats(other, mine) for other in losses.values() if other is not None)
    ]
    return sorted(kept, key=lambda each: losses[each.key] or ())


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether `one` is nowhere worse and somewhere better."""
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def best(found: Sequence[Candidate], goals: Goals) -> Candidate | None:
    """The feasible configuration that is best in the first objective; of equals the one with fewer violations."""
    kept = front(found, goals)
    return kept[0] if kept else None


def noise(trials: Sequence[Tried], figure: str) -> float:
    """Relative standard deviation of one run's figure: of repeats around their means, pooled with NOISE as one
    degree of freedom, so that a lucky pair does not make everything certain."""
    groups: dict[str, list[float]] = defaultdict(list)
    for trial in trials:
        value = trial.figures.get(figure)
        if trial.state == "measured" and value is not None and value > 0:
            groups[key_of(trial.config)].append(math.log(value))
    squares, freedom = NOISE**2, 1
    for logs in groups.values():
        if len(logs) > 1:
            mean = sum(logs) / len(logs)
            squares += sum((value - mean) ** 2 for value in logs)
            freedom += len(logs) - 1
    return math.sqrt(squares / freedom)


def undecided(trials: Sequence[Tried], goals: Goals) -> Config | None:
    """A configuration whose repeat decides who wins, the least measured first; None where nothing is open.

    Open are: the leader and those behind it by less than the noise of both explains, and a configuration that would
    lead but for a constraint that it breaks, or leads and keeps, by less than its noise.
    """
    found = candidates(trials, goals)
    leader = best(found, goals)
    if leader is None:
        return None
    first = goals.objectives[0]
    spread = noise(trials, first)
    top = leader.figures.get(first)
    near: list[Candidate] = []
    barely: list[Candidate] = []
    for each in found:
        value = each.figures.get(first)
        if each.key == leader.key or value is None or top is None or value <= 0 or top <= 0:
            continue
        error = spread * math.sqrt(1 / each.runs + 1 / leader.runs)
        ahead = (value > top) == FIGURES[first].more and value != top
        if each.feasible and abs(math.log(value / top)) < APART * error:
            near.append(each)
        elif ahead and not each.feasible and _barely(each, goals, trials):
            barely.append(each)
    open_ = [*barely, *([leader] if near or _barely(leader, goals, trials) else []), *near]
    short = [each for each in open_ if each.runs < MOST_REPEATS]
    return min(short, key=lambda each: each.runs).config if short else None


def _barely(each: Candidate, goals: Goals, trials: Sequence[Tried]) -> bool:
    """Whether its worst constraint is kept or broken by less than noise explains."""
    if not goals.constraints:
        return False
    worst = max(goals.constraints, key=lambda one: one.violation(each.figures.get(one.figure)))
    value = each.figures.get(worst.figure)
    if value is None:
        return False
    return abs(worst.violation(value)) < APART * noise(trials, worst.figure) / math.sqrt(each.runs)


def shown(name: str, value: float | None) -> str:
    """A figure with its unit, for a sentence."""
    if value is None:
        return "unknown"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f} {FIGURES[name].unit}"
