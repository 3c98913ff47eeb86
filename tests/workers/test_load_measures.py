"""What a load took: the log since the load began, and /proc of the server's processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from apps.engines.models import MemoryMeasurement
from apps.fleet.processes import identify
from apps.serving.models import Instance
from tests import objects
from tests.engines.memory.test_measured import LLAMACPP
from tests.support.llama import write_llama
from workers import load_measures
from workers.failures import LOAD_MARK
from workers.runtimes.processes import UID_VARIABLE

HOLDS = "import sys; data = bytearray(64 * 2**20); print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    """A process of its own group that holds 64 MiB."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, UID_VARIABLE: "abc123"},
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child
        assert child.stdin is not None
        child.stdin.close()
        child.wait(10)


@pytest.fixture
def instance(db: None, server: subprocess.Popen[str]) -> Instance:
    """An instance whose process that is, with a log that begins with an earlier load."""
    served = objects.deployment()
    objects.engine(served.build_profile)
    row = objects.instance(objects.revision(served))
    engine = row.revision.engine
    engine.path = str(Path(settings.INFLIGHT_HOME) / "engines" / "measured")
    engine.save()
    write_llama(Path(engine.path) / "model.gguf")
    found = identify(server.pid)
    assert found is not None
    row.pid, row.process_created = server.pid, found.created
    row.save()
    folder = Path(settings.INFLIGHT_HOME) / "instances" / row.uid
    folder.mkdir(parents=True, exist_ok=True)
    earlier = LLAMACPP.replace("95.62", "11.11")
    (folder / "triton.log").write_text(earlier + LLAMACPP)
    (folder / LOAD_MARK).write_text(json.dumps({"log_offset": len(earlier)}))
    return row


def test_the_log_of_this_load_and_the_memory_of_its_processes(instance: Instance) -> None:
    load_measures.measure(instance)
    rows = {row.term: row for row in MemoryMeasurement.objects.filter(subject=instance.uid)}
    assert rows["kv"].measured == int(95.62 * 2**20)
    assert rows["kv_tokens"].measured == 8192
    assert 64 * 2**20 < rows["process"].measured < 256 * 2**20
    assert rows["process"].source == "proc"
    # The plan that it is held against has the slots and the context of the revision's batching.
    batching = instance.revision.batching
    assert rows["kv_tokens"].predicted == batching["max_batch_size"] * batching["max_seq_len"]


def test_a_load_that_cannot_be_measured_fails_nothing(instance: Instance) -> None:
    instance.revision.batching = {"strategy": "unheard of"}
    load_measures.measure(instance)
    assert not MemoryMeasurement.objects.exists()


def test_a_process_that_is_gone_has_no_size(tmp_path: Path) -> None:
    assert load_measures.resident_bytes([2**22 + 1], tmp_path) is None
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text("Name:\tx\nVmRSS:\t    2048 kB\n")
    assert load_measures.resident_bytes([7, 8], tmp_path) == 2048 * 1024
