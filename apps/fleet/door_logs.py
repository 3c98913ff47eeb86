"""Logs of other hosts, read through their doors: `door://<node id>/<instance or build>/<uid or number>`."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.utils.translation import gettext as _

from apps.core.exceptions import InfrastructureError
from apps.fleet import doors
from apps.fleet.models import Node, NodeDoor
from apps.realtime.log_window import MAX_WINDOW, LogWindow

SCHEME = "door"
CONNECT_SECONDS, ANSWER_SECONDS = 3.0, 10.0
LINE = 4096


def address(node: Node | None, kind: str, key: object, path: str) -> str:
    """Where the log of an instance (key: uid) or a build (key: number) of `node` is read from here.

    The path itself where it lies under this home, or nobody knows on which node it does; empty where there is none.
    """
    if not path or node is None or node.node_id == settings.INFLIGHT_NODE_ID:
        return path
    if Path(path).is_relative_to(settings.INFLIGHT_HOME) or not doors.has_door(node):
        return path
    return f"{SCHEME}://{node.node_id}/{kind}/{key}"


def read(where: str, offset: int, limit: int) -> LogWindow:
    """A window of another host's log. Raises InfrastructureError (503) where its door is not reached."""
    parts = urlsplit(where)
    kind, _slash, key = parts.path.strip("/").partition("/")
    node_id = where.partition("://")[2].partition("/")[0]
    door = NodeDoor.objects.filter(node__node_id=node_id).first()
    if door is None:
        raise _away(node_id, _("it has not opened a door"))
    asked = {
        "token": doors.door_token(node_id), "to": "log", "kind": kind, "key": key, "offset": offset,
        "limit": min(limit, MAX_WINDOW),
    }  # fmt: skip
    try:
        return _read(door, asked)
    except (OSError, ValueError, KeyError) as error:
        raise _away(node_id, str(error) or type(error).__name__) from error


def _read(door: NodeDoor, asked: dict[str, object]) -> LogWindow:
    context = doors.caller_context(door.certificate)
    with (
        socket.create_connection((door.host, door.port), timeout=CONNECT_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=door.host) as connection,
        connection.makefile("rwb") as stream,
    ):
        connection.settimeout(ANSWER_SECONDS)
        stream.write(json.dumps(asked).encode() + b"\n")
        stream.flush()
        head = json.loads(stream.readline(LINE))
        if head.get("ok") is not True:
            raise ValueError(str(head.get("message", "refused")))
        length = int(head["bytes"])
        # Text that had broken bytes may have grown: each becomes a mark of three.
        if not 0 <= length <= 3 * MAX_WINDOW:
            raise ValueError("the answer is too long")
        text = stream.read(length).decode("utf-8", "replace")
        return LogWindow(text, int(head["start"]), int(head["offset"]), int(head["size"]))


def _away(node_id: str, why: str) -> InfrastructureError:
    return InfrastructureError(
        "door_away",
        _("The log lies on %(node)s, and that node cannot be reached: %(why)s.")
        % {"node": node_id, "why": why},
        remedy=_("See on the page of the fleet whether the node is well; its log is kept there."),
    )
