"""The gateway process in tests and benchmarks, started as `make up` starts it, and rows that it serves."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psutil
from django.contrib.auth.models import User

from apps.gateway import keys
from apps.gateway.models import ExternalDeployment
from apps.registry.models import Checkpoint
from apps.serving.models import Deployment, Instance
from tests import objects
from tests.support.processes import ROOT, environment
from tests.support.redis import RedisServer
from tests.support.waiting import eventually
from tests.support.web import free_port

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class GatewayProcess:
    """A running gateway."""

    def __init__(self, environ: Mapping[str, str], log: Any = None) -> None:
        self.port = int(environ.get("INFLIGHT_GATEWAY_PORT") or free_port())
        self.process = subprocess.Popen(
            [sys.executable, "-m", "apps.gateway.server", "--port", str(self.port)],
            cwd=ROOT,
            env={**os.environ, **environ},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        eventually(self._answers, "the gateway answers", seconds=60)

    @property
    def url(self) -> str:
        """Base URL as OpenAI's client takes it."""
        return f"http://127.0.0.1:{self.port}/v1"

    def get(self, path: str) -> tuple[int, Any]:
        """Status and JSON, or text, of a GET."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        is_json = (response.getheader("content-type") or "").startswith("application/json")
        return response.status, json.loads(text) if is_json else text

    def figure(self, name: str) -> float:
        """Sum of one of its metrics over all labels."""
        lines = self.get("/metrics")[1].splitlines()
        found = [line for line in lines if line.startswith(name) and line[len(name)] in " {"]
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)

    def stop(self) -> int:
        """SIGTERM, then wait; the exit code."""
        self.process.terminate()
        return self.process.wait(timeout=40)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(timeout=20)

    def _answers(self) -> bool:
        assert self.process.poll() is None, "the gateway ended"
        try:
            return self.get("/healthz")[0] == 200
        except OSError:
            return False


@contextmanager
def gateway(server: RedisServer, **more: str) -> Iterator[GatewayProcess]:
    """A gateway over the test's database and Redis for the length of a block."""
    running = GatewayProcess(environment(server, INFLIGHT_UPSTREAM_ALLOW="127.0.0.1", **more))
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.kill()


def listening(port: int) -> bool:
    """Whether something takes connections there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def listener(port: int) -> int:
    """The process that listens on a port of this host; it must be a child of this one."""
    for child in psutil.Process().children():
        if any(one.laddr.port == port for one in child.net_connections("tcp") if one.status == "LISTEN"):
            return int(child.pid)
    raise AssertionError(f"no child listens on {port}")


@contextmanager
def double_process(at: int = 0) -> Iterator[int]:
    """The OpenAI-style double in a process of its own; its port, `at` or any."""
    argv = [sys.executable, "-m", "tests.support.openai_double", "--chunks", "5", "--gap-ms", "5"]
    argv += ["--port", str(at)]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait(timeout=20)


def external(port: int, name: str = "double", **columns: Any) -> ExternalDeployment:
    """An OpenAI-style upstream on this host."""
    return ExternalDeployment.objects.create(
        name=name, base_url=f"http://127.0.0.1:{port}/v1", model="double-model", **columns
    )


def key(name: str = "app", **data: Any) -> str:
    """A key's text."""
    owner = User.objects.filter(username="owner").first() or User.objects.create_user(
        "owner", is_staff=True, is_superuser=True
    )
    return keys.create_key("test", {"name": name, **data}, owner=owner)[1]


def triton_deployment(
    http_url: str, grpc_url: str, name: str = "pump", slots: int = 256, template: str = CHATML
) -> Deployment:
    """A deployment whose one instance is a Triton that runs already, with a model of that name."""
    deployment = objects.deployment(name)
    Checkpoint.objects.update(chat_template=template)
    revision = objects.revision(deployment)
    revision.batching = {**revision.batching, "max_batch_size": slots}
    revision.save(update_fields=["batching"])
    Instance.objects.create(
        deployment=deployment,
        revision=revision,
        uid=f"{name}-1",
        state="serving",
        http_port=int(http_url.rsplit(":", 1)[1]),
        grpc_port=int(grpc_url.rsplit(":", 1)[1]),
    )
    deployment.active_revision = revision
    deployment.state = "serving"
    deployment.save()
    return deployment


def replica(deployment: Deployment, http_url: str, grpc_url: str) -> Instance:
    """One more instance of a deployment's active revision, a Triton that runs already."""
    number = deployment.instances.count()
    assert deployment.active_revision is not None
    return Instance.objects.create(
        deployment=deployment,
        revision=deployment.active_revision,
        uid=f"{deployment.name}-{number + 1}",
        state="serving",
        replica=number,
        http_port=int(http_url.rsplit(":", 1)[1]),
        grpc_port=int(grpc_url.rsplit(":", 1)[1]),
    )
