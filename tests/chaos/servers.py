"""Faults of a server: its process, its model's process, its ports."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from typing import Any

from tests.chaos.installation import Installation, gone
from tests.chaos.outcome import Outcome

REPLACED_SECONDS = 120.0


def serving(installation: Installation) -> dict[str, Any]:
    """The row of the server that serves; waited for."""
    rows: list[dict[str, Any]]
    rows, _seconds = installation.until(lambda: installation.instances("serving"), 60, "a server serves")
    return rows[0]


def same_server(installation: Installation, before: dict[str, Any]) -> None:
    """Fails where the server that serves is another one than before."""
    after = serving(installation)
    assert (after["uid"], after["pid"]) == (before["uid"], before["pid"]), "the server was started anew"


def _stub(installation: Installation, server: dict[str, Any]) -> int:
    [stub] = installation.children(int(server["pid"]), "triton_python_b")
    return stub


def replaced(installation: Installation, old: dict[str, Any], began: float) -> Outcome:
    """Until the row of a server says that it is none any more, and until another serves."""

    def noticed() -> bool:
        return all(
            each["uid"] != old["uid"] or each["state"] != "serving"
            for each in installation.show()["instances"]
        )

    installation.until(noticed, REPLACED_SECONDS, "the dead server is noticed")
    seen = time.monotonic() - began
    installation.until(
        lambda: any(each["uid"] != old["uid"] for each in installation.instances("serving")),
        REPLACED_SECONDS,
        "another server serves",
    )
    installation.ready()
    return Outcome(seen, time.monotonic() - began)


def _struck(installation: Installation, number: int, stub: bool = False) -> Outcome:
    """Signal the server that serves, or its model's process, and wait for another."""
    old = serving(installation)
    pid = _stub(installation, old) if stub else int(old["pid"])
    began = time.monotonic()
    os.kill(pid, number)
    return replaced(installation, old, began)


def kill_server(installation: Installation) -> Outcome:
    """kill -9 of tritonserver."""
    return _struck(installation, signal.SIGKILL)


def kill_stub(installation: Installation) -> Outcome:
    """kill -9 of the model's own process under a server that goes on."""
    return _struck(installation, signal.SIGKILL, stub=True)


def stop_server(installation: Installation) -> Outcome:
    """SIGSTOP of tritonserver: it answers nothing and does not die."""
    return _struck(installation, signal.SIGSTOP)


def stop_stub(installation: Installation) -> Outcome:
    """SIGSTOP of the model's process: the server says that all is well, and no token comes."""
    return _struck(installation, signal.SIGSTOP, stub=True)


def take_ports(installation: Installation) -> Outcome:
    """Another program sits on the ports of a server that is killed: its successor takes others."""
    old = serving(installation)
    began = time.monotonic()
    os.kill(int(old["pid"]), signal.SIGKILL)
    installation.until(lambda: gone(int(old["pid"])), 10, "the server is dead")
    with contextlib.ExitStack() as held:
        for name in ("http_port", "grpc_port", "metrics_port"):
            probe = held.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", int(old[name])))
            probe.listen()
        return replaced(installation, old, began)
