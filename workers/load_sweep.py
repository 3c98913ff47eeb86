"""Ends what is left of load runs and quality runs whose worker fell silent, and queues them again."""

from __future__ import annotations

from django.conf import settings
from django.utils.translation import gettext as _

from apps.core import database_time
from apps.fleet.processes import end_tree, mark_of
from apps.loadtests import attempts, states
from apps.loadtests.attempts import Failure
from apps.loadtests.models import LoadRun, QualityRun

KILL_GRACE_SECONDS = 1.0


def reap() -> int:
    """Queue runs again whose lease ran out; returns how many. Their child processes on this host end first."""
    reaped = 0
    due = {"state": states.RUNNING, "lease_expires_at__lte": database_time.now()}
    rows: list[LoadRun | QualityRun] = [*LoadRun.objects.filter(**due), *QualityRun.objects.filter(**due)]
    for row in rows:
        if row.node_id == settings.INFLIGHT_NODE_ID:
            mark = mark_of(row.node_id, row.kind, row.pk, row.attempt)
            end_tree(mark, attempts.child_of(row), KILL_GRACE_SECONDS)
        why = Failure(
            "worker_lost",
            _("The worker that made it fell silent and its lease ran out."),
            _("See why the worker ended: its log lies under logs/."),
            retry=True,
        )
        reaped += attempts.fail_run(row, row.attempt, why, "sweep")
    return reaped
