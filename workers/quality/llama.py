"""llama.cpp with the logits of many tokens at once: the runtime of the Triton model, its context opened for that."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

MODEL_CODE = Path(__file__).parents[1] / "triton_models" / "llamacpp" / "1"
sys.path.insert(0, str(MODEL_CODE))

# The model's own folder, laid out as Triton sees it.
import llamacpp_abi as abi  # type: ignore[import-not-found]  # noqa: E402
import llamacpp_errors  # type: ignore[import-not-found]  # noqa: E402
from llamacpp_runtime import Entry, LlamaRuntime  # type: ignore[import-not-found]  # noqa: E402
from llamacpp_settings import Settings  # type: ignore[import-not-found]  # noqa: E402

failures = llamacpp_errors
# Tokens of one step, and so rows of logits that are held: 128 rows of a large vocabulary are 80 MB.
STEP, CONTEXT = 128, 1024
Logits = npt.NDArray[np.float32]


class QualityRuntime(LlamaRuntime):
    """One sequence, logits for every token of a step."""

    def __init__(self, path: Path, threads: int) -> None:
        super().__init__(
            Settings(
                gguf_path=str(path),
                slots=1,
                context_per_slot=CONTEXT,
                threads=threads,
                prefill_tokens_per_step=STEP,
            )
        )

    def _open_context(self, settings: Any) -> int:
        params = self._library.llama_context_default_params()
        params.n_ctx = settings.context_per_slot
        params.n_batch = params.n_ubatch = STEP + 1
        params.n_outputs_max = params.n_outputs_max_per_seq = STEP + 1
        params.n_threads = params.n_threads_batch = settings.threads
        params.flash_attn_type = abi.FLASH_ATTENTION_ON
        context = self._library.llama_init_from_model(self._model, params)
        if not context:
            raise failures.EngineLoadError(f"llama.cpp cannot reserve {CONTEXT} tokens. {self._words()}")
        return int(context)

    def forced(self, tokens: Sequence[int]) -> Logits:
        """Logits of the next token after each of `tokens` (at most STEP), from an empty cache; a copy."""
        self.forget(0, 0)
        rows = self.decode([Entry(token, place, 0, True) for place, token in enumerate(tokens)])
        return np.array(rows)

    def greedy(self, prompt: Sequence[int], most: int) -> tuple[list[int], float]:
        """The likeliest continuation, up to `most` tokens or an end; and the seconds from the first token on."""
        self.forget(0, 0)
        last: Logits | None = None
        for begin in range(0, len(prompt), STEP):
            part = prompt[begin : begin + STEP]
            ends = begin + len(part) == len(prompt)
            rows = self.decode(
                [
                    Entry(token, begin + place, 0, ends and place == len(part) - 1)
                    for place, token in enumerate(part)
                ]
            )
            last = rows[0] if rows else None
        found: list[int] = []
        began = time.perf_counter()
        while last is not None and len(found) < most:
            token = int(last.argmax())
            if token in self.end_ids:
                break
            found.append(token)
            last = self.decode([Entry(token, len(prompt) + len(found) - 1, 0, True)])[0]
        return found, time.perf_counter() - began

    def text(self, tokens: Sequence[int]) -> str:
        """Tokens as text."""
        return b"".join(self.piece(token) for token in tokens).decode(errors="replace")
