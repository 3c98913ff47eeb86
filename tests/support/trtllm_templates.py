"""A folder laid out as TensorRT-LLM's templates are, with python files of our own that only carry the right names."""

from __future__ import annotations

import json
from pathlib import Path

from apps.serving.domain.trtllm.templates import NEEDED

CODE = '''"""Stands where the node's own file does."""


class TritonPythonModel:
    def execute(self, requests):
        return []
'''


def write_templates(root: Path, release: str = "1.2.1") -> Path:
    """Write `root/all_models` and the release beside it; returns the folder all_models."""
    for kind, models in NEEDED.items():
        for model, paths in models.items():
            for path in paths:
                file = root / "all_models" / kind / model / "1" / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(CODE, encoding="utf-8")
    (root / "tools").mkdir()
    (root / "tools/version.txt").write_text(f"{release}\n", encoding="utf-8")
    return root / "all_models"


def write_engine(folder: Path, ranks: int = 1, batch: int = 256) -> Path:
    """Write an engine's folder as far as a repository's check looks at it: configuration and a file for each rank."""
    folder.mkdir(parents=True)
    configuration = {
        "version": "1.2.1",
        "pretrained_config": {"mapping": {"world_size": ranks, "tp_size": ranks, "pp_size": 1}},
        "build_config": {
            "max_batch_size": batch,
            "max_beam_width": 1,
            "max_seq_len": 8192,
            "max_num_tokens": 8192,
        },
    }
    (folder / "config.json").write_text(json.dumps(configuration), encoding="utf-8")
    for rank in range(ranks):
        (folder / f"rank{rank}.engine").write_bytes(b"engine")
    return folder
