"""A running installation as an operator sees it: REST with a token, keys for the gateway, processes by pid."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from controlplane.settings.env import parse_environment
from deploy.local.postgres import server
from tests.support.stack import Stack, running_stack

if TYPE_CHECKING:
    from tests.chaos.clock import Clock
    from tests.chaos.worlds import FarHost

# Where beats and echoes of nodes lie (controlplane/settings/queues.py).
QUEUE_DATABASE, ECHO_DATABASE = 0, 3
SWEPT = b"Sending due task sweep"


class Installation:
    """Drives one stack. `deployment` is the demo.

    `clock` moves its wall clock, where that can be done (else `no_clock` says why not); `far` is a second host.
    """

    clock: Clock | None = None
    no_clock: str = ""
    far: FarHost | None = None

    def __init__(self, stack: Stack, deployment: str = "demo") -> None:
        self.stack, self.deployment = stack, deployment
        self.environment = parse_environment(
            (stack.home / "run/environment").read_text(encoding="utf-8"), "environment"
        )
        made = json.loads(self._manage("token", "create", "admin", f"chaos-{time.time_ns()}", "--json"))
        self.client = httpx.Client(
            base_url=f"{self.environment['INFLIGHT_WEB_URL']}/api/v1",
            headers={"Authorization": f"Bearer {made['token']}"},
            timeout=20,
        )

    def _manage(self, *arguments: str) -> str:
        done = self.stack.manage(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def gateway_url(self) -> str:
        """Base URL of the OpenAI-compatible API."""
        return f"{self.environment['INFLIGHT_GATEWAY_URL']}/v1"

    def gateway_key(self) -> str:
        """A new key."""
        made = json.loads(self._manage("gateway_key", "create", "admin", f"chaos-{time.time_ns()}", "--json"))
        return str(made["key"])

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One REST call; fails with the answer where it is refused."""
        answer = self.client.request(method, path, json=body)
        assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text[:500]}"
        return answer.json() if answer.content else None

    def show(self) -> dict[str, Any]:
        """The deployment with its instances."""
        found: dict[str, Any] = self.call("GET", f"/deployments/{self.deployment}")
        return found

    def instances(self, *states: str) -> list[dict[str, Any]]:
        """Its instances in these states."""
        return [each for each in self.show()["instances"] if each["state"] in states]

    def until(self, holds: Callable[[], Any], seconds: float, what: str) -> tuple[Any, float]:
        """Look until it holds; its value and the seconds that it took. One that does not answer is away for now."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            with contextlib.suppress(httpx.HTTPError, AssertionError):
                if found := holds():
                    return found, time.monotonic() - began
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds:.0f} s: {what}")

    def ready(self, seconds: float = 60.0) -> float:
        """Wait until the deployment serves whole and nothing drains; the seconds that it took."""

        def holds() -> bool:
            shown = self.show()
            states = {each["state"] for each in shown["instances"]} - {"failed"}
            return shown["state"] == "ready" and states == {"serving"}

        return self.until(holds, seconds, "the deployment is ready")[1]

    def forget_failures(self) -> None:
        """Press deploy, which changes nothing but starts the count of failures anew: waits between restarts grow."""
        self.call("POST", f"/deployments/{self.deployment}/deploy")
        self.ready()

    def profile(self, name: str, **fields: Any) -> str:
        """A batching profile of that name, made where it is missing."""
        found = self.client.get(f"/batching-profiles/{name}")
        if found.status_code == 404:
            self.call("POST", "/batching-profiles", {"name": name, **fields})
        return name

    def change(self, batching: str, **more: Any) -> None:
        """Configure another batching profile and deploy."""
        shown = self.show()
        body = {
            "build": shown["build_profile"],
            "batching": batching,
            "replicas": shown["replicas"],
            "placement": shown["placement"],
            "slo": shown["slo"],
            "rollout": shown["rollout"],
            **more,
        }
        self.call("PUT", f"/deployments/{self.deployment}", body)
        self.call("POST", f"/deployments/{self.deployment}/deploy")

    def until_echo(self, seconds: float = 120.0) -> float:
        """Seconds until the control worker takes a tick again, in which it adopts the node's servers.

        The mark that a tick leaves in Redis is renewed by each; its remaining life grows at that moment alone.
        """
        import redis

        client = redis.Redis.from_url(
            self.environment["INFLIGHT_REDIS_URL"], db=ECHO_DATABASE, socket_timeout=5
        )
        key = f"echo:{self.environment['INFLIGHT_NODE_ID']}"
        before = [int(client.pttl(key))]

        def renewed() -> bool:
            with contextlib.suppress(redis.RedisError):
                left = int(client.pttl(key))
                grown = left > before[0]
                before[0] = left
                return grown
            return False

        try:
            return self.until(renewed, seconds, "the control worker ticks again")[1]
        finally:
            client.close()

    def until_swept(self, seconds: float) -> float:
        """Seconds until beat sends the next sweep, as its log says."""
        log = self.stack.home / "logs/beat.log"
        before = log.read_bytes().count(SWEPT)
        return self.until(lambda: log.read_bytes().count(SWEPT) > before, seconds, "beat sends a sweep")[1]

    def waiting_tasks(self) -> int:
        """Tasks that lie in the control worker's queue."""
        import redis

        client = redis.Redis.from_url(
            self.environment["INFLIGHT_REDIS_URL"], db=QUEUE_DATABASE, socket_timeout=5
        )
        try:
            return int(client.llen(f"node.{self.environment['INFLIGHT_NODE_ID']}.ctl"))
        finally:
            client.close()

    # ------------------------------------------------------------------ processes

    def pids(self, *marks: str) -> list[int]:
        """Processes of this home whose command line holds one of the words, the watcher left out."""
        found = []
        for pid in self.stack.processes():
            command = _command(pid)
            if any(mark in command for mark in marks) and "supervisord" not in command:
                found.append(pid)
        return found

    def leads(self, pid: int) -> bool:
        """Whether a process leads its group, as every server does."""
        with contextlib.suppress(ProcessLookupError):
            return os.getpgid(pid) == pid
        return False

    def children(self, pid: int, name: str) -> list[int]:
        """Children of a process by the beginning of their short name."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError, ValueError):
                    text = (entry / "stat").read_text(errors="replace")
                    parent = int(text[text.rindex(")") + 2 :].split()[1])
                    if parent == pid and (entry / "comm").read_text().startswith(name):
                        found.append(int(entry.name))
        return found


def _command(pid: int) -> str:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace")


def gone(pid: int) -> bool:
    """Whether no such process runs."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return True
    return text[text.rindex(")") + 2] in "ZX"


@contextlib.contextmanager
def own_stack(postgres: bool = False) -> Iterator[Installation]:
    """A whole installation for one command, ended after it, also where the command itself is ended.

    `postgres`: on a PostgreSQL server of its own, in place of SQLite.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with contextlib.ExitStack() as held:
        variables = {}
        if postgres:
            folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="inflight-pglog-")))
            variables["DATABASE_URL"] = held.enter_context(server(folder / "postgres.log"))
        yield Installation(held.enter_context(running_stack(**variables)))
