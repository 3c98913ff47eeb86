"""The proxy of one node, until it is asked to end: door and near end, kept in step with the rows."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path

from django.conf import settings

from apps.engines.models import Build
from apps.fleet import doors
from apps.fleet.models import Node, NodeDoor
from apps.realtime import pool
from apps.realtime.tasks import end
from apps.serving import selectors
from apps.serving.models import Instance
from workers.door import LINE, certificate
from workers.door.far import Far, Own, OwnTable
from workers.door.near import Door, Near, There

log = logging.getLogger(__name__)

FOLLOW_SECONDS = 1.0
# Logs of builds that can be read through the door.
BUILDS_KNOWN = 500
# The row of the node may come later than its proxy.
NODE_SECONDS = 2.0


async def run(stop: asyncio.Event | None = None) -> None:
    """Run until `stop` is set (default: until SIGTERM or SIGINT). Raises OSError where the door's port is taken."""
    stopped = stop or asyncio.Event()
    if stop is None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
    home = Path(settings.INFLIGHT_HOME)
    kept = certificate.ensure(home / "door", settings.INFLIGHT_NODE_ID, settings.INFLIGHT_DOOR_ADDRESS)
    far = Far(settings.INFLIGHT_NODE_ID, home, _own)
    server = await asyncio.start_server(
        far.answer,
        settings.INFLIGHT_DOOR_HOST,
        settings.INFLIGHT_DOOR_PORT,
        ssl=certificate.door_context(kept),
        limit=2 * LINE,
    )
    port = server.sockets[0].getsockname()[1]
    near = Near()
    log.info("The door is open on %s:%d.", settings.INFLIGHT_DOOR_HOST, port)
    work = [asyncio.create_task(_announce(port, kept.pem)), asyncio.create_task(_follow(near, far))]
    try:
        await stopped.wait()
    finally:
        server.close()
        await near.close()
        await end(work)
    log.info("The door is closed.")


async def _announce(port: int, pem: str) -> None:
    """Write where the door is, as soon as the node and the database are there."""
    while True:
        try:
            if await pool.run(_save, port, pem):
                return
        except Exception as error:
            log.warning("Where the door is could not be written: %s", error)
        await asyncio.sleep(NODE_SECONDS)


def _save(port: int, pem: str) -> bool:
    node = Node.objects.filter(node_id=settings.INFLIGHT_NODE_ID).first()
    if node is None:
        return False
    doors.save_door(node, settings.INFLIGHT_DOOR_ADDRESS, port, pem)
    return True


async def _follow(near: Near, far: Far) -> None:
    """A database that is away leaves everything as it is: what was open stays open."""
    failing = ""
    while True:
        try:
            await near.follow(await pool.run(others))
            await far.refresh()
            failing = ""
        except Exception as error:
            if type(error).__name__ != failing:
                log.warning("The servers of other hosts could not be followed: %s", error)
            failing = type(error).__name__
        await asyncio.sleep(FOLLOW_SECONDS)


async def _own() -> OwnTable:
    return await pool.run(own)


def own() -> OwnTable:
    """This node's servers and the logs of its builds. Reads the database."""
    mine = Instance.objects.filter(node__node_id=settings.INFLIGHT_NODE_ID)
    servers = {
        row.uid: Own(row.http_port or 0, row.grpc_port or 0, row.metrics_port or 0, row.log_path)
        for row in mine.only("uid", "http_port", "grpc_port", "metrics_port", "log_path", "state")
    }
    builds = Build.objects.filter(node__node_id=settings.INFLIGHT_NODE_ID).exclude(log_path="")
    logs = builds.order_by("-number").values_list("number", "log_path")[:BUILDS_KNOWN]
    return OwnTable(servers, {str(number): path for number, path in logs})


def others() -> list[There]:
    """Servers of other nodes that have ports, each behind its node's door. Reads the database."""
    rows = (
        Instance.objects.filter(http_port__isnull=False, node__isnull=False)
        .exclude(state__in=selectors.NO_PROCESS)
        .exclude(node__node_id=settings.INFLIGHT_NODE_ID)
        .values_list("uid", "node_id")
    )
    found = {
        row.node_id: Door(row.node.node_id, row.host, row.port, row.certificate)
        for row in NodeDoor.objects.select_related("node")
    }
    return [There(uid, found[node]) for uid, node in rows if node in found]
