"""Free ports of the loopback address. Another program may take one before the server does: starts are retried."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from workers.runtimes.base import Ports


def allocate() -> Ports:
    """Three ports that are free now, as the kernel gives them out; all three are held until all are known."""
    sockets = []
    try:
        for _index in range(3):
            probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sockets.append(probe)
            probe.bind(("127.0.0.1", 0))
        http, grpc, metrics = (probe.getsockname()[1] for probe in sockets)
        return Ports(http, grpc, metrics)
    finally:
        for probe in sockets:
            probe.close()


# State of a connection over which both sides may send, in hexadecimal (net/tcp_states.h).
ESTABLISHED = "01"
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def callers(ports: Ports) -> int:
    """Connections that somebody has to a server's inference ports now."""
    wanted = {f"{port:04X}" for port in (ports.http, ports.grpc)}
    found = 0
    for table in TABLES:
        with contextlib.suppress(OSError):
            for line in table.read_text(encoding="ascii").splitlines()[1:]:
                _number, local, _remote, state, *_rest = line.split()
                found += state == ESTABLISHED and local.rpartition(":")[2] in wanted
    return found
