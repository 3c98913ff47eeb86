"""What the control worker of a node does beside its tasks: it joins the fleet, beats, and ticks.

All of it runs in threads of the worker's main process, so that a long or stuck task never stops a heartbeat. The GPU
worker does none of it; both tell their pool process when they stop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from celery import current_app
from celery.signals import worker_ready, worker_shutting_down
from django.conf import settings
from django.db import connections
from kombu import Queue

from apps.core import clock
from apps.fleet import leads
from apps.fleet import services as fleet
from apps.fleet import sweep as fleet_sweep
from apps.fleet.policy import (
    BEAT_EVERY_SECONDS,
    FACTS_EVERY_SECONDS,
    PROTOCOL_VERSION,
    ROW_EVERY_SECONDS,
)
from apps.serving import sweep as serving_sweep
from workers.stopping import announce_stop
from workers.toolchains import Prober

log = logging.getLogger(__name__)
TICK_SECONDS = 1.0
JUDGE_SECONDS = 1.0
# Between two looks whether somebody asked for a probe of the toolchains.
PROBE_LOOK_SECONDS = 3.0
RECONCILE, SWEEP = "workers.reconcile", "workers.sweep"


class Loop(threading.Thread):
    """Calls `work` every `seconds` until `stop`. What it raises is logged once per kind, and never ends the loop."""

    def __init__(self, name: str, seconds: float, work: Callable[[], None], stop: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self._seconds, self._work, self._ended = seconds, work, stop
        self._failing = ""

    def run(self) -> None:
        """Work, wait, work."""
        while True:
            self._once()
            if self._ended.wait(self._seconds):
                return

    def _once(self) -> None:
        try:
            self._work()
        except Exception as error:
            kind = type(error).__name__
            if kind != self._failing:
                log.warning("%s fails, and is tried again every %.0f s: %s", self.name, self._seconds, error)
            self._failing = kind
            connections.close_all()
        else:
            if self._failing:
                log.info("%s works again.", self.name)
            self._failing = ""


class Heart:
    """Joins the fleet, then beats. The database may be late: the beat in Redis does not wait for it."""

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        self._joined = False
        self._row_at = float("-inf")
        self._differs: int | None = None

    def beat(self) -> None:
        """Write the beat, and every 15 s the row. Raises what Redis or the database raise; the loop goes on."""
        fleet.beat(self.node_id)
        if not self._joined:
            fleet.register_node("ctl", self.node_id)
            self._joined, self._row_at = True, clock.monotonic()
            self._compare_protocols()
        elif clock.monotonic() - self._row_at >= ROW_EVERY_SECONDS:
            # A row that somebody removed is made again.
            self._joined = fleet.saw_node(self.node_id)
            self._row_at = clock.monotonic()
            self._compare_protocols()

    def _compare_protocols(self) -> None:
        """Say once in the log that the control plane speaks another protocol: this node then drains."""
        spoken = leads.control_protocol()
        differs = spoken if spoken not in (None, PROTOCOL_VERSION) else None
        if differs is not None and differs != self._differs:
            log.warning(
                "The control plane speaks protocol %d, this worker %d: it takes no new work and its servers move "
                "away. Update this host.",
                differs,
                PROTOCOL_VERSION,
            )
        self._differs = differs


class FactsWatch:
    """Looks at the host's GPUs every minute and writes what changed: a GPU lost, cut into slices, back again."""

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id
        self._first = True

    def look(self) -> None:
        """Look, but for the first time: the node has just joined with what was found then."""
        if self._first:
            self._first = False
            return
        if fleet.record_facts(self._node_id):
            log.info("What this host has was written anew.")


class Judge:
    """Judges the nodes each second where this node leads in that, beside the ticks: Redis may be slow to answer."""

    def __init__(self, node_id: str) -> None:
        self._lead = leads.Leadership(leads.JUDGING, node_id)

    def look(self) -> None:
        """Mark silent nodes, and the servers of lost ones. Raises what the database raises; the loop goes on."""
        if self._lead.mine():
            fleet_sweep.judge_nodes()
            serving_sweep.mark_unreachable(fleet_sweep.silent_in_maintenance())


def tick() -> None:
    """Send this node's reconcile task through its own queue. Raises what the broker raises."""
    # Any: the stubs know names only; a Queue object is what may be sent to without being made by a typo.
    queue: Any = Queue(control_queue())
    current_app.send_task(RECONCILE, queue=queue, expires=TICK_SECONDS, retry=False, ignore_result=True)


def control_queue() -> str:
    """Name of this node's control queue."""
    return f"node.{settings.INFLIGHT_NODE_ID}.ctl"


def quiet(record: logging.LogRecord) -> bool:
    """Leave out Celery's lines about the tick and the sweep: two a second say nothing; what they find is logged."""
    return not any(name in record.getMessage() for name in (RECONCILE, SWEEP))


# The pool's process is forked after this import and has the filter too.
for _name in ("celery.worker.strategy", "celery.app.trace"):
    logging.getLogger(_name).addFilter(lambda record: record.levelno >= logging.WARNING or quiet(record))

_stop = threading.Event()


@worker_ready.connect
def begin(sender: Any = None, **kwargs: Any) -> None:
    """Start the threads in the control worker's main process; other workers start none."""
    queues = getattr(getattr(sender, "task_consumer", None), "queues", [])
    if control_queue() not in {queue.name for queue in queues}:
        return
    heart = Heart(settings.INFLIGHT_NODE_ID)
    Loop("heartbeat", BEAT_EVERY_SECONDS, heart.beat, _stop).start()
    Loop("host facts", FACTS_EVERY_SECONDS, FactsWatch(settings.INFLIGHT_NODE_ID).look, _stop).start()
    Loop("judge of nodes", JUDGE_SECONDS, Judge(settings.INFLIGHT_NODE_ID).look, _stop).start()
    Loop("reconcile tick", TICK_SECONDS, tick, _stop).start()
    Loop("toolchain probe", PROBE_LOOK_SECONDS, Prober().look, _stop).start()


@worker_shutting_down.connect
def end(**kwargs: Any) -> None:
    """Stop the threads, and have the pool process end what it runs: a build goes back to the queue."""
    _stop.set()
    announce_stop()
