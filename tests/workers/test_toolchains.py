"""A node probes its toolchains: supervised children over an installation of doubles, written to rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from apps.core import clock
from apps.fleet.models import Node, Toolchain
from apps.fleet.processes import mark_of, ours
from apps.fleet.services import probe_toolchains, register_node
from tests.fleet.conftest import host
from tests.support.trtllm.installed import IMAGE, Installed, install
from workers import toolchains
from workers.toolchains import Prober, probe_node

pytestmark = pytest.mark.django_db


@pytest.fixture
def node(db: None) -> Node:
    """This host's node."""
    return register_node("test", settings.INFLIGHT_NODE_ID, facts=host())


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    """An installation, and this node's file that names it."""
    made = install(tmp_path / "trtllm")
    file = tmp_path / "toolchains.toml"
    file.write_text(made.offer())
    monkeypatch.setattr(settings, "INFLIGHT_TOOLCHAINS", str(file))
    return made


def offer(text: str) -> None:
    Path(settings.INFLIGHT_TOOLCHAINS).write_text(text)


def only(node: Node) -> Toolchain:
    return node.toolchains.get()


@pytest.mark.parametrize("kind", ["native", "docker"])
def test_what_it_has_is_on_its_row(node: Node, installed: Installed, kind: str) -> None:
    offer(installed.offer(kind))
    probe_node(node)
    row = only(node)
    assert (row.problem, row.recipes, row.how) == ("", ["engine", "checkpoint"], kind)
    assert row.location == (IMAGE if kind == "docker" else str(installed.python))
    versions = {name: row.versions[name] for name in ("tensorrt_llm", "tensorrt", "cuda", "driver")}
    assert versions == {
        "tensorrt_llm": "1.2.1",
        "tensorrt": "10.14.1.48",
        "cuda": "13.1.0",
        "driver": "590.44.01",
    }
    assert (row.sms, row.gpus[0]["memory_bytes"]) == ([90], 81559 * 2**20)
    log = Path(row.log_path).read_text()
    assert "INFLIGHT-TOOLCHAIN" in log
    assert "import json" not in log, "the probe's own text is no news"


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"import_error": "libnvinfer.so.10: cannot open shared object file"}, "libnvinfer.so.10"),
        ({"no_gpu": True}, "couldn't communicate with the NVIDIA driver"),
    ],
)
def test_what_stands_against_it_is_said(
    node: Node, installed: Installed, plan: dict[str, Any], said: str
) -> None:
    installed.set(**plan)
    probe_node(node)
    assert said in only(node).problem
    assert only(node).recipes == []


def test_a_probe_that_hangs_is_ended_and_leaves_nothing(
    node: Node, installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchains, "DEADLINE_SECONDS", 0.5)
    hanging = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    script = Path(settings.INFLIGHT_TOOLCHAINS).with_name("probe.py")
    script.write_text(hanging)
    monkeypatch.setattr(toolchains, "PROBE", script)
    for kind in ("native", "podman"):
        offer(installed.offer(kind))
        probe_node(node)
        assert "did not end within" in only(node).problem
    assert ours(mark_of(node.node_id, "probe", node.pk, os.getpid())) == []
    assert list(installed.containers.glob("*.json")) == []


def test_offers_that_cannot_be_tried(
    node: Node, installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe_node(node)
    monkeypatch.setattr(toolchains.shutil, "which", lambda name: None)
    offer(f'[[toolchain]]\nname = "b"\nkind = "podman"\nimage = "{IMAGE}"\n')
    probe_node(node)
    assert "podman is not on this node's PATH" in only(node).problem
    offer("[[toolchain]]\nname = 'a'\nkind = 'native'\npython = '/none/python3'\n")
    probe_node(node)
    assert "No such file" in only(node).problem
    offer("[[toolchain]")
    probe_node(node)
    node.refresh_from_db()
    assert "no TOML" in node.toolchains_problem
    assert only(node).name == "a", "what was known stays"
    offer("")
    probe_node(node)
    node.refresh_from_db()
    assert (node.toolchains_problem, node.toolchains.count()) == ("", 0)


def test_without_a_file_the_environment_or_the_path_names_one(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(settings.INFLIGHT_TOOLCHAINS).unlink()
    assert toolchains.configured_offers() == ()
    monkeypatch.setenv("PATH", str(installed.bin))
    assert [offer.python for offer in toolchains.configured_offers()] == [str(installed.python)]
    monkeypatch.setattr(settings, "INFLIGHT_TRTLLM_PYTHON", "/opt/python3")
    assert [offer.python for offer in toolchains.configured_offers()] == ["/opt/python3"]


def test_it_is_probed_at_the_start_and_when_somebody_asks(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed: list[str] = []

    def probe(row: Node) -> None:
        probed.append(row.node_id)
        Node.objects.filter(pk=row.pk).update(probed_at=clock.now())

    monkeypatch.setattr(toolchains, "probe_node", probe)
    prober = Prober()
    prober.look()
    prober.look()
    assert len(probed) == 1
    probe_toolchains("cli", node)
    prober.look()
    prober.look()
    assert len(probed) == 2
