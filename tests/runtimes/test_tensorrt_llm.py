"""TensorRT-LLM deployments from deploy to nothing left, over doubles that act on their command line."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from apps.engines.models import Engine
from apps.fleet.models import Toolchain
from apps.serving import preview, reach, services, states
from apps.serving.models import Deployment, Instance
from tests import objects
from tests.runtimes.rows import identity_of, only_instance
from tests.support.standin import StandIn, Ticker
from tests.support.trtllm import rows, served
from tests.support.trtllm.installed import IMAGE, install
from workers import instance_spec
from workers.instance_spec import server_spec
from workers.runtimes import placed, processes
from workers.runtimes.base import ServerFailure
from workers.runtimes.triton import TritonRuntime

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(60)]
STEPS = ["preprocessing", "tensorrt_llm", "postprocessing"]


@pytest.fixture(autouse=True)
def host(tmp_path: Path, standin: StandIn, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node with GPUs, a toolchain, templates and a tensorrtllm backend; returns the templates' folder."""
    settings.INFLIGHT_TRITON_BACKENDS = str(tmp_path / "backends")
    (tmp_path / "backends/tensorrtllm").mkdir(parents=True)
    templates = served.write_templates(tmp_path)
    monkeypatch.setenv("INFLIGHT_TRTLLM_TEMPLATES", str(templates))
    served.node()
    return templates


def asked(recipe: str = "engine", tp: int = 1, **placed_by: Any) -> Deployment:
    """A deployment of an engine that is there, asked to run; `placed_by` are settings of placement.trtllm."""
    profile = rows.profile("small", recipe=recipe, tp=tp)
    served.engine(profile, recipe, tp)
    batching = objects.batching(
        "four", engine="llmapi" if recipe == "checkpoint" else "trtllm", max_batch_size=4
    )
    placement = {"device": "gpu", **({"trtllm": placed_by} if placed_by else {})}
    row = objects.deployment("fox", build_profile=profile, batching=batching, placement=placement)
    return services.deploy("test", row)


def folders(row: Instance) -> set[str]:
    """Paths of the files of an instance's repository."""
    root = Path(row.folder) / "repository"
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("around", "called"), [({}, "ensemble"), ({"answering_model": "tensorrt_llm_bls"}, "tensorrt_llm_bls")]
)
def test_an_engine_serves_through_its_steps_and_finishes_what_it_began(
    standin: StandIn, ticker: Ticker, around: dict[str, str], called: str
) -> None:
    demo = asked(**around)
    ticker.until_state(demo, states.READY)
    row = only_instance()
    # An ensemble loads its steps itself; loaded before, they would be loaded twice.
    assert standin.control() == [["load", name] for name in (*(STEPS if around else []), "fox")]
    code = {"fox/1/model.py", "fox/1/lib/decode.py", "fox/1/lib/triton_decoder.py"} if around else set()
    assert folders(row) == code | {
        *(f"{name}/config.pbtxt" for name in (*STEPS, "fox")),
        *("preprocessing/1/model.py", "postprocessing/1/model.py"),
    }
    root = Path(row.folder) / "repository"
    # Triton serves a version whose folder is there.
    assert (root / "tensorrt_llm/1").is_dir()
    text = (root / "fox/config.pbtxt").read_text()
    assert ('platform: "ensemble"' in text) == (called == "ensemble")
    assert preview.rendered_files(row.revision)["fox/config.pbtxt"] == text
    engine = row.revision.engine
    assert engine is not None
    assert f'string_value: "{engine.path}/tokenizer"' in (root / "preprocessing/config.pbtxt").read_text()
    [probe] = standin.probes()
    assert (probe["max_tokens"], probe["stream"], "num_log_probs" in probe) == (1, True, False)
    environment = processes.environment_of(row.pid or 0) or {}
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-0"
    assert reach.of(demo).where == "gateway"

    services.stop("test", demo)
    ticker.until_state(demo, states.STOPPED)
    # Nobody counts its requests, so the server itself is asked to finish them.
    assert standin.control()[-1] == ["unload", "fox"]
    assert processes.group_members(identity_of(row)) == []


def test_a_checkpoint_is_asked_in_the_names_of_its_own_model(standin: StandIn, ticker: Ticker) -> None:
    demo = asked("checkpoint")
    ticker.until_state(demo, states.READY)
    row = only_instance()
    assert folders(row) == {
        *("fox/config.pbtxt", "fox/1/model.yaml", "fox/1/model.py", "fox/1/helpers.py"),
    }
    [probe] = standin.probes()
    assert (probe["sampling_param_max_tokens"], probe["streaming"]) == (1, True)
    assert "stop_words" not in probe
    stub = next(pid for pid in processes.group_members(identity_of(row)) if pid != row.pid)
    processes.kill_one(identity_of(row).__class__(stub, processes.create_time(stub) or 0.0, row.uid))
    ticker.until(lambda: Instance.objects.filter(pk=row.pk, reason="model_process_died").exists())


def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance_spec, "visible_gpus", lambda row: "GPU-0,GPU-1")


def test_ranks_of_a_leader_live_and_die_together(
    standin: StandIn, ticker: Ticker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'double').bin}:/usr/bin:/bin")
    _two_gpus(monkeypatch)
    demo = asked(tp=2)
    ticker.until_state(demo, states.READY)
    row = only_instance()
    command = json.loads((Path(row.folder) / "command.json").read_text())
    assert command[0].endswith("mpirun")
    assert command.count(":") == 1
    assert "--load-model=tensorrt_llm" in command[command.index(":") :]
    # mpirun, two servers, and a process for each python model; the ranks are in sessions of their own.
    members = processes.group_members(identity_of(row))
    assert len(members) >= 5
    services.stop("test", demo)
    ticker.until_state(demo, states.STOPPED)
    assert processes.group_members(identity_of(row)) == []


def test_an_orchestrator_is_one_server_that_starts_its_workers(
    standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'double').bin}:/usr/bin:/bin")
    _two_gpus(monkeypatch)
    launch = TritonRuntime().prepare(server_spec(placed_row(tp=2, rank_mode="orchestrator"), whole=True))
    words = [Path(word).name for word in launch.argv]
    assert words[: words.index("tritonserver") + 1][-3:] == ["-n", "1", "tritonserver"]
    assert ":" not in words
    assert launch.env["TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES"] == "1"


def placed_row(**how: Any) -> Instance:
    """An instance that waits for its start."""
    demo = asked(**how)
    revision = demo.revisions.get()
    node = served.node()
    return Instance.objects.create(
        deployment=demo,
        revision=revision,
        uid="i-waits",
        state=states.PLACED,
        node=node,
        gpu=node.gpus.first(),
    )


def test_a_container_is_the_same_command_and_ends_with_its_server(
    standin: StandIn, ticker: Ticker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    double = install(tmp_path / "double")
    monkeypatch.setattr(placed, "SYSTEM", standin.binary)
    demo = asked()
    Toolchain.objects.update(how="docker", location=IMAGE, program=str(double.bin / "docker"))
    ticker.until_state(demo, states.READY)
    row = only_instance()
    command = json.loads((Path(row.folder) / "command.json").read_text())
    assert command[:3] == [str(double.bin / "docker"), "run", "--rm"]
    assert command[command.index("--network") + 1] == "host"
    assert command[command.index("--gpus") + 1] == '"device=GPU-0"'
    mounts = [word for word in command if word.startswith("type=bind")]
    engine = row.revision.engine
    assert engine is not None
    assert f"type=bind,source={engine.path},target={engine.path},readonly" in mounts
    assert placed.runs(Path(row.folder))
    # Its client dies; what ran in the container is ended all the same.
    processes.kill_one(identity_of(row))
    ticker.until(lambda: Instance.objects.filter(pk=row.pk, state=states.FAILED, pid=None).exists())
    assert not placed.runs(Path(row.folder))


def _no_templates(host: Path, patch: pytest.MonkeyPatch) -> None:
    patch.delenv("INFLIGHT_TRTLLM_TEMPLATES")


def _other_release(host: Path, patch: pytest.MonkeyPatch) -> None:
    (host.parent / "tools/version.txt").write_text("0.19.0\n")


def _no_backend(host: Path, patch: pytest.MonkeyPatch) -> None:
    (host.parent / "backends/tensorrtllm").rmdir()


def _no_engine(host: Path, patch: pytest.MonkeyPatch) -> None:
    (Path(Engine.objects.get().path) / "config.json").unlink()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (_no_templates, "no template folder of TensorRT-LLM 1.2.1"),
        (_other_release, "are of TensorRT-LLM 0.19, the node has 1.2"),
        (_no_backend, "has no backend tensorrtllm"),
        (_no_engine, "The engine's file is missing"),
    ],
)
def test_what_is_missing_is_said_before_anything_starts(
    fault: Any, words: str, host: Path, standin: StandIn, ticker: Ticker, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = asked()
    fault(host, monkeypatch)
    ticker.until_state(demo, states.FAILED)
    assert words in demo.sentence
    assert demo.remedy
    assert standin.starts() == 0


def test_ranks_without_their_gpus_are_refused_in_words() -> None:
    with pytest.raises(ServerFailure, match="needs 2 GPUs of one host"):
        TritonRuntime().prepare(server_spec(placed_row(tp=2), whole=True))


def test_files_of_an_instance_are_nobody_elses_to_write(standin: StandIn, ticker: Ticker) -> None:
    demo = asked()
    ticker.until_state(demo, states.READY)
    path = Path(only_instance().folder) / "repository/preprocessing/1/model.py"
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
