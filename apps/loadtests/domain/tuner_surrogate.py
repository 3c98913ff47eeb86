"""A Gaussian process over configurations: what an untried one would show, and how sure that is.

Matern 5/2 with a length for each parameter, averaged over guesses by their marginal likelihood; a few dozen trials
need no more than numpy. Ordered parameters are their place between 0 and 1, others one column for each value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from apps.loadtests.domain.tuner_space import Space

Floats = npt.NDArray[np.float64]
# Reach of a parameter before anything is known (1.0: from end to end) and how much it may differ, in logarithms; how
# many guesses are made and how many of the likeliest are kept.
USUAL_LENGTH, LENGTH_SPREAD = 0.6, 0.8
GUESSES, KEPT = 96, 16
# Of the standardised values: what is taken as noise beside the given one, so that the matrix can be inverted.
LEAST_NOISE = 1e-3


def encode(space: Space, configs: Sequence[Mapping[str, Any]]) -> tuple[Floats, list[int]]:
    """(a row each, the parameter of each column). A step between words counts as much as from end to end."""
    columns: list[list[float]] = []
    owners: list[int] = []
    for index, parameter in enumerate(space.parameters):
        if parameter.ordered:
            scale = max(1, len(parameter.values) - 1)
            columns.append([parameter.index(config[parameter.name]) / scale for config in configs])
            owners.append(index)
            continue
        for value in parameter.values:
            columns.append([float(config[parameter.name] == value) / math.sqrt(2) for config in configs])
            owners.append(index)
    return np.array(columns, dtype=np.float64).T.reshape(len(configs), len(owners)), owners


class Surrogate:
    """Fitted to rows and values; `noise` is the standard deviation of a value.

    A few trials say little of how far a parameter reaches, and the likeliest guess would be believed too firmly: so
    many guesses are kept, each with the weight of its likelihood, and what they disagree on is uncertain.
    """

    def __init__(self, rows: Floats, owners: Sequence[int], values: Floats, noise: float) -> None:
        self._rows = rows
        self._mean = float(values.mean())
        self._scale = float(values.std()) or 1.0
        self._values = (values - self._mean) / self._scale
        self._noise = max(LEAST_NOISE, (noise / self._scale) ** 2)
        self._owners = np.array(owners)
        drawn = np.random.default_rng(0)
        count = int(self._owners.max()) + 1
        guesses = np.exp(drawn.normal(math.log(USUAL_LENGTH), LENGTH_SPREAD, (GUESSES, count)))
        fitted = [self._fit(lengths) for lengths in guesses]
        order = sorted(fitted, key=lambda each: -each[0])[:KEPT]
        weights = np.exp(np.array([each[0] for each in order]) - order[0][0])
        self._guesses = [
            (weight, *each[1:]) for weight, each in zip(weights / weights.sum(), order, strict=True)
        ]

    def _fit(self, lengths: Floats) -> tuple[float, Floats, Floats, Floats]:
        """(log marginal likelihood, lengths, Cholesky factor, weights)."""
        kernel = self._kernel(self._rows, self._rows, lengths) + self._noise * np.eye(len(self._rows))
        lower: Floats = np.linalg.cholesky(kernel).astype(np.float64)
        half = np.linalg.solve(lower, self._values)
        likelihood = float(-0.5 * half @ half - np.log(np.diag(lower)).sum())
        weights: Floats = np.linalg.solve(lower.T, half)
        return likelihood, lengths, lower, weights

    def _kernel(self, one: Floats, other: Floats, lengths: Floats) -> Floats:
        scaled = lengths[self._owners]
        a, b = one / scaled, other / scaled
        squares = (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2 * a @ b.T
        far = np.sqrt(5 * np.maximum(squares, 0.0))
        found: Floats = (1 + far + far**2 / 3) * np.exp(-far)
        return found

    def at(self, rows: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation (without noise) at each row."""
        mean, square = np.zeros(len(rows)), np.zeros(len(rows))
        for weight, lengths, lower, weights in self._guesses:
            cross = self._kernel(rows, self._rows, lengths)
            told = cross @ weights
            half = np.linalg.solve(lower, cross.T)
            mean += weight * told
            square += weight * (told**2 + np.maximum(1.0 - (half**2).sum(0), 1e-9))
        deviation = np.sqrt(np.maximum(square - mean**2, 1e-9))
        return mean * self._scale + self._mean, deviation * self._scale


def below(bound: float, mean: Floats, deviation: Floats) -> Floats:
    """Probability of being at most `bound`."""
    z = (bound - mean) / (deviation * math.sqrt(2))
    return np.array([0.5 * (1 + math.erf(value)) for value in z], dtype=np.float64)


def improvement(best: float, mean: Floats, deviation: Floats) -> Floats:
    """How much less than `best` is expected (0 where it is more)."""
    z = (best - mean) / deviation
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    found: Floats = (best - mean) * below(best, mean, deviation) + deviation * density
    return found
