"""What each request asks: prompt and length, out of a seed, the same whichever process sends it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from apps.loadtests.domain.datasets import Row
from apps.loadtests.domain.scenario import Length, Prompts

# Each is one token, its space included, in the byte-pair vocabularies of GPT-2, Llama 3, Qwen and SmolLM.
_WORDS = (
    "time year people way day man thing woman life child world school state family student group country "
    "problem hand part place case week company system program question work government number night point "
    "home water room mother area money story fact month lot right study book eye job word business issue "
    "side kind head house service friend father power hour game line end member law car city community "
    "name president team minute idea body information back parent face others level office door health "
    "person art war history party result change morning reason research girl guy moment air teacher force "
    "education "
)
WORDS = tuple(_WORDS.split())
# A mark no text contains; the parent renders the checkpoint's chat template around it once.
SLOT = "\x00"


@dataclass(frozen=True, slots=True)
class Frame:
    """The chat template's text around a conversation: before the first question, between question and answer, between
    answer and the next question. Empty for a target that renders templates itself."""

    head: str = ""
    answer: str = ""
    question: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: the question (`text`), words of history before it, and tokens wanted."""

    index: int
    text: str
    tokens: int
    turn: int = 0


class Workload:
    """Requests by number: `ask(n)` is the same for the same seed."""

    def __init__(self, prompts: Prompts, seed: int, rows: Sequence[Row] = ()) -> None:
        self._prompts, self._seed, self._rows = prompts, seed, rows
        shared = random.Random(f"prefix {seed}")  # noqa: S311 - a workload, no secret
        self._prefix = " ".join(shared.choice(WORDS) for _ in range(prompts.shared_prefix))

    def ask(self, number: int) -> Ask:
        """The request of that number; turns of a conversation follow each other."""
        drawn = random.Random(f"{self._seed} {number}")  # noqa: S311
        row = self._rows[drawn.randrange(len(self._rows))] if self._rows else None
        if row is not None and row.at is not None:
            # A trace is gone through in its order.
            row = self._rows[number % len(self._rows)]
        tokens = length(self._prompts.output, drawn, row.output_tokens if row else None)
        wanted = length(self._prompts.input, drawn, row.input_tokens if row else None)
        if row is not None and row.text is not None and self._prompts.input.distribution == "dataset":
            text = row.text
        else:
            text = " ".join(drawn.choices(WORDS, k=wanted))
        turn = number % self._prompts.turns
        if self._prefix and turn == 0:
            text = f"{self._prefix} {text}"
        return Ask(number, text, tokens, turn)


def length(shape: Length, drawn: random.Random, of_row: int | None) -> int:
    """One length in tokens. A lognormal one has the mean and deviation of the lengths, not of their logarithms."""
    if shape.distribution == "dataset":
        value = float(of_row if of_row is not None else shape.mean)
    elif shape.distribution == "uniform":
        value = float(drawn.randint(shape.least, shape.most))
    elif shape.distribution == "normal":
        value = drawn.gauss(shape.mean, shape.deviation)
    elif shape.distribution == "lognormal":
        spread = math.log(1 + (shape.deviation / shape.mean) ** 2)
        value = drawn.lognormvariate(math.log(shape.mean) - spread / 2, math.sqrt(spread))
    else:
        value = shape.mean
    return int(min(shape.most, max(shape.least, round(value))))
