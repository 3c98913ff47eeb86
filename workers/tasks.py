"""Celery tasks. Each is a wake-up with row ids: the rows say what to do, and a task that comes twice does nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable

from celery import shared_task
from django.conf import settings
from django.db import DatabaseError
from redis.exceptions import RedisError

import workers.node  # noqa: F401 - connects to the worker's signals
from apps.control import autoscale, canary
from apps.control.adaptive import sweep as adapt
from apps.engines import retention
from apps.engines import sweep as engines_sweep
from apps.fleet import services as fleet
from apps.fleet import sweep as fleet_sweep
from apps.loadtests import sweep as loadtests_sweep
from apps.loadtests.policy import RUN_LOAD, RUN_QUALITY
from apps.loadtests.tuning_steps import PROPOSE
from apps.registry import sweep as registry_sweep
from apps.registry.hub.policy import DEADLINE_SECONDS
from apps.serving import sweep as serving_sweep
from apps.telemetry import sweep as telemetry_sweep
from workers import build_run, fetch_run, fetch_sweep, load_run, load_sweep, log_rotation, quality_run
from workers.reconcile import reconcile_node
from workers.tune_run import propose_trial as propose_next

log = logging.getLogger(__name__)
# The supervisor's own deadlines come first, then the soft limit, and the hard one last: it would end the Python
# process alone, and PDEATHSIG its children.
SOFT_SECONDS = 25 * 3600
HARD_SECONDS = SOFT_SECONDS + 300
FETCH_SECONDS = 2 * int(DEADLINE_SECONDS)


@shared_task(name="workers.run_build", acks_late=False, soft_time_limit=SOFT_SECONDS, time_limit=HARD_SECONDS)
def run_build(build_id: int) -> None:
    """Claim a queued build and run it."""
    build_run.run_build(build_id, f"gpu worker {settings.INFLIGHT_NODE_ID}")


@shared_task(
    name="workers.fetch_checkpoint",
    acks_late=False,
    soft_time_limit=FETCH_SECONDS,
    time_limit=FETCH_SECONDS + 300,
)
def fetch_checkpoint(checkpoint_id: int) -> None:
    """Claim a waiting checkpoint and fetch it."""
    fetch_run.run_fetch(checkpoint_id, f"load worker {settings.INFLIGHT_NODE_ID}")


@shared_task(name=RUN_LOAD, acks_late=False, soft_time_limit=SOFT_SECONDS, time_limit=HARD_SECONDS)
def run_load(run_id: int) -> None:
    """Claim a queued load run and make it."""
    load_run.run_load(run_id, f"load worker {settings.INFLIGHT_NODE_ID}")


@shared_task(name=RUN_QUALITY, acks_late=False, soft_time_limit=SOFT_SECONDS, time_limit=HARD_SECONDS)
def run_quality(run_id: int) -> None:
    """Claim a queued quality run and make it."""
    quality_run.run_quality(run_id, f"load worker {settings.INFLIGHT_NODE_ID}")


@shared_task(name=PROPOSE, acks_late=False, soft_time_limit=300, time_limit=330)
def propose_trial(tuning_id: int) -> None:
    """Propose and begin a tuning's next trial."""
    propose_next(tuning_id)


@shared_task(name="workers.sweep")
def sweep() -> None:
    """Bring every app's rows up to date; one that fails does not keep the others from it."""
    _echo()
    for name, part in _sweeps():
        try:
            part()
        except Exception:
            log.exception("The sweep of %s failed; the next one tries again.", name)


@shared_task(name="workers.reconcile")
def reconcile() -> None:
    """One tick of this node: the echo through the queue, then its servers."""
    _echo()
    try:
        autoscale.wake_asked()
    except (DatabaseError, RedisError) as error:
        log.warning("Whether a sleeping deployment is asked for is not known: %s", error)
    reconcile_node()


def _sweeps() -> list[tuple[str, Callable[[], object]]]:
    return [
        ("fetches", fetch_sweep.reap),
        ("registry", registry_sweep.sweep),
        ("fleet", fleet_sweep.sweep),
        ("engines", engines_sweep.sweep),
        ("serving", serving_sweep.sweep),
        ("telemetry", telemetry_sweep.sweep),
        ("load runs", load_sweep.reap),
        ("loadtests", loadtests_sweep.sweep),
        ("canaries", canary.sweep),
        ("adaptive batching", adapt),
        ("scaling", autoscale.sweep),
        ("retention", retention.run_scheduled),
        ("logs", log_rotation.rotate_server_logs),
    ]


def _echo() -> None:
    """That this runs at all shows that the worker takes tasks; Redis being gone for a moment is no reason to fail."""
    try:
        fleet.echo(settings.INFLIGHT_NODE_ID)
    except (RedisError, DatabaseError) as error:
        log.warning("The echo was not written: %s", error)
