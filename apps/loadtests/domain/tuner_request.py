"""What somebody asks of a tuner, as an API body, a YAML file (camelCase) and a form give it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, model_validator

from apps.loadtests.domain.scenario import CONFIG
from apps.loadtests.domain.tuner_goals import FIGURES, MOST_OBJECTIVES, Constraint, Goals

MOST_TRIALS = 200


class Bound(BaseModel):
    """A figure and the most or the least that it may be."""

    model_config = CONFIG

    figure: str
    most: float | None = None
    least: float | None = None

    @model_validator(mode="after")
    def _one(self) -> Bound:
        if (self.most is None) == (self.least is None):
            raise ValueError("give either most or least")
        return self

    def constraint(self) -> Constraint:
        """As the tuner takes it."""
        bound = self.most if self.most is not None else self.least
        return Constraint(self.figure, float(bound or 0.0), self.most is not None)


class TuningFields(BaseModel):
    """One tuning. The first objective decides who wins; `parameters` empty: what is usual for the engine.

    `scenario` is a load test's without its target; left out, a client for each slot in a closed loop with answers of
    mixed lengths, as in the batching study. `trials` bounds what is run, `minutes` how long it goes on.
    """

    model_config = CONFIG

    deployment: Annotated[str, Field(min_length=1, max_length=63)]
    parameters: dict[str, Any] = Field(default_factory=dict, max_length=16)
    objectives: list[str] = Field(
        default_factory=lambda: ["output_tokens_per_second"], min_length=1, max_length=MOST_OBJECTIVES
    )
    constraints: list[Bound] = Field(default_factory=list, max_length=8)
    scenario: dict[str, Any] | None = None
    trials: Annotated[int, Field(ge=2, le=MOST_TRIALS)] = 25
    minutes: Annotated[float, Field(gt=0, le=7 * 24 * 60)] = 120.0
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None

    @model_validator(mode="after")
    def _figures(self) -> TuningFields:
        for name in [*self.objectives, *(each.figure for each in self.constraints)]:
            if name not in FIGURES:
                raise ValueError(f"there is no figure {name}; choose one of: {', '.join(FIGURES)}")
        if len(set(self.objectives)) < len(self.objectives):
            raise ValueError("an objective is named twice; name each once")
        return self

    def goals(self) -> Goals:
        """As the tuner takes them."""
        return Goals(tuple(self.objectives), tuple(each.constraint() for each in self.constraints))
