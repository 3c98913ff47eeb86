"""A real tritonserver with a real model: from deploy to nothing left, and a worker that is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import tritonclient.grpc as triton_grpc

from apps.fleet.models import GpuLease
from apps.serving import services, states
from apps.serving.models import Deployment, Instance
from tests import objects
from tests.support.celery import Worker, wait_until
from tests.support.standin import Ticker, end_all
from tests.support.triton import TritonInstallation
from workers.runtimes import memory_files, processes
from workers.runtimes.arguments import HEADER
from workers.runtimes.base import Identity

pytestmark = [pytest.mark.triton, pytest.mark.timeout(180)]


@pytest.fixture
def clean() -> Iterator[None]:
    """Whatever a test leaves is ended."""
    yield
    end_all()


@pytest.fixture
def real_ticker(real_triton: TritonInstallation, clean: None) -> Ticker:
    """A reconciler over the real installation."""
    return Ticker()


def deployed(gguf: Path) -> Deployment:
    """A deployment of the demo model, asked to run: two slots, so that the test machine keeps up."""
    profile = objects.build_profile()
    engine = objects.engine(profile)
    target = Path(engine.path) / "model.gguf"
    target.unlink(missing_ok=True)
    target.symlink_to(gguf)
    batching = objects.batching("two", max_batch_size=2, max_seq_len=512)
    return services.deploy("test", objects.deployment(build_profile=profile, batching=batching))


def serving() -> Instance:
    return Instance.objects.get(state=states.SERVING)


def identity_of(row: Instance) -> Identity:
    return Identity(row.pid or 0, row.process_created or 0.0, row.uid)


def post(row: Instance, path: str, body: dict[str, Any], **headers: str) -> Any:
    data = json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(f"http://127.0.0.1:{row.http_port}{path}", data, headers)
    return urllib.request.urlopen(request, timeout=60)


def generate(row: Instance, tokens: int, **more: Any) -> Iterator[str]:
    """Text deltas of a stream straight from Triton."""
    body = {
        "text_input": "The capital of France is",
        "max_tokens": tokens,
        "stream": True,
        "temperature": 0.0,
    }
    with post(row, "/v2/models/demo/generate_stream", {**body, **more}) as answer:
        for line in answer:
            if line.startswith(b"data:"):
                event = json.loads(line[5:])
                assert "error" not in event, event
                yield event["text_output"]


def assert_nothing_left(row: Instance) -> None:
    assert processes.group_members(identity_of(row)) == []
    assert memory_files.regions(row.uid) == []
    assert not (Path(row.folder) / "secret").exists()
    assert not GpuLease.objects.filter(released_at=None).exists()


@pytest.mark.django_db
def test_from_deploy_to_nothing_left(demo_gguf: Path, serving_node: Any, real_ticker: Ticker) -> None:
    demo = deployed(demo_gguf)
    real_ticker.until_state(demo, states.READY, 90)
    row = serving()
    assert "Paris" in "".join(generate(row, 8))
    assert row.server_version
    assert memory_files.regions(f"{row.uid}_")

    # Nothing but the loopback address is listened on.
    listening = [
        connection.laddr.ip
        for connection in psutil.Process(row.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) == 3
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}

    # The control of models needs the secret, over HTTP and over gRPC.
    for path in ("/v2/repository/index", "/v2/repository/models/demo/unload"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(row, path, {})
        assert refused.value.code == 403
    client = triton_grpc.InferenceServerClient(f"127.0.0.1:{row.grpc_port}")
    with pytest.raises(Exception, match="restricted"):
        client.unload_model("demo")
    secret = (Path(row.folder) / "secret").read_text()
    index = client.get_model_repository_index(headers={f"triton-grpc-protocol-{HEADER}": secret})
    assert [model.state for model in index.models] == ["READY"]
    with pytest.raises(Exception, match="restricted"):
        client.register_system_shared_memory("x", "/x", 8)
    client.close()

    services.stop("test", demo)
    real_ticker.until_state(demo, states.STOPPED, 60)
    row.refresh_from_db()
    assert row.state == states.GONE
    assert_nothing_left(row)


@pytest.mark.django_db
def test_a_stop_lets_the_answer_in_flight_finish(
    demo_gguf: Path, serving_node: Any, real_ticker: Ticker
) -> None:
    demo = deployed(demo_gguf)
    real_ticker.until_state(demo, states.READY, 90)
    row = serving()
    stream = generate(row, 60, end_id=-1, min_tokens=60)
    first = next(stream)
    rest: list[str] = []
    reader = threading.Thread(target=lambda: rest.extend(stream))
    reader.start()
    services.stop("test", demo)
    real_ticker.until_state(demo, states.STOPPED, 60)
    reader.join(30)
    assert not reader.is_alive()
    assert len([first, *rest]) >= 60
    assert_nothing_left(row)


@pytest.mark.django_db
def test_a_dead_model_process_is_noticed_and_replaced(
    demo_gguf: Path, serving_node: Any, real_ticker: Ticker
) -> None:
    """Servers before 26.04 go on saying that they are ready."""
    demo = deployed(demo_gguf)
    real_ticker.until_state(demo, states.READY, 90)
    row = serving()
    [stub] = [pid for pid in processes.group_members(identity_of(row)) if pid != row.pid]
    os.kill(stub, signal.SIGKILL)
    real_ticker.until(lambda: Instance.objects.filter(reason="model_process_died").exists(), 30)
    real_ticker.until(lambda: Instance.objects.filter(state=states.SERVING).exclude(pk=row.pk).exists(), 90)
    assert memory_files.regions(row.uid) == []


@pytest.mark.django_db
def test_an_engine_that_is_none_fails_with_the_words_of_the_log(
    tmp_path: Path, serving_node: Any, real_ticker: Ticker
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 4096)
    demo = deployed(broken)
    real_ticker.until_state(demo, states.FAILED, 90)
    row = Instance.objects.get()
    assert (row.reason, demo.reason) == ("load_failed", "load_failed")
    assert "could not load the model" in demo.sentence
    assert "failed to load 'demo'" in row.diagnosis["log"]
    assert "loading: demo:1" in row.diagnosis["log"]
    real_ticker.until(lambda: Instance.objects.filter(pk=row.pk, pid=None).exists(), 30)
    assert_nothing_left(row)


def test_a_stream_outlives_the_control_worker_and_the_next_one_adopts_the_server(
    demo_gguf: Path,
    real_triton: TritonInstallation,
    clean: None,
    start_worker: Callable[..., Worker],
) -> None:
    worker = start_worker("ctl", **real_triton.values)
    wait_until(_node_ready, 60, "the node has joined")
    demo = deployed(demo_gguf)
    wait_until(lambda: _state(demo) == states.READY, 90, "the deployment is ready")
    row = serving()

    stream = generate(row, 120, min_tokens=120)
    next(stream)
    worker.kill()
    assert len(list(stream)) >= 119
    assert processes.is_alive(identity_of(row))

    start_worker("ctl", **real_triton.values)
    adopted = _instance(row)
    assert (adopted.state, adopted.pid, adopted.attempt) == (states.SERVING, row.pid, row.attempt)
    # It looks after the server again: what is asked of it happens.
    services.restart_instance("test", row)
    wait_until(lambda: _instance(row).state != states.SERVING, 10, "the new worker looks after the server")
    wait_until(
        lambda: Instance.objects.filter(state=states.SERVING).exclude(pk=row.pk).exists(), 60, "its successor"
    )
    assert _instance(row).state == states.GONE
    assert Instance.objects.count() == 2
    assert processes.group_members(identity_of(row)) == []

    second = serving()
    services.stop("test", demo)
    wait_until(lambda: _state(demo) == states.STOPPED, 60, "the deployment is stopped")
    assert_nothing_left(second)


def _node_ready() -> bool:
    from apps.fleet.selectors import local_node

    node = local_node()
    return node is not None and node.state == "ready"


def _state(deployment: Deployment) -> str:
    return Deployment.objects.get(pk=deployment.pk).state


def _instance(row: Instance) -> Instance:
    return Instance.objects.get(pk=row.pk)
