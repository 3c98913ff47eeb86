"""Doors between hosts: who listens where, who may come in, and where another host's servers answer on this one.

A node's proxy (workers/door) has two ends. Its far end is the door: TLS, a token, and behind it the loopback ports
of this node's own servers. Its near end listens on loopback here, once for each port of every other node's servers,
and `near_ports` says where; so whoever calls a server calls 127.0.0.1, whichever host it runs on.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from apps.fleet.models import Node, NodeDoor

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NearPorts:
    """Loopback ports on this host that lead to one server of another host."""

    http: int
    grpc: int
    metrics: int


def near_file() -> Path:
    """What the near end writes: {uid: [http, grpc, metrics]}."""
    return Path(settings.INFLIGHT_HOME) / "run" / "doors.json"


def door_token(node_id: str) -> str:
    """What opens the door of a node: made of the secret key, which all hosts of an installation share."""
    return hmac.new(settings.SECRET_KEY.encode(), f"door:{node_id}".encode(), hashlib.sha256).hexdigest()


def opens(node_id: str, token: object) -> bool:
    """Whether the token opens this node's door; takes the same time whatever it is."""
    return isinstance(token, str) and hmac.compare_digest(door_token(node_id).encode(), token.encode())


def caller_context(pem: str) -> ssl.SSLContext:
    """TLS of the side that calls: it trusts exactly the certificate that the node's row holds, and no authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The row names the certificate itself; what it calls the host adds nothing.
    context.check_hostname = False
    context.load_verify_locations(cadata=pem)
    return context


def has_door(node: Node) -> bool:
    """Whether the node has opened a door; one query where the caller has not joined `node__door`."""
    # The error of a missing row is an AttributeError, too.
    return getattr(node, "door", None) is not None


def save_door(node: Node, host: str, port: int, certificate: str) -> NodeDoor:
    """Say where a node's door is; called by its proxy each time it starts."""
    row, _created = NodeDoor.objects.update_or_create(
        node=node, defaults={"host": host, "port": port, "certificate": certificate}
    )
    return row


def write_near(ports: dict[str, NearPorts]) -> None:
    """Tell this host's processes where the others' servers answer. Raises OSError."""
    path = near_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.new")
    rows = {uid: [each.http, each.grpc, each.metrics] for uid, each in sorted(ports.items())}
    temporary.write_text(json.dumps(rows), encoding="utf-8")
    temporary.replace(path)


def near_ports(uid: str) -> NearPorts | None:
    """Where a server of another host answers on this one; None where the proxy has not opened it (yet)."""
    return _table().get(uid)


def read_near() -> dict[str, NearPorts]:
    """All that the near end has opened; empty where it never ran."""
    try:
        rows = json.loads(near_file().read_text(encoding="utf-8"))
        return {str(uid): NearPorts(*map(int, ports)) for uid, ports in rows.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        log.warning("%s cannot be read: %s", near_file(), error)
        return {}


# By the file's identity: it is read again only when the proxy has replaced it.
_read: dict[tuple[str, int, int], dict[str, NearPorts]] = {}


def _table() -> dict[str, NearPorts]:
    path = near_file()
    try:
        status = path.stat()
    except OSError:
        return {}
    key = (str(path), status.st_ino, status.st_mtime_ns)
    if key not in _read:
        found = read_near()
        _read.clear()
        _read[key] = found
    return _read[key]
