"""What quantising costs in quality and gains in speed: Q8_0 and Q4_0 against the F16 of one model.

    .venv/bin/python -m benchmarks.quality --source F16.gguf                 # makes both with the builder's own stage
    .venv/bin/python -m benchmarks.quality --source F16.gguf --build Q4.gguf # files that are there

The comparison is the product's (workers.quality.logits) on its bundled text and golden prompts, the figures and
their 95% intervals are apps.loadtests.domain.quality's. F16 against itself is measured too: it must show no loss at
all, and how far its speed ratio lies from 1 says what the machine's noise is worth. Exit 1 where it shows a loss.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from apps.loadtests.domain.quality import read_rows, summary
from apps.loadtests.domain.quality_words import table
from benchmarks.batching import machine
from benchmarks.closed_loop import SYSTEM
from benchmarks.serving import find_installation
from workers.quality.rows import PLAN, ROWS

CHECKOUT = Path(__file__).resolve().parents[1]
DATA = CHECKOUT / "apps" / "loadtests" / "data"
TYPES = ("Q8_0", "Q4_0")
WINDOWS, ANSWER_TOKENS = 32, 48


def prompts() -> list[list[str]]:
    """The golden prompts in the demo model's own template."""
    rows = json.loads((DATA / "quality_prompts.json").read_text(encoding="utf-8"))
    return [
        [
            row["name"],
            row["prompt"],
            f"{SYSTEM}<|im_start|>user\n{row['prompt']}<|im_end|>\n<|im_start|>assistant\n",
        ]
        for row in rows
    ]


def run(python: Path, module: str, *arguments: str) -> None:
    """Run a module under the serving environment's Python; its words are shown where it fails."""
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    argv = [str(python), "-P", "-m", module, *arguments]
    done = subprocess.run(argv, cwd=CHECKOUT, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{module} failed:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")


def compare(python: Path, source: Path, build: Path, folder: Path, threads: int) -> dict[str, Any]:
    """The result of one comparison."""
    folder.mkdir(parents=True)
    plan = {
        "source": str(source),
        "build": str(build),
        "text": (DATA / "quality_text.txt").read_text(encoding="utf-8"),
        "prompts": prompts(),
        "windows": WINDOWS,
        "answer_tokens": ANSWER_TOKENS,
        "threads": threads,
    }
    (folder / PLAN).write_text(json.dumps(plan), encoding="utf-8")
    run(python, "workers.quality.logits", str(folder / PLAN))
    return summary(*read_rows((folder / ROWS).read_text(encoding="utf-8")))


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, required=True, help="the F16 GGUF file")
    parser.add_argument(
        "--build", type=Path, nargs="*", help="files to compare; default: Q8_0 and Q4_0, made here"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="write the results here")
    options = parser.parse_args()
    python = Path(find_installation().python)
    began = time.monotonic()
    results: list[tuple[str, dict[str, Any]]] = []
    with tempfile.TemporaryDirectory(prefix="inflight-quality-") as place:
        builds = {path.stem: path for path in options.build or ()}
        for kind in () if options.build else TYPES:
            builds[kind] = Path(place) / f"{kind}.gguf"
            converting = ["--source", str(options.source), "--target", str(builds[kind]), "--type", kind]
            run(python, "workers.builders.llamacpp_steps.convert", *converting)
        for label, path in {"F16, itself": options.source, **builds}.items():
            folder = Path(place) / f"run-{len(results)}"
            results.append((label, compare(python, options.source, path, folder, options.threads)))
    print("\n".join(table(results)))
    for label, result in results[1:]:
        for row in result["answers"][:2]:
            print(f"\n{label}, {row['prompt']}\n  source: {row['source']!r}\n  build:  {row['build']!r}")
    first = results[0][1]
    print(
        f"\n{first['tokens']} tokens scored in {first['windows']} windows, {first['prompts']} golden prompts of "
        f"{ANSWER_TOKENS} tokens; 95% intervals in brackets. Machine: {machine()}. Took "
        f"{time.monotonic() - began:.0f} s."
    )
    if options.json:
        options.json.write_text(json.dumps(dict(results), indent=1), encoding="utf-8")
    return (
        0
        if first["figures"]["divergence"]["value"] < 1e-6 and first["figures"]["agreement"]["value"] == 1
        else 1
    )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
