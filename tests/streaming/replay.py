"""The stream cases as models of a real tritonserver: one for each kind of interface."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tritonclient.grpc import model_config_pb2 as pb

from apps.serving.domain import pbtxt
from tests.streaming.stream_cases import ALL, INPUTS, OUTPUTS, Kind

MODEL = Path(__file__).resolve().parents[1] / "data/replay/model.py"
KINDS: tuple[Kind, ...] = ("ours", "ensemble", "bls", "llmapi")
TYPES = {"BYTES": "STRING"}
NUMBERS = ("token_count", "completion_tokens")


def write(root: Path) -> None:
    """A repository with a model of each kind, named as the kind."""
    for kind in KINDS:
        folder = root / kind / "1"
        folder.mkdir(parents=True)
        shutil.copyfile(MODEL, folder / "model.py")
        cases = {case.name: list(map(_plain, case.steps)) for case in ALL if case.kind == kind}
        (folder / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
        (root / kind / "config.pbtxt").write_text(_config(kind), encoding="utf-8")


def _plain(step: dict[str, Any]) -> dict[str, Any]:
    if "outputs" not in step:
        return step
    outputs = {
        name: {"hex": value.hex()} if isinstance(value, bytes) else value
        for name, value in step["outputs"].items()
    }
    return {**step, "outputs": outputs}


def _config(kind: Kind) -> str:
    config = pb.ModelConfig(name=kind, backend="python", max_batch_size=0 if kind == "llmapi" else 1)
    config.model_transaction_policy.decoupled = True
    for name, datatype in INPUTS[kind].items():
        dims = [-1] if kind == "llmapi" and datatype == "BYTES" else [1]
        config.input.append(
            pb.ModelInput(
                name=name,
                data_type=_type(TYPES.get(datatype, datatype)),
                dims=[-1] if name == "stop_words" else dims,
                optional=name != "text_input",
            )
        )
    for name in OUTPUTS[kind]:
        datatype = "INT32" if name in NUMBERS else "STRING"
        config.output.append(pb.ModelOutput(name=name, data_type=_type(datatype), dims=[1]))
    config.instance_group.add(count=1, kind=pb.ModelInstanceGroup.KIND_CPU)
    return pbtxt.render(config)


def _type(name: str) -> Any:
    return getattr(pb, f"TYPE_{name}")
