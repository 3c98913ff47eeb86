"""What a tuner may choose: parameters with their values, which of them count together, and what is one step away.

A configuration is {parameter: value}. Parameters that do nothing beside others (a queue delay with in-flight
batching) are set to their first value, so that configurations that are the same are tried once. What does
nothing is told by `idle`, which the app builds from apps.serving.domain.acting.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Config = dict[str, Any]
# {parameter} of a configuration that do nothing in it.
Idle = Callable[[Mapping[str, Any]], set[str]]
# Spaces up to this size are listed as a whole.
LISTED = 20_000


@dataclass(frozen=True, slots=True)
class Parameter:
    """One thing to choose. `ordered`: its values are numbers in their order, so that neighbours are alike."""

    name: str
    values: tuple[Any, ...]
    ordered: bool = False

    def index(self, value: Any) -> int:
        """Place of a value. Raises ValueError where it has none."""
        return self.values.index(value)


def key_of(config: Mapping[str, Any]) -> str:
    """The same text for the same configuration."""
    return json.dumps(dict(config), sort_keys=True)


class Space:
    """Parameters together. Raises ValueError where one has no value or two have one name."""

    def __init__(self, parameters: Sequence[Parameter], idle: Idle | None = None) -> None:
        names = [parameter.name for parameter in parameters]
        if len(set(names)) != len(names) or any(not parameter.values for parameter in parameters):
            raise ValueError("Every parameter needs a name of its own and a value.")
        self.parameters = tuple(parameters)
        self._idle = idle or (lambda config: set())
        self._listed: list[Config] | None = None

    @property
    def raw_size(self) -> int:
        """How many combinations there are, those that are the same counted twice."""
        return math.prod(len(parameter.values) for parameter in self.parameters)

    def same(self, config: Mapping[str, Any]) -> Config:
        """The configuration with every parameter that does nothing in it at its first value."""
        idle = self._idle(config)
        return {
            parameter.name: parameter.values[0] if parameter.name in idle else config[parameter.name]
            for parameter in self.parameters
        }

    def has(self, config: Mapping[str, Any]) -> bool:
        """Whether every value is one of the space's."""
        return all(config.get(each.name) in each.values for each in self.parameters)

    def active(self, config: Mapping[str, Any]) -> list[Parameter]:
        """Parameters that do something in it."""
        idle = self._idle(config)
        return [parameter for parameter in self.parameters if parameter.name not in idle]

    def acting(self, config: Mapping[str, Any]) -> Config:
        """The part of it that does something."""
        return {parameter.name: config[parameter.name] for parameter in self.active(config)}

    def listed(self) -> list[Config]:
        """Every different configuration; of a space of more than LISTED combinations none."""
        if self._listed is None:
            found: dict[str, Config] = {}
            if self.raw_size <= LISTED:
                for values in itertools.product(*(parameter.values for parameter in self.parameters)):
                    config = self.same(
                        dict(zip((each.name for each in self.parameters), values, strict=True))
                    )
                    found.setdefault(key_of(config), config)
            self._listed = list(found.values())
        return self._listed

    def draw(self, drawn: np.random.Generator) -> Config:
        """A configuration at random."""
        if self.listed():
            return dict(self.listed()[int(drawn.integers(len(self.listed())))])
        return self.same(
            {each.name: each.values[int(drawn.integers(len(each.values)))] for each in self.parameters}
        )

    def neighbours(self, config: Mapping[str, Any]) -> Iterator[Config]:
        """Configurations in which one parameter is different: an ordered one by a step, another in any way."""
        for parameter in self.active(config):
            at = parameter.index(config[parameter.name])
            places = (at - 1, at + 1) if parameter.ordered else range(len(parameter.values))
            for place in places:
                if place != at and 0 <= place < len(parameter.values):
                    yield self.same({**config, parameter.name: parameter.values[place]})
