"""Starts supervisord, talks to it over its unix socket, and knows one of ours from a stale or foreign one."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import xmlrpc.client
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.local import processes
from deploy.local.errors import Problem
from deploy.local.home import CHECKOUT, Home, write_atomically
from deploy.local.processes import MARKER, Identity
from deploy.local.programs import GROUP

# Not for the supervised: make's own, and what points a Python at other packages.
DROPPED_VARIABLES = (
    *(
        "MAKEFLAGS",
        "MAKELEVEL",
        "MFLAGS",
        "MAKEOVERRIDES",
        "DETACH",
        "KEEP_SERVING",
        "PORT",
        "PYTHON",
        "WAIT",
    ),
    *("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"),
)
START_SECONDS = 60
# What a call raises when supervisord is not there, is on its way out, or was cut off.
NO_ANSWER = (OSError, http.client.HTTPException, xmlrpc.client.Error)


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One supervised process as supervisord sees it. `since` is in seconds since the epoch."""

    name: str
    state: str
    pid: int
    since: int
    why: str


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _Transport(xmlrpc.client.Transport):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        return _Connection(self._path)


class Supervisor:
    """supervisord of one home."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._socket = home.sockets() / "supervisor.sock"

    def identity(self) -> Identity | None:
        """The running supervisord of this home, or None. A record of an earlier boot or a reused pid is nothing."""
        identity = _recorded(self.home)
        return identity if identity is not None and identity.alive() else None

    def start(self, python: Path, environ: dict[str, str]) -> Identity:
        """Start supervisord in a session of its own and wait until it answers."""
        with (self.home.logs / "supervisord.out").open("ab") as output:
            child = subprocess.Popen(
                [str(python), "-m", "supervisor.supervisord", "-n", "-c", str(self.home.supervisor_config)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environ,
                cwd=CHECKOUT,
                start_new_session=True,
            )
        identity = processes.identify(child.pid)
        if identity is not None:
            record = {"pid": identity.pid, "started": identity.started, "boot": identity.boot}
            write_atomically(self.home.supervisor_record, json.dumps(record) + "\n")
        deadline = time.monotonic() + START_SECONDS
        while child.poll() is None and time.monotonic() < deadline:
            if self.answers():
                return identity or Identity(child.pid, 0, "")
            time.sleep(0.05)
        said = _tail(self.home.logs / "supervisord.out", 3)
        if child.poll() is None:
            child.kill()
            child.wait()
        raise Problem(f"supervisord did not start: {said}", f"See {self.home.logs / 'supervisord.out'}.")

    def answers(self) -> bool:
        try:
            return str(self.call("getState")["statename"]) == "RUNNING"
        except NO_ANSWER:
            return False

    def call(self, method: str, *arguments: Any) -> Any:
        """Call one method of supervisord's own interface."""
        transport = _Transport(str(self._socket))
        with xmlrpc.client.ServerProxy("http://localhost", transport=transport) as server:
            return getattr(server.supervisor, method)(*arguments)

    def states(self) -> list[ProcessState]:
        """All supervised processes, in their starting order."""
        found = []
        for entry in self.call("getAllProcessInfo"):
            why = str(entry["spawnerr"]) or str(entry["description"])
            name, state = str(entry["name"]), str(entry["statename"])
            found.append(ProcessState(name, state, int(entry["pid"]), int(entry["start"]), why))
        return found

    def start_program(self, name: str) -> None:
        """Start one program without waiting for it; one that runs already is left alone."""
        self._tolerating("startProcess", name, "ALREADY_STARTED")

    def stop_program(self, name: str) -> None:
        """Ask one program to stop, without waiting; one that does not run is left alone."""
        self._tolerating("stopProcess", name, "NOT_RUNNING")

    def _tolerating(self, method: str, name: str, fault_name: str) -> None:
        try:
            self.call(method, f"{GROUP}:{name}", False)
        except xmlrpc.client.Fault as fault:
            if fault_name not in fault.faultString:
                raise Problem(
                    f"supervisord refused {method} {name}: {fault.faultString}.", "See make status."
                ) from fault

    def wait_stopped(self, names: set[str], seconds: float) -> None:
        """Wait until none of the named programs runs; supervisord itself kills what overstays."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                running = {state.name for state in self.states() if state.pid and state.state != "STOPPED"}
            except NO_ANSWER:
                return
            if not running & names:
                return
            time.sleep(0.1)

    def shut_down(self, identity: Identity, seconds: float) -> None:
        """End supervisord and what it still runs; kill it if it does not."""
        identity.send(signal.SIGTERM)
        if processes.wait_gone([identity], seconds):
            identity.send(signal.SIGKILL)
            processes.wait_gone([identity], 5)


def orphans(home: Home) -> list[Identity]:
    """Processes that supervisord of this home left behind when it died: those of its session.

    The kernel gives a session's number to nobody else while one process is in it, so nothing foreign can be meant.
    Servers and builds lead sessions of their own and are not among them: they have their own rules.
    """
    known = _recorded(home)
    if known is None or known.boot != processes.boot_id() or processes.identify(known.pid) is not None:
        return []
    return processes.in_session(known.pid)


def _recorded(home: Home) -> Identity | None:
    try:
        known = json.loads(home.supervisor_record.read_text(encoding="utf-8"))
        return Identity(int(known["pid"]), int(known["started"]), str(known["boot"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def child_environment(home: Home, environ: dict[str, str], venv: Path) -> dict[str, str]:
    """Environment of supervisord and its children: the caller's, pointed at this home."""
    found = {key: value for key, value in environ.items() if key not in DROPPED_VARIABLES}
    found["INFLIGHT_HOME"] = str(home.root)
    found[MARKER] = str(home.root)
    found["PATH"] = f"{venv / 'bin'}{os.pathsep}{environ.get('PATH', os.defpath)}"
    found["PYTHONUNBUFFERED"] = "1"
    # Bytecode belongs under the home, the checkout's too; packages bring none (pip --no-compile). Without it each
    # process would compile for three seconds of CPU before it begins.
    found["PYTHONPYCACHEPREFIX"] = str(home.cache / f"bytecode-{sys.implementation.cache_tag}")
    return found


def _tail(path: Path, lines: int) -> str:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "it wrote nothing"
    return " / ".join(text.strip().splitlines()[-lines:]) or "it wrote nothing"
