"""Making this node's servers what the rows say, one short tick at a time.

Level-triggered: each tick looks at the rows and at /proc and takes the next step of each instance, so a worker
that was killed simply goes on. Only one tick runs at a time on a node (a file lock), and only ticks write the
states of its instances.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings

from apps.core import clock
from apps.fleet import leads
from apps.fleet import selectors as fleet_selectors
from apps.fleet.models import Node
from apps.fleet.policy import PROTOCOL_VERSION
from apps.serving import reconcile as rows_side
from apps.serving import selectors, states
from apps.serving.domain import repository
from apps.serving.models import Instance
from workers import address_book, engine_place
from workers.instance_spec import server_identity
from workers.instance_steps import Stepper
from workers.runtimes import memory_files, processes
from workers.runtimes.arguments import shared_memory_prefix
from workers.runtimes.base import Identity
from workers.runtimes.deaths import DeathWatch
from workers.runtimes.triton import TritonRuntime

log = logging.getLogger(__name__)

# What a tick may spend on waiting, a part of it on the servers' answers: with its statements it stays under the
# second between two of them.
TICK_SECONDS = 0.6
LOOK_SECONDS = 0.3
CLEAR_EVERY_SECONDS = 60.0
TASK = "workers.reconcile"


class Reconciler:
    """What one worker process remembers between ticks: running jobs, watched deaths. Losing it loses nothing."""

    def __init__(self, stepper: Stepper, wake: Callable[[], None]) -> None:
        self.stepper = stepper
        self.wake = stepper.jobs.wake = wake
        self.deaths = DeathWatch(wake)
        self._clear_at = 0.0
        self._addresses: object = None
        self._lead: leads.Leadership | None = None

    def tick(self) -> bool:
        """Take the next step of everything on this node. False where another tick runs or the node has not joined."""
        node = fleet_selectors.local_node()
        if node is None:
            return False
        with exclusive(0.0) as mine:
            if not mine:
                return False
            deadline = time.monotonic() + TICK_SECONDS
            self._clear(node)
            rows = self._rows(node)
            self.stepper.looks.look_at(rows, LOOK_SECONDS)
            self._step(rows, deadline)
            drain = rows_side.reconcile_deployments(node, self._leads(node))
            for row in rows_side.instances_of(node):
                if row.pk in drain:
                    self.stepper.ask_to_drain(row)
            # What was placed or drained just now need not wait for the next second.
            rows = self._rows(node)
            self._step(rows, deadline)
            self.deaths.watch([identity for row in rows if (identity := server_identity(row)) is not None])
            for row in rows_side.forget_old(node):
                self.stepper.forget(row)
            self._tell_addresses()
        return True

    def _leads(self, node: Node) -> bool:
        """Whether this node places, switches and says what deployments are, for the whole fleet.

        A worker of another protocol than the control plane's never leads: it only looks after what it has.
        """
        if leads.control_protocol() not in (None, PROTOCOL_VERSION):
            return False
        if self._lead is None:
            self._lead = leads.Leadership(leads.PLACEMENT, node.node_id)
        return self._lead.mine()

    def _tell_addresses(self) -> None:
        """Keep the file of addresses; two statements a tick where nothing changed."""
        now = address_book.signature()
        if now != self._addresses:
            address_book.write(selectors.deployments())
            if self._addresses is not None:
                # Something was switched: what follows from it need not wait for the next second.
                self.wake()
            self._addresses = now

    def _rows(self, node: Node) -> list[Instance]:
        rows = rows_side.instances_of(node)
        for row in rows:
            engine_place.settle(row)
        return rows

    def _step(self, rows: list[Instance], deadline: float) -> None:
        self.stepper.until = deadline
        for row in rows:
            try:
                while self.stepper.step(row) and time.monotonic() < deadline:
                    continue
            except Exception:
                # One instance that cannot be looked after must not keep the others waiting.
                log.exception("instance %s", row.uid)

    def _clear(self, node: Node) -> None:
        """Now and then: end servers that no row knows (deleted or restored away), remove folders of old ones."""
        if time.monotonic() < self._clear_at:
            return
        self._clear_at = time.monotonic() + CLEAR_EVERY_SECONDS
        end_strays({row.uid for row in rows_side.instances_of(node)})
        rows_side.delete_oldest(node)
        remove_folders(rows_side.known_uids())

    def stop_all(
        self,
        reason: str,
        sentence: str,
        drain_seconds: float,
        seconds: float,
        say: Callable[[str], None] = lambda line: None,
    ) -> list[Instance]:
        """Drain and end every server of this node without changing what is desired; returns those that are left.

        Holds the tick's lock all the while, so that a worker that runs starts nothing meanwhile.
        """
        node = fleet_selectors.local_node()
        if node is None:
            return []
        deadline = time.monotonic() + seconds
        with exclusive(min(10.0, seconds)):
            for row in rows_side.instances_of(node):
                if row.state != states.FAILED:
                    say(f"{row.deployment.name}: ending {row.uid} ({row.state})")
                self.stepper.ask_to_drain(row, reason, sentence, drain_seconds)
            while left := [row for row in rows_side.instances_of(node) if _unfinished(row)]:
                if time.monotonic() >= deadline:
                    return left
                self.stepper.until = time.monotonic() + 0.5
                self.stepper.looks.look_at(left, 0.2)
                for row in left:
                    self.stepper.step(row)
                time.sleep(0.1)
            end_strays(set())
            rows_side.settle_stopped(reason, sentence)
        return []


def _unfinished(row: Instance) -> bool:
    return row.state != states.FAILED or row.pid is not None


def end_strays(known: set[str]) -> list[int]:
    """Kill servers that carry this home's mark and an instance id that is not among `known`."""
    ended = []
    for pid, uid in processes.marked({"INFLIGHT_HOME": str(settings.INFLIGHT_HOME)}).items():
        created = processes.create_time(pid)
        if uid in known or created is None:
            continue
        log.warning("ending process %d of instance %s, which no row knows", pid, uid)
        processes.kill_one(Identity(pid, created, uid))
        ended.append(pid)
    return ended


def remove_folders(known: set[str]) -> None:
    """Remove the folders and shared memory of instances whose rows are gone, unless a process still uses them."""
    root = Path(settings.INFLIGHT_HOME) / "instances"
    for folder in root.iterdir() if root.is_dir() else ():
        strange = folder.name not in known and folder.name.startswith(rows_side.UID_PREFIX)
        if strange and not memory_files.remove_unmapped(shared_memory_prefix(folder.name)):
            repository.remove(folder)


@contextlib.contextmanager
def exclusive(seconds: float) -> Iterator[bool]:
    """Whether the lock of this node's ticks could be had within `seconds`; held until the block ends."""
    path = Path(settings.INFLIGHT_HOME) / "run" / "reconcile.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _locked(descriptor, time.monotonic() + seconds)
    finally:
        os.close(descriptor)


def _locked(descriptor: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)


def wake_control_worker() -> None:
    """Ask this node's control worker for a tick now."""
    from kombu import Queue

    from controlplane.celery import app

    queue: Any = Queue(f"node.{settings.INFLIGHT_NODE_ID}.ctl")
    with contextlib.suppress(Exception):
        # The next tick is a second away; a broker that does not answer is not this thread's business.
        app.send_task(TASK, queue=queue, expires=1, retry=False, ignore_result=True)


@lru_cache(maxsize=1)
def _reconciler(pid: int) -> Reconciler:
    return Reconciler(Stepper(TritonRuntime()), wake_control_worker)


def stop_node(
    sentence: str, drain_seconds: float, seconds: float, say: Callable[[str], None]
) -> list[Instance]:
    """End every server of this node, whether a worker runs or not; returns those that are left. See stop_all."""
    reconciler = Reconciler(Stepper(TritonRuntime()), lambda: None)
    return reconciler.stop_all("node_stopped", sentence, drain_seconds, seconds, say)


def reconcile_node() -> bool:
    """One tick for this process's node; the task `workers.reconcile` calls it each second."""
    started = clock.monotonic()
    # Threads and descriptors do not survive a fork, so each process has a reconciler of its own.
    done = _reconciler(os.getpid()).tick()
    if (spent := clock.monotonic() - started) > 1.0:
        log.warning("a reconcile tick took %.2f s", spent)
    return done
