"""Installations to break: one host on SQLite whose clock can be moved, or two on PostgreSQL and a road between."""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from deploy.local.postgres import server, socket_folder
from tests.chaos.clock import Clock
from tests.chaos.installation import Installation
from tests.chaos.link import Link
from tests.chaos.outcome import CannotBeShown
from tests.hosts.looks import place
from tests.hosts.three import joined
from tests.support.stack import running_stack

JOIN_SECONDS = 120.0


class FarHost:
    """A second host, as a home of its own. What it says to database and Redis passes over `links`."""

    name = "far"

    def __init__(self, links: Sequence[Link], held: contextlib.ExitStack) -> None:
        self._links, self._held = links, held
        self.node_id = ""

    def join(self, installation: Installation) -> None:
        """Start its workers and have the demo serve there; once."""
        if self.node_id:
            return
        # The table goes to the output; how it gets there does not.
        with contextlib.redirect_stdout(sys.stderr):
            [worker] = self._held.enter_context(joined(installation, (self.name,)))
            self.node_id = worker.node_id
            installation.until(lambda: self.state(installation) == "ready", JOIN_SECONDS, "it beats")
            place(installation, self.name)
        installation.ready(JOIN_SECONDS)

    def state(self, installation: Installation) -> str:
        """State of its node."""
        nodes = installation.call("GET", "/nodes")["items"]
        return str(next(each["state"] for each in nodes if each["node_id"] == self.node_id))

    def cut(self) -> None:
        """From now on it reaches neither."""
        for link in self._links:
            link.cut()

    def heal(self) -> None:
        """It reaches both again."""
        for link in self._links:
            link.heal()


@contextlib.contextmanager
def world(postgres: bool) -> Iterator[Installation]:
    """One of the two, ended when the block ends, also where the command itself is ended."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="inflight-chaos-")))
        yield _two_hosts(held, folder) if postgres else _one_host(held, folder)


def _one_host(held: contextlib.ExitStack, folder: Path) -> Installation:
    clock, why = None, ""
    try:
        clock = Clock(folder)
    except CannotBeShown as reason:
        why = str(reason)
    environment = clock.environment() if clock is not None else {}
    installation = Installation(held.enter_context(running_stack(**environment)))
    installation.clock, installation.no_clock = clock, why
    return installation


def _two_hosts(held: contextlib.ExitStack, folder: Path) -> Installation:
    found: list[Installation] = []

    def redis_socket() -> str:
        return found[0].environment["INFLIGHT_REDIS_URL"].removeprefix("unix://")

    url = held.enter_context(server(folder / "postgres.log"))
    database, redis = Link(lambda: f"{socket_folder(url)}/.s.PGSQL.5432"), Link(redis_socket)
    for link in (database, redis):
        held.callback(link.close)
    stack = held.enter_context(
        running_stack(
            DATABASE_URL=url,
            INFLIGHT_JOIN_DATABASE_URL=f"postgres://postgres@127.0.0.1:{database.port}/postgres",
            INFLIGHT_JOIN_REDIS_URL=f"redis://127.0.0.1:{redis.port}",
            INFLIGHT_STORE=str(folder / "store"),
        )
    )
    found.append(Installation(stack))
    found[0].far = FarHost((database, redis), held)
    return found[0]
