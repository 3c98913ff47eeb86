"""Third stage: llama.cpp loads the engine and generates a few tokens greedily."""

from __future__ import annotations

import argparse
import json
import math
import secrets
import time
from pathlib import Path
from typing import Any

from workers.builders.llamacpp_steps.events import StepFailed, run, say, send

PROMPT = "The capital of France is"
TOKENS = 8
CONTEXT = 256


def main() -> None:
    """Command line of the stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    verify(options.model, options.threads)


def verify(model: Path, threads: int) -> None:
    """Load and generate; sends prompt, text, tokens and tokens/s."""
    server = _load(model, threads)
    pieces: list[dict[str, Any]] = []
    body = {
        "prompt": PROMPT,
        "stream": True,
        "n_predict": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "n_probs": 1,
    }

    def take(piece: Any) -> bool:
        pieces.append(json.loads(piece) if isinstance(piece, str | bytes) else piece)
        return False

    started = time.monotonic()
    server.handle_completions(json.dumps(body), take)
    seconds = time.monotonic() - started
    text, tokens = _read(pieces)
    say(f"{PROMPT!r} -> {text!r} ({tokens} tokens in {seconds:.2f} s)")
    facts = {
        "prompt": PROMPT,
        "text": text,
        "tokens": tokens,
        "tokens_per_second": round(tokens / seconds, 2),
    }
    send("result", facts=facts)


def _load(model: Path, threads: int) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.n_ctx, params.n_parallel, params.warmup = CONTEXT, 1, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    # The server inside opens a port; nobody but this process is to use it.
    params.api_keys = [secrets.token_urlsafe(24)]
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        # llama.cpp has said why in the lines above; the supervisor's log rules read them.
        raise SystemExit(f"llama.cpp cannot load {model.name}: {error}") from error


def _read(pieces: list[dict[str, Any]]) -> tuple[str, int]:
    problem = next((piece["error"] for piece in pieces if "error" in piece), None)
    if problem is not None:
        raise StepFailed("generation_failed", f"llama.cpp generated nothing: {problem}.", "See the log.")
    choices = [choice for piece in pieces for choice in piece.get("choices", [])]
    logprobs = [
        entry["logprob"] for choice in choices for entry in (choice.get("logprobs") or {}).get("content", [])
    ]
    # JSON has no NaN: it arrives as null.
    if any(value is None or not math.isfinite(value) for value in logprobs):
        raise StepFailed(
            "engine_generates_nan",
            "The engine computes probabilities that are no numbers.",
            "Build with BF16 or F16, or fetch the checkpoint again.",
        )
    text = "".join(choice.get("text", "") for choice in choices)
    tokens = max((piece.get("usage", {}).get("completion_tokens", 0) for piece in pieces), default=0)
    if not text.strip() or not tokens:
        raise StepFailed(
            "engine_generates_nothing",
            "The engine loads but generates no text.",
            "Choose a wider weight type, or fetch the checkpoint again.",
        )
    return text, tokens


if __name__ == "__main__":
    run(main)
