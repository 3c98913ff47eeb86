"""What a worker knows of a server besides its log, and what its diagnosis makes of it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from apps.diagnosis.domain.circumstances import Circumstances
from apps.serving.domain.repository import RepositoryFile
from tests.support.standin import StandIn
from workers import failures, server_circumstances
from workers.runtimes import arguments
from workers.runtimes.base import Failure, ServerSpec
from workers.runtimes.triton import TritonRuntime, read_secret

LOGS = Path(__file__).parents[1] / "data" / "logs"
CRASHED = Failure("crashed", "The server ended by itself with code 1.", "It is started again.")


def config(**parameters: str) -> str:
    """A config.pbtxt with these string parameters."""
    each = (f'parameters {{ key: "{k}" value {{ string_value: "{v}" }} }}' for k, v in parameters.items())
    return "\n".join(('name: "x"', *each))


def server(tmp_path: Path, log: str = "", **models: str) -> ServerSpec:
    """A server that was prepared and has ended: its log of a report, its models' configurations."""
    spec = ServerSpec("i-1", tmp_path / "i-1", "chat", None)
    spec.folder.mkdir()
    if log:
        shutil.copyfile(LOGS / f"{log}.log", spec.log)
    for name, text in models.items():
        (spec.repository_folder / name).mkdir(parents=True)
        (spec.repository_folder / name / "config.pbtxt").write_text(text)
    return spec


def engine(folder: Path, **parts: Any) -> Path:
    """An engine's folder of two ranks with this config.json."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(parts))
    for rank in range(2):
        (folder / f"rank{rank}.engine").write_bytes(b"")
    return folder


def facts_of(spec: ServerSpec) -> dict[str, Any]:
    found = failures.explain(CRASHED, spec, 1).diagnosis["diagnosis"]
    assert found is not None
    facts: dict[str, Any] = found["facts"]
    return facts


def test_the_right_number_of_processes_and_what_was_launched(tmp_path: Path) -> None:
    folder = engine(tmp_path / "engine", pretrained_config={"mapping": {"tp_size": 4, "pp_size": 2}})
    spec = server(
        tmp_path, "build-flags-do-not-set-tp", chat=config(), llm=config(gpt_model_path=str(folder))
    )
    spec.command.write_text(json.dumps(["mpirun", "-n", "1", "tritonserver", ":", "-n", "1", "tritonserver"]))
    assert facts_of(spec).items() >= {("right_world_size", 8), ("launched", 2)}
    # An engine without a mapping has as many ranks as files.
    (folder / "config.json").write_text("{}")
    assert facts_of(spec)["right_world_size"] == 2


def test_a_missing_file_is_named_with_its_path(tmp_path: Path) -> None:
    spec = server(
        tmp_path, "json-parse-error-101-is-a-missing-file", chat=config(gpt_model_path="/srv/engines/llama")
    )
    assert facts_of(spec)["path"] == "/srv/engines/llama/config.json"


def test_one_buffer_of_logits_by_the_engine_of_the_row(tmp_path: Path) -> None:
    folder = engine(tmp_path / "engine", pretrained_config={"vocab_size": 32000})
    spec = server(tmp_path, "oom-at-load-not-the-kv-cache")
    named = ServerSpec(spec.uid, spec.folder, spec.model, None, engine=folder)
    assert "one_logits_buffer_bytes" not in facts_of(spec)
    assert facts_of(named)["one_logits_buffer_bytes"] == 2048 * 32000 * 4


def test_parts_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    folder = engine(tmp_path / "engine")
    (folder / "config.json").write_text("[" * 100_000)
    spec = server(
        tmp_path,
        "build-flags-do-not-set-tp",
        chat="name: {",
        nul=config(gpt_model_path=r"/a\000b"),
        llm=config(gpt_model_path=str(folder)),
    )
    spec.command.write_text("{")
    known = server_circumstances.of(spec)
    assert (known.command, dict(known.engine)) == ((), {})
    assert known.files == ("config.json", "rank0.engine", "rank1.engine")
    assert facts_of(spec)["right_world_size"] == 2
    # A pipe would keep the reader for ever.
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    assert dict(server_circumstances.of(spec).engine) == {}


def test_a_server_that_was_never_prepared_is_explained_without(tmp_path: Path) -> None:
    spec = ServerSpec("i-1", tmp_path / "nowhere", "chat", None)
    assert server_circumstances.of(spec) == Circumstances()
    assert failures.explain(CRASHED, spec, 1).failure == CRASHED


def test_a_fault_of_the_rules_leaves_the_failure_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> None:
        raise RecursionError

    monkeypatch.setattr(failures, "diagnose", broken)
    spec = server(tmp_path, "build-flags-do-not-set-tp")
    found = failures.explain(CRASHED, spec, 1)
    assert found.failure == CRASHED
    assert found.diagnosis["diagnosis"] is None
    assert found.diagnosis["log"]


def test_a_log_with_nuls_can_be_kept(tmp_path: Path) -> None:
    spec = server(tmp_path)
    spec.log.write_bytes(b"a\0b")
    assert failures.explain(CRASHED, spec, 1).diagnosis["log"] == "a\N{REPLACEMENT CHARACTER}b"


def test_the_command_is_kept_without_its_secret(tmp_path: Path, standin: StandIn) -> None:
    model = RepositoryFile("chat/config.pbtxt", config(gpt_model_path="/srv/llama").encode())
    spec = ServerSpec("i-1", tmp_path / "i-1", "chat", None, (model,))
    launch = TritonRuntime().prepare(spec)
    known = server_circumstances.of(spec)
    assert known.command == launch.shown_argv
    assert (known.flag("--id"), known.engine_folder()) == ("i-1", "/srv/llama")
    secret = read_secret(spec.folder)
    assert secret
    assert secret not in spec.command.read_text()
    assert arguments.HEADER in spec.command.read_text()
