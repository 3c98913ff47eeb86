"""Plans in which a stage's outputs are kept: later steps read them where they then lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from workers.builders.base import Step


def keeping(
    steps: Sequence[Step], name: str, made: Path, key: str, stages: Path, judges: Sequence[str] = ()
) -> list[Step]:
    """The steps with `name`'s folder `made` kept as stages/<key>; the words of later steps name that place.

    The steps in `judges` look at what was kept: where one of them fails, the stage is not used again.
    """
    place, found, after = stages / key, [], False
    for step in steps:
        if after:
            step = replace(step, argv=_moved(step.argv, made, place), shown=_moved(step.shown, made, place))
        if step.name == name:
            step, after = replace(step, keep=made, key=key), True
        elif step.name in judges:
            step = replace(step, judges=(*step.judges, key))
        found.append(step)
    return found


def _moved(words: tuple[str, ...], made: Path, place: Path) -> tuple[str, ...]:
    old = str(made)
    return tuple(
        str(place) + word[len(old) :] if word == old or word.startswith(f"{old}/") else word for word in words
    )
