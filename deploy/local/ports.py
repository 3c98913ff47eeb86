"""The ports of the pages and of the gateway: the wanted ones, or the next that are free."""

from __future__ import annotations

import socket
from collections.abc import Callable

from deploy.local.errors import Problem

DEFAULT_PORT = 8000
DEFAULT_GATEWAY_PORT = 8001
TRIES = 100


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError:
            return False
    return True


def wanted(environ: dict[str, str]) -> int:
    """The port asked for: PORT or INFLIGHT_WEB_PORT, else 8000."""
    return _named(environ, ("PORT", "INFLIGHT_WEB_PORT"), DEFAULT_PORT)


def wanted_gateway(environ: dict[str, str]) -> int:
    """The gateway's port asked for: INFLIGHT_GATEWAY_PORT, else 8001."""
    return _named(environ, ("INFLIGHT_GATEWAY_PORT",), DEFAULT_GATEWAY_PORT)


def _named(environ: dict[str, str], names: tuple[str, ...], default: int) -> int:
    for name in names:
        given = environ.get(name, "")
        if given:
            if given.isdecimal() and 1 <= int(given) <= 65535:
                return int(given)
            raise Problem(f"{name}={given} is no port.", "Choose a number from 1024 to 65535.")
    return default


def choose(first: int, free: Callable[[int], bool] | None = None) -> int:
    """The first free port from `first` on, at most a hundred tried."""
    for port in range(first, min(first + TRIES, 65536)):
        if (free or is_free)(port):
            return port
    raise Problem(
        f"No port from {first} to {min(first + TRIES, 65536) - 1} is free.", "Name another: make up PORT=9000"
    )
