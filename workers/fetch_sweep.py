"""Ends what is left of fetches whose worker fell silent, and lets another attempt go on where they were."""

from __future__ import annotations

from django.conf import settings
from django.utils.translation import gettext as _

from apps.core import database_time
from apps.fleet.processes import ProcessIdentity, end_tree, mark_of
from apps.registry import states
from apps.registry.hub import attempts
from apps.registry.hub.attempts import Failure
from apps.registry.models import Checkpoint

KILL_GRACE_SECONDS = 1.0


def reap() -> int:
    """Queue checkpoints again whose lease ran out; returns how many. Their child processes on this host end first."""
    reaped = 0
    expired = Checkpoint.objects.filter(state__in=states.HELD, lease_expires_at__lte=database_time.now())
    for row in expired:
        if row.node_id == settings.INFLIGHT_NODE_ID:
            child = attempts.child_of(row)
            identity = ProcessIdentity(child.pid, child.created, child.group) if child else None
            end_tree(mark_of(row.node_id, row.kind, row.pk, row.attempt), identity, KILL_GRACE_SECONDS)
        why = Failure(
            "worker_lost",
            _("The worker that fetched it fell silent and its lease ran out."),
            _("It goes on where it was. See why the worker ended: its log lies under logs/."),
            retry=True,
            retry_after=0.0,
        )
        reaped += attempts.fail_fetch(row, row.attempt, why, "sweep")
    return reaped
