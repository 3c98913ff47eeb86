"""Last stage: what serving needs beside the artefact, then hash, manifest, sync and one rename."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from apps.engines.domain.trtllm.request import BuildRequest
from apps.engines.domain.trtllm.results import check_engine
from apps.registry.domain.tokenizer_facts import TOKENIZERS
from workers.builders.llamacpp_steps.events import StepFailed, run, say
from workers.builders.publishing import publish

TOKENIZER_FOLDER = "tokenizer"
# Beside the tokenizer's own file: what transformers reads to use it, and how a model's answers end.
BESIDE = (
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt"),
    *("chat_template.jinja", "generation_config.json", "config.json"),
)


def main() -> None:
    """Command line of the stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artefact", type=Path, required=True, help="the finished folder, still hidden")
    parser.add_argument("--plan", type=Path, required=True, help="what was set out to do")
    parser.add_argument("--engines", type=Path, required=True)
    parser.add_argument("--fingerprint", required=True)
    parser.add_argument("--model", type=Path, required=True, help="the checkpoint's folder")
    parser.add_argument("--report", type=Path, action="append", default=[], help="of a step, kept beside it")
    options = parser.parse_args()
    plan = json.loads(options.plan.read_text(encoding="utf-8"))
    artefact: Path = options.artefact
    artefact.mkdir(parents=True, exist_ok=True)
    if plan["recipe"] == "engine":
        plan["engine"] = examine(artefact, plan)
    fetch_tokenizer(options.model, artefact)
    for report in options.report:
        shutil.copyfile(report, artefact / f"report_{report.name}")
    publish(artefact, plan, options.engines, options.fingerprint, {})


def examine(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """What the engine's own config.json says. Raises StepFailed where it is not what was asked for."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        config = None
    sizes = {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
    made, found = check_engine(config, sizes, BuildRequest.model_validate(plan["request"]))
    if found or made is None:
        raise StepFailed(found[0].id, found[0].message, found[0].remedy)
    say(f"{made.architecture} {made.dtype}, {made.world_size} ranks, {made.limits}")
    return made.as_dict()


def fetch_tokenizer(model: Path, artefact: Path) -> None:
    """Copy the tokenizer's files beside the artefact, so that serving needs no other folder and no hub."""
    names = [name for name in (*TOKENIZERS, *BESIDE) if (model / name).is_file()]
    if not any(name in TOKENIZERS for name in names):
        raise StepFailed(
            "tokenizer_missing",
            f"{model.name} has no tokenizer.",
            "Copy the tokenizer's files of the same model into the checkpoint's folder.",
        )
    folder = artefact / TOKENIZER_FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in names:
        shutil.copyfile(model / name, folder / name)
    say(f"tokenizer: {', '.join(names)}")


if __name__ == "__main__":
    run(main)
