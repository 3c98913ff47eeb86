"""Why a tuning ended as it did, in sentences a person can check against the table of trials."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from apps.loadtests.domain import tuner_goals
from apps.loadtests.domain.compare import percent, signed
from apps.loadtests.domain.tuner_goals import FIGURES, Candidate, Goals, Tried, shown
from apps.loadtests.domain.tuner_space import Config, Space, key_of

# Parameters whose best values differ by less than this share of the objective are said to matter little.
LITTLE = 0.05


def report(trials: Sequence[Tried], goals: Goals, space: Space, present: Config | None) -> list[str]:
    """Sentences: who won and by how much, how sure that is, what bounds it, what mattered, what was left out."""
    found = tuner_goals.candidates(trials, goals)
    winner = tuner_goals.best(found, goals)
    if winner is None:
        return [*_nothing(found, goals, space), *_left_out(trials)]
    return [
        *_won(winner, found, goals, space, present),
        *_runner_up(winner, found, trials, goals, space),
        *_bounds(winner, found, goals, space),
        *_mattered(found, goals, space),
        *_front(found, goals),
        *_left_out(trials),
    ]


def words(config: Mapping[str, Any]) -> str:
    """A configuration as a line of text."""
    return ", ".join(f"{name.removeprefix('trtllm.')} {_text(value)}" for name, value in config.items())


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _won(
    winner: Candidate, found: Sequence[Candidate], goals: Goals, space: Space, present: Config | None
) -> list[str]:
    first = goals.objectives[0]
    told = shown(first, winner.figures.get(first))
    said = [f"Best: {words(space.acting(winner.config))} (trial {winner.numbers[0]}), {told}."]
    before = next((each for each in found if present is not None and each.key == key_of(present)), None)
    if before is None:
        return said
    if before.key == winner.key:
        return [*said, "That is what runs now: nothing that was tried is better."]
    old, new = before.figures.get(first), winner.figures.get(first)
    if old and new and old > 0 and new > 0:
        said.append(f"Against what runs now ({shown(first, old)}): {signed(new / old)}.")
    if not before.feasible:
        said.append("What runs now does not keep the constraints.")
    old_part, new_part = space.acting(before.config), space.acting(winner.config)
    parts = [
        f"{name} {_text(old_part[name])} to {_text(new_part[name])}"
        if name in old_part and name in new_part
        else f"{name} {_text(new_part[name])}"
        if name in new_part
        else f"{name} does nothing any more"
        for name in winner.config
        if (name in old_part or name in new_part) and old_part.get(name) != new_part.get(name)
    ]
    said.append(f"Changed: {'; '.join(parts)}.")
    return said


def _runner_up(
    winner: Candidate, found: Sequence[Candidate], trials: Sequence[Tried], goals: Goals, space: Space
) -> list[str]:
    first = goals.objectives[0]
    others = [each for each in found if each.feasible and each.key != winner.key]
    second = tuner_goals.best(others, goals)
    top, value = winner.figures.get(first), second.figures.get(first) if second is not None else None
    if second is None or not top or not value or top <= 0 or value <= 0:
        return []
    spread = tuner_goals.noise(trials, first)
    error = spread * math.sqrt(1 / winner.runs + 1 / second.runs)
    behind = abs(math.log(value / top))
    sure = (
        "that is more than their noise explains"
        if behind > tuner_goals.APART * error
        else "that is within their noise, so either may be the better one"
    )
    return [
        f"Second: {words(space.acting(second.config))}, {percent(math.exp(behind))}% behind; {sure} "
        f"(a run differs by {spread:.1%}, {winner.runs} and {second.runs} runs)."
    ]


def _bounds(winner: Candidate, found: Sequence[Candidate], goals: Goals, space: Space) -> list[str]:
    """Which constraint the winner comes closest to, and what would have won without them."""
    if not goals.constraints:
        return []
    tight = max(goals.constraints, key=lambda one: one.violation(winner.figures.get(one.figure)))
    room = -tight.violation(winner.figures.get(tight.figure))
    said = [f"Closest to its bound: {tight.text}; {room:.0%} of it are left."]
    free = Goals(goals.objectives)
    loose = [
        Candidate(each.config, each.numbers, each.figures, goals.losses(each.figures) is not None)
        for each in found
    ]
    other = tuner_goals.best(loose, free)
    if other is not None and other.key != winner.key:
        first = goals.objectives[0]
        broken = [one.text for one in goals.constraints if one.violation(other.figures.get(one.figure)) > 0]
        said.append(
            f"Without constraints {words(space.acting(other.config))} would have won with "
            f"{shown(first, other.figures.get(first))}; it breaks: {'; '.join(broken)}."
        )
    return said


def _mattered(found: Sequence[Candidate], goals: Goals, space: Space) -> list[str]:
    """The best that was reached with each value of a parameter; how far apart these are is what it is
    worth."""
    first = goals.objectives[0]
    more = FIGURES[first].more
    worth: list[tuple[float, str]] = []
    for parameter in space.parameters:
        by_value: dict[str, float] = {}
        for each in found:
            value = each.figures.get(first)
            if not each.feasible or value is None or parameter not in space.active(each.config):
                continue
            word = _text(each.config[parameter.name])
            best = by_value.get(word)
            by_value[word] = value if best is None else (max if more else min)(best, value)
        if len(by_value) > 1:
            low, high = min(by_value.values()), max(by_value.values())
            share = (high - low) / abs(high) if high else 0.0
            top = (max if more else min)(by_value, key=lambda word, at=by_value: at[word])  # type: ignore[misc]
            worth.append((share, f"{parameter.name} ({share:.0%} between its values, best {top})"))
    worth.sort(reverse=True)
    mattered = [text for share, text in worth if share >= LITTLE]
    rest = [text.split(" (")[0] for share, text in worth if share < LITTLE]
    said = [f"What mattered: {'; '.join(mattered)}."] if mattered else []
    return [*said, f"Little or nothing: {', '.join(rest)}."] if rest else said


def _front(found: Sequence[Candidate], goals: Goals) -> list[str]:
    kept = tuner_goals.front(found, goals)
    if len(goals.objectives) < 2:
        return []
    return [f"{len(kept)} configurations are beaten by no other in every objective: the front."]


def _nothing(found: Sequence[Candidate], goals: Goals, space: Space) -> list[str]:
    if not found:
        return ["Nothing could be measured."]
    said = ["No configuration that was tried keeps every constraint."]
    if goals.constraints:
        nearest = min(found, key=lambda each: goals.violation(each.figures))
        broken = [
            f"{one.text} (it has {shown(one.figure, nearest.figures.get(one.figure))})"
            for one in goals.constraints
            if one.violation(nearest.figures.get(one.figure)) > 0
        ]
        said.append(f"Nearest: {words(space.acting(nearest.config))}; it breaks {'; '.join(broken)}.")
    absent = [name for name in goals.objectives if all(each.figures.get(name) is None for each in found)]
    if absent:
        said.append(f"No run tells {', '.join(FIGURES[name].title for name in absent)} here.")
    return said


def _left_out(trials: Sequence[Tried]) -> list[str]:
    refused = [trial for trial in trials if trial.state == "infeasible"]
    failed = [trial for trial in trials if trial.state == "failed"]
    said = []
    if refused:
        said.append(f"{len(refused)} configurations were left out because the memory plan refuses them.")
    if failed:
        said.append(f"{len(failed)} trials ended without a result: {failed[0].why}".strip())
    return said
