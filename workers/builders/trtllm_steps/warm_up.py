"""The PyTorch backend loads a checkpoint once and generates a token: proof that this host can serve it.

Runs in the Python of the TensorRT-LLM installation, so it imports nothing but the standard library and tensorrt_llm.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from pathlib import Path


def main() -> None:
    """Command line of the step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--pp", type=int, default=1)
    parser.add_argument("--report", type=Path, required=True)
    options = parser.parse_args()
    library = importlib.import_module("tensorrt_llm")
    began = time.monotonic()
    engine = library.LLM(
        model=options.model, tensor_parallel_size=options.tp, pipeline_parallel_size=options.pp
    )
    loaded = time.monotonic()
    answers = engine.generate(["Hello"], library.SamplingParams(max_tokens=1))
    first = next(iter(answers))
    report = {
        "version": library.__version__,
        "load_seconds": round(loaded - began, 3),
        "generate_seconds": round(time.monotonic() - loaded, 3),
        "text": first.outputs[0].text,
    }
    partial = options.report.with_suffix(".part")
    partial.write_text(json.dumps(report, indent=1), encoding="utf-8")
    partial.replace(options.report)
    shutdown = getattr(engine, "shutdown", None)
    if shutdown is not None:
        shutdown()


if __name__ == "__main__":
    main()
