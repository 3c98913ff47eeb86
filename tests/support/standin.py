"""A stand-in for tritonserver, and a reconciler whose ticks a test drives by hand."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from apps.engines.models import Engine
from apps.fleet.models import Node
from apps.serving import services
from apps.serving.domain import restarts
from apps.serving.models import Deployment, Instance
from tests import objects
from workers import instance_steps
from workers.instance_steps import Stepper
from workers.reconcile import Reconciler
from workers.runtimes import memory_files, processes
from workers.runtimes.triton import TritonRuntime

PROGRAM = Path(__file__).resolve().parents[1] / "runtimes" / "standin.py"


@dataclass(frozen=True, slots=True)
class StandIn:
    """The program's folder; `behave` changes what it does, at once."""

    folder: Path

    @property
    def binary(self) -> Path:
        """What INFLIGHT_TRITON_BIN names."""
        return self.folder / "tritonserver"

    def behave(self, **how: Any) -> None:
        """Add to the behaviour, see runtimes/standin.py."""
        path = self.folder / "behaviour.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps({**known, **how}))
        temporary.replace(path)

    def starts(self) -> int:
        """How often it was started."""
        path = self.folder / "starts.txt"
        return int(path.read_text()) if path.exists() else 0

    def control(self) -> list[list[str]]:
        """What was asked of the control of models, in order: [load or unload, model]."""
        path = self.folder / "control.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def probes(self) -> list[dict[str, Any]]:
        """Bodies of the generate requests that it got."""
        path = self.folder / "probes.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


LOCK_SECONDS = 5.0


class Ticker:
    """Ticks of this node's reconciler."""

    def __init__(self) -> None:
        self.wakes: list[float] = []
        self.restart()

    def restart(self) -> None:
        """Forget everything that a worker process remembers, as its death does."""
        self.reconciler = Reconciler(Stepper(TritonRuntime()), lambda: self.wakes.append(time.monotonic()))

    def tick(self) -> float:
        """One tick; returns how long it took, seconds."""
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            began = time.monotonic()
            if self.reconciler.tick():
                return time.monotonic() - began
            # A child that another thread makes holds a copy of the lock until it has become its program.
            assert time.monotonic() < deadline, "the lock of the ticks stays held, or the node has not joined"
            time.sleep(0.02)

    def until(self, condition: Callable[[], Any], seconds: float = 20.0) -> Any:
        """Tick until the condition holds and return its value; fail with every row's state."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.tick()
            if found := condition():
                return found
            time.sleep(0.02)
        rows = [(row.uid, row.state, row.sentence) for row in Instance.objects.order_by("id")]
        states = [(row.name, row.state, row.sentence) for row in Deployment.objects.all()]
        return pytest.fail(f"After {seconds:.0f} s still not so: {states} {rows}")

    def until_state(self, deployment: Deployment, state: str, seconds: float = 20.0) -> Deployment:
        """Tick until the deployment is in a state."""

        def reached() -> bool:
            deployment.refresh_from_db()
            return deployment.state == state

        self.until(reached, seconds)
        return deployment


def end_all() -> None:
    """Kill every server of this run's home, and remove their shared memory."""
    home = Path(django_settings.INFLIGHT_HOME)
    for pid in processes.marked({"INFLIGHT_HOME": str(home)}):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    # One that died by itself has no environment any more, so the folders say whose regions may be left.
    folders = home / "instances"
    for folder in folders.iterdir() if folders.is_dir() else ():
        for region in memory_files.regions(f"{folder.name}_"):
            region.unlink(missing_ok=True)


@pytest.fixture
def standin(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Put the stand-in where the settings name tritonserver, and shorten the waits that are seconds long."""
    made = StandIn(tmp_path / "triton")
    made.folder.mkdir()
    made.binary.write_text(f"#!{sys.executable}\n{PROGRAM.read_text(encoding='utf-8')}")
    made.binary.chmod(0o755)
    settings.INFLIGHT_TRITON_BIN = str(made.binary)
    settings.INFLIGHT_TRITON_BACKENDS = "/nowhere/backends"
    settings.INFLIGHT_TRITON_LIBS = ""
    settings.INFLIGHT_SERVING_SITE_PACKAGES = "/nowhere/site-packages"
    settings.INFLIGHT_SERVING_PYTHONHOME = ""
    settings.INFLIGHT_SERVING_PYTHON = ""
    monkeypatch.setattr(restarts, "BACKOFF_FIRST_SECONDS", 0.05)
    monkeypatch.setattr(instance_steps, "ROUTERS_SETTLE_SECONDS", 0.05)
    return made


@pytest.fixture
def ticker(standin: StandIn) -> Iterator[Ticker]:
    """A reconciler over the stand-in; every process is ended after the test."""
    yield Ticker()
    end_all()


@pytest.fixture
def serving_node(db: None) -> Node:
    """This process's node, ready, with one CPU slot."""
    return objects.node(django_settings.INFLIGHT_NODE_ID)


@pytest.fixture
def demo(serving_node: Node) -> Deployment:
    """A deployment whose engine is built, asked to run."""
    profile = objects.build_profile()
    with_file(objects.engine(profile))
    deployment = objects.deployment(build_profile=profile)
    return services.deploy("test", deployment)


def with_file(engine: Engine) -> Engine:
    """Give an engine the file that servers look for."""
    (Path(engine.path) / "model.gguf").write_bytes(b"GGUF")
    return engine
