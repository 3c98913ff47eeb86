"""Which node does what only one node should do at a time, and which protocol the control plane speaks.

A duty is held by node id, not by process: a control worker that was killed goes on with it after its restart. Time is
the database's. All that a leader writes is guarded, so two of them for a moment do no harm.
"""

from __future__ import annotations

from datetime import timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q

from apps.core import clock, database_time
from apps.fleet.models import Lead
from apps.fleet.policy import PROTOCOL_VERSION

# Placing servers; judging nodes each second.
PLACEMENT, JUDGING = "placement", "judging"
# Names no duty: its row says which protocol the control plane speaks.
CONTROL_PLANE = "control plane"
HELD_SECONDS = 9.0
# A holder renews this often; others ask this often whether it has ended.
EVERY_SECONDS = 3.0


class Leadership:
    """One duty as one worker process sees it. `mine` costs a statement every three seconds and none between."""

    def __init__(self, duty: str, node_id: str) -> None:
        self._duty, self._node_id = duty, node_id
        self._asked_at = float("-inf")
        self._held_until = float("-inf")

    def mine(self) -> bool:
        """Whether this node holds the duty now; takes it where nobody does. Raises django.db.DatabaseError."""
        now = clock.monotonic()
        if now - self._asked_at >= EVERY_SECONDS:
            self._asked_at = now
            # From before the question: an answer that took long must not be believed longer than it holds.
            self._held_until = now + HELD_SECONDS if take(self._duty, self._node_id) else float("-inf")
        return now < self._held_until


def take(duty: str, node_id: str, seconds: float = HELD_SECONDS) -> bool:
    """Take a duty or renew it; False where another node holds it."""
    now = database_time.now()
    until = now + timedelta(seconds=seconds)
    free = Q(holder=node_id) | Q(until__isnull=True) | Q(until__lte=now)
    if Lead.objects.filter(free, name=duty).update(holder=node_id, until=until):
        return True
    if Lead.objects.filter(name=duty).exists():
        return False
    try:
        with transaction.atomic():
            Lead.objects.create(name=duty, holder=node_id, until=until, protocol_version=PROTOCOL_VERSION)
    except IntegrityError:
        return False
    return True


def give_up(duty: str, node_id: str) -> bool:
    """Let another node have a duty at once; for a worker that stops."""
    return bool(Lead.objects.filter(name=duty, holder=node_id).update(until=None, holder=""))


def announce_protocol() -> None:
    """Say which protocol the control plane speaks; the sweep calls it, which runs beside web and beat."""
    rows = Lead.objects.filter(name=CONTROL_PLANE)
    if rows.filter(protocol_version=PROTOCOL_VERSION).exists():
        return
    if not rows.update(protocol_version=PROTOCOL_VERSION):
        Lead.objects.get_or_create(name=CONTROL_PLANE, defaults={"protocol_version": PROTOCOL_VERSION})


def control_protocol() -> int | None:
    """The protocol that the control plane speaks; null before its first sweep."""
    return Lead.objects.filter(name=CONTROL_PLANE).values_list("protocol_version", flat=True).first()
