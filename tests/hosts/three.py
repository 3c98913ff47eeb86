"""Three hosts, as three homes on this machine: `python -m tests.hosts.three` (make hosts).

One home runs everything; two join it with tokens over TLS. They share a PostgreSQL and a Redis with passwords
over TLS and a store of engines. What the first one built serves on the second, its answers, log and figures come
through the second one's door, a roll-out leads to the third under running streams, and a host that loses its control
worker goes on serving. At last a bare host joins with the one command that the page prints (bare.py).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from controlplane.settings.env import parse_environment
from tests.chaos.installation import Installation
from tests.chaos.streams import Streams
from tests.hosts import bare
from tests.hosts.looks import PLACE_SECONDS, answers, place, say
from tests.hosts.servers import authority, pages_over_tls, postgres_over_tls, redis_over_tls, trusting
from tests.support import stack as support
from tests.support.ports import free_port
from tests.support.stack import Stack, running_stack
from tests.support.triton import CHECKOUT

START_SECONDS, JOIN_SECONDS, DEMO_SECONDS, DOWN_SECONDS = 600, 300.0, 600.0, 90.0
SERVING = ("INFLIGHT_SERVING_", "INFLIGHT_TRITON_")


class Worker:
    """A home that joined."""

    def __init__(self, name: str, home: Path, environ: dict[str, str]) -> None:
        self.name, self.home, self.environ = name, home, environ
        self.node_id = ""

    def launcher(self, command: str, seconds: float, **more: str) -> subprocess.CompletedProcess[str]:
        """Run one command of the launcher on this home."""
        return subprocess.run(
            [str(CHECKOUT / ".venv/bin/python"), "-m", "deploy.local", command],
            cwd=CHECKOUT,
            env={**self.environ, **more},
            timeout=seconds,
            capture_output=True,
            text=True,
            check=False,
        )


@contextlib.contextmanager
def joined(installation: Installation, names: tuple[str, ...]) -> Iterator[list[Worker]]:
    """Homes that joined with a token each, ended and removed afterwards."""
    found = []
    try:
        for name in names:
            found.append(_join(installation, name))
        yield found
    finally:
        for worker in found:
            worker.launcher("down", DOWN_SECONDS)
            shutil.rmtree(worker.home, ignore_errors=True)


def _join(installation: Installation, name: str) -> Worker:
    home = Path(tempfile.mkdtemp(prefix=f"inflight-{name}-"))
    environ = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("INFLIGHT_", "PYTEST_", "DJANGO_", "DATABASE_URL", "MAKE", "MFLAGS"))
    }
    own = {key: value for key, value in installation.environment.items() if key.startswith(SERVING)}
    worker = Worker(name, home, {**environ, **own, "INFLIGHT_HOME": str(home)})
    made = installation.call("POST", "/join-tokens", {"labels": {"host": name}, "minutes": 15})
    token = {
        "INFLIGHT_JOIN_URL": installation.environment["INFLIGHT_WEB_URL"],
        "INFLIGHT_JOIN_TOKEN": made["token"],
    }
    began = time.monotonic()
    done = worker.launcher("worker", JOIN_SECONDS, **token)
    assert done.returncode == 0, done.stdout + done.stderr
    worker.node_id = installation.call("GET", "/join-tokens")["items"][0]["used_by"]
    say(f"{name} joined as {worker.node_id} after {time.monotonic() - began:.1f} s")
    _nothing_leaks(made["token"])
    assert (home / "run/environment").stat().st_mode & 0o777 == 0o600
    return worker


def _nothing_leaks(token: str) -> None:
    """The token stands in no command line, and in no environment but of what has ended by now."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                assert token.encode() not in (entry / "cmdline").read_bytes(), entry
                assert token.encode() not in (entry / "environ").read_bytes(), entry


def prove(installation: Installation, workers: list[Worker], streams: int) -> None:
    """All that is claimed of several hosts."""
    first, second = workers

    def all_ready() -> bool:
        nodes = installation.call("GET", "/nodes")["items"]
        return [each["state"] for each in nodes] == ["ready"] * 3

    # A host has joined before its workers beat.
    _value, seconds = installation.until(all_ready, PLACE_SECONDS, "three nodes are ready")
    say(f"three nodes are ready after {seconds:.1f} s")
    key = installation.gateway_key()
    server = place(installation, first.name)
    engines = [path.name for path in (first.home / "engines").iterdir() if not path.name.startswith(".")]
    assert len(engines) == 1, engines
    say(f"its engine {engines[0][:12]} came from the store, checked by SHA-256")
    text = answers(installation, key)
    assert text.strip(), "an answer through the door"
    say(f"the gateway answers through the door: {text.strip()[:60]!r}")
    log = installation.call("GET", f"/instances/{server['uid']}/log?offset=-2000&limit=65536")
    assert log["text"], log
    assert log["size"] >= log["offset"] > 0, log
    later = installation.call(
        "GET", f"/instances/{server['uid']}/log?offset={log['offset'] - 100}&limit=1024"
    )
    assert later["start"] == log["offset"] - 100, later
    say(f"its log of {log['size']} bytes is read by offset through the door")
    _figures(installation, server)
    running = Streams(installation.gateway_url, key, count=streams, tokens=64).start()
    try:
        running.wait_open(streams)
        place(installation, second.name)
        _without_control(installation, second, running)
    finally:
        running.stop()
    lost = running.lost()
    assert not lost, [(each.outcome, each.detail) for each in lost[:5]]
    assert running.duplicates() == 0
    say(
        f"{running.summary().get('ok', 0)} streams whole, 0 lost, 0 doubled, while the demo moved between hosts"
    )


def _figures(installation: Installation, server: dict[str, Any]) -> None:
    """The server's metrics, its process's memory and its host's memory reach the first host."""

    def told() -> Any:
        query = f"scope=instance&name={server['uid']}&since={time.time() - 20}&keys=slots,rss_bytes"
        points = installation.call("GET", f"/telemetry/series?{query}")["points"]
        return next((each for each in points if each.get("slots") and each.get("rss_bytes")), None)

    found, seconds = installation.until(told, 40, "figures of the server on another host")
    say(
        f"its figures arrive after {seconds:.1f} s: {found['slots']:.0f} slots, {found['rss_bytes'] / 2**20:.0f} MiB"
    )
    query = f"scope=node&name={server['node_id']}&since={time.time() - 30}&keys=host_memory_used_bytes"

    def host() -> bool:
        return any(
            each.get("host_memory_used_bytes")
            for each in installation.call("GET", f"/telemetry/series?{query}")["points"]
        )

    installation.until(host, 30, "figures of the other host")


def _without_control(installation: Installation, worker: Worker, running: Streams) -> None:
    """The host's control worker is killed: it is restarted, and what runs there never notices."""
    before = running.summary().get("ok", 0)
    states = [each for each in _pids(worker, "ctl@") if each]
    assert states
    for pid in states:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
    installation.until(lambda: running.summary().get("ok", 0) > before + 3, 60, "streams go on")
    installation.until(lambda: _pids(worker, "ctl@"), 30, "the control worker is back")
    say("its control worker was killed and came back; the streams went on")


def _pids(worker: Worker, mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if f"{mark}{worker.node_id}" in command:
                    found.append(int(entry.name))
    return found


def main(argv: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=4)
    options = parser.parse_args(argv)
    with first_host() as installation:
        # Before anybody else may build it: what is shown is that its engine travels.
        say(f"the demo is ready {installation.ready(DEMO_SECONDS):.0f} s later")
        with joined(installation, ("b", "c")) as workers:
            prove(installation, workers, options.streams)
            _refused(installation)
        bare.prove(installation)
    say("Three hosts hold together, and a bare one joins them.")
    return 0


@contextlib.contextmanager
def first_host() -> Iterator[Installation]:
    """A whole installation: PostgreSQL and Redis with passwords over TLS, a store, the pages behind a TLS proxy."""
    # Several hosts start on one machine, which others may use, too.
    support.UP_SECONDS = START_SECONDS
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="inflight-hosts-")))
        folder.chmod(0o755)
        signed = authority(folder / "tls")
        database = held.enter_context(postgres_over_tls(signed))
        redis = held.enter_context(redis_over_tls(signed, folder / "redis"))
        say("PostgreSQL and Redis answer, with passwords and over TLS only")
        os.environ["SSL_CERT_FILE"] = str(trusting(signed, folder))
        port = free_port()
        variables = {
            "INFLIGHT_WEB_URL": f"https://127.0.0.1:{port}",
            "DATABASE_URL": database,
            "INFLIGHT_REDIS_URL": redis,
            "INFLIGHT_REDIS_CA": str(signed.certificate),
            "INFLIGHT_JOIN_DATABASE_URL": database,
            "INFLIGHT_JOIN_REDIS_URL": redis,
            "INFLIGHT_STORE": str(folder / "store"),
            # The demo is waited for below: on a busy machine it takes longer than a start may.
            "WAIT": "web",
        }
        stack: Stack = held.enter_context(running_stack(**variables))
        held.enter_context(pages_over_tls(signed, port, lambda: _web_port(stack)))
        installation = Installation(stack)
        say(f"the first host is ready: {installation.environment['INFLIGHT_WEB_URL']}")
        yield installation


def _web_port(stack: Stack) -> int:
    text = (stack.home / "run/environment").read_text(encoding="utf-8")
    return int(parse_environment(text, "environment")["INFLIGHT_WEB_PORT"])


def _refused(installation: Installation) -> None:
    """A token lets one host in."""
    import httpx

    spent = installation.call("GET", "/join-tokens")["items"][0]
    assert spent["state"] == "used", json.dumps(spent)
    url = f"{installation.environment['INFLIGHT_WEB_URL']}/api/v1/join"
    answer = httpx.post(
        url,
        json={"node_id": "n-x", "hostname": "x"},
        headers={"Authorization": "Bearer ifj_nothing"},
        timeout=10,
    )
    assert answer.status_code == 401, answer.text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
