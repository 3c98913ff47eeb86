"""A checkpoint for the PyTorch backend is checked: facts, weights, tokenizer. Nothing is compiled or copied."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from apps.registry.domain.checkpoint_reader import read_checkpoint
from apps.registry.domain.tokenizer_facts import TOKENIZERS
from workers.builders.llamacpp_steps.events import StepFailed, run, say, send


def main() -> None:
    """Command line of the step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    options = parser.parse_args()
    validate(options.model, options.report)


def validate(model: Path, report: Path) -> None:
    """Read the folder and write its facts to `report`. Raises StepFailed where it cannot be served."""
    found = read_checkpoint(model)
    errors = [finding for finding in found.facts.findings if finding.severity == "error"]
    for finding in found.facts.findings:
        say(f"{finding.severity}: {finding.message}")
    if errors:
        raise StepFailed(errors[0].id, errors[0].message, errors[0].remedy)
    if not any((model / name).is_file() for name in TOKENIZERS):
        raise StepFailed(
            "tokenizer_missing",
            f"{model.name} has no tokenizer.",
            "Copy the tokenizer's files of the same model into the folder.",
        )
    if not any(model.glob("*.safetensors")):
        raise StepFailed(
            "weights_missing",
            f"{model.name} holds no safetensors file.",
            "Fetch the weights in safetensors form.",
        )
    facts = found.facts.model_dump(mode="json", exclude={"findings"})
    partial = report.with_suffix(".part")
    partial.write_text(
        json.dumps({"facts": facts, "size_bytes": found.size_bytes}, indent=1), encoding="utf-8"
    )
    partial.replace(report)
    say(f"{found.facts.architecture}: {found.size_bytes} bytes of files")
    send("result", facts={"architecture": found.facts.architecture, "size_bytes": found.size_bytes})


if __name__ == "__main__":
    run(main)
