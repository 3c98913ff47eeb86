"""Free ports of the loopback address. Another program may take one before the server does: starts are retried."""

from __future__ import annotations

import socket

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
