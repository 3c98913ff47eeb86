"""Choosing the next token of one sequence out of its logits.

Semantics follow TensorRT-LLM: penalties on what the prompt and the answer hold so far, then temperature, then
top-k, then top-p, then a draw. Log-probabilities are those of the raw logits, before any of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from llamacpp_request import Sampling

Logits = npt.NDArray[np.float32]
NEVER = np.float32(-np.inf)
# The nucleus is looked for among so many of the most likely tokens first; a full sort is the slow way out.
NUCLEUS_FIRST_LOOK = 512


@dataclass(frozen=True, slots=True)
class Choice:
    """One chosen token. `log_prob` and `top` ((token, log-probability), best first) only when asked for."""

    token: int
    log_prob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)
class Sampler:
    """State of one sequence: its random numbers, the tokens it has seen, the end of its text.

    `end_ids` are banned until `min_tokens` tokens are there. `banned_words` are bytes that the answer never holds.
    `piece` gives a token's bytes.
    """

    sampling: Sampling
    piece: Callable[[int], bytes]
    end_ids: frozenset[int] = frozenset()
    min_tokens: int = 0
    banned_words: tuple[bytes, ...] = ()
    log_probs: bool = False
    alternatives: int = 0
    _random: np.random.Generator = field(init=False)
    _seen: dict[int, int] = field(init=False, default_factory=dict)
    _tail: bytes = field(init=False, default=b"")
    _generated: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._random = np.random.Generator(np.random.PCG64(self.sampling.seed))

    def see_prompt(self, tokens: Iterable[int]) -> None:
        """Count the prompt's tokens for the penalties."""
        if self.sampling.penalised:
            for token in tokens:
                self._seen[token] = self._seen.get(token, 0) + 1

    def choose(self, logits: Logits) -> Choice:
        """The next token. `logits` is left as it is."""
        ends_banned = self._generated < self.min_tokens
        plain = self.sampling.greedy and not (self.sampling.penalised or ends_banned or self.banned_words)
        token = int(logits.argmax()) if plain else self._choose_adjusted(logits.copy(), ends_banned)
        choice = self._with_log_probs(token, logits) if self.log_probs else Choice(token)
        self._remember(token)
        return choice

    def _choose_adjusted(self, logits: Logits, ends_banned: bool) -> int:
        if ends_banned:
            logits[list(self.end_ids)] = NEVER
        if self.sampling.penalised:
            self._penalise(logits)
        token = self._draw(logits)
        while self.banned_words and self._completes_banned_word(token):
            logits[token] = NEVER
            if not np.isfinite(logits.max()):
                return next(iter(self.end_ids), token)
            token = self._draw(logits)
        return token

    def _penalise(self, logits: Logits) -> None:
        if not self._seen:
            return
        tokens = np.fromiter(self._seen, dtype=np.int64, count=len(self._seen))
        counts = np.fromiter(self._seen.values(), dtype=np.float32, count=len(self._seen))
        values = logits[tokens]
        repetition = np.float32(self.sampling.repetition_penalty)
        values = np.where(values > 0, values / repetition, values * repetition)
        values -= np.float32(self.sampling.presence_penalty)
        values -= np.float32(self.sampling.frequency_penalty) * counts
        logits[tokens] = values

    def _draw(self, logits: Logits) -> int:
        if self.sampling.greedy:
            return int(logits.argmax())
        tokens: npt.NDArray[np.int64] | None = None
        scores = logits
        if 0 < self.sampling.top_k < scores.size:
            tokens = np.argpartition(scores, -self.sampling.top_k)[-self.sampling.top_k :]
            scores = scores[tokens]
        probabilities = softmax(scores / np.float32(self.sampling.temperature))
        # TensorRT-LLM: top_k alone means top_p 1.
        top_p = self.sampling.top_p or 1.0
        if top_p < 1.0:
            kept = nucleus(probabilities, top_p)
            tokens = kept if tokens is None else tokens[kept]
            probabilities = probabilities[kept]
        totals = probabilities.cumsum(dtype=np.float64)
        drawn = int(np.searchsorted(totals, self._random.random() * totals[-1], side="right"))
        drawn = min(drawn, totals.size - 1)
        return drawn if tokens is None else int(tokens[drawn])

    def _completes_banned_word(self, token: int) -> bool:
        text = self._tail + self.piece(token)
        return any(word in text for word in self.banned_words)

    def _remember(self, token: int) -> None:
        self._generated += 1
        if self.sampling.penalised:
            self._seen[token] = self._seen.get(token, 0) + 1
        if self.banned_words:
            longest = max(map(len, self.banned_words))
            self._tail = (self._tail + self.piece(token))[-(longest - 1) :] if longest > 1 else b""

    def _with_log_probs(self, token: int, logits: Logits) -> Choice:
        top_value = logits.max()
        total = float(top_value) + float(np.log(np.exp(logits - top_value).sum(dtype=np.float64)))
        top: tuple[tuple[int, float], ...] = ()
        if self.alternatives:
            best = np.argpartition(logits, -self.alternatives)[-self.alternatives :]
            best = best[np.argsort(-logits[best], kind="stable")]
            top = tuple((int(other), float(logits[other]) - total) for other in best)
        return Choice(token, float(logits[token]) - total, top)


def softmax(scores: Logits) -> Logits:
    """Probabilities of scores; never NaN while one score is finite."""
    raised: Logits = np.exp(scores - scores.max())
    raised /= np.float32(raised.sum(dtype=np.float64))
    return raised


def nucleus(probabilities: Logits, top_p: float) -> npt.NDArray[np.int64]:
    """Indices of the smallest set of tokens, most likely first, whose probability reaches `top_p`."""
    size = probabilities.size
    look = min(NUCLEUS_FIRST_LOOK, size)
    while True:
        best = np.argpartition(probabilities, size - look)[size - look :] if look < size else np.arange(size)
        best = best[np.argsort(-probabilities[best], kind="stable")]
        totals = probabilities[best].cumsum(dtype=np.float64)
        if totals[-1] >= top_p or look == size:
            count = int(np.searchsorted(totals, top_p, side="left")) + 1
            return best[:count]
        look = size
