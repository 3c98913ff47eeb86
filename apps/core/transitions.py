"""The only writer of a status: one conditional UPDATE, an audit row, a new version, and a signal on commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from django.db import models, transaction
from django.db.models import F
from django.dispatch import Signal

from apps.core import audit, clock
from apps.core.models import StatusModel

# Sent after commit with sender=model class, instance=fresh row, from_state, to_state.
# apps.realtime listens and publishes; core knows nothing of sockets.
state_changed = Signal()

Row = TypeVar("Row", bound=StatusModel)


class IllegalMove(Exception):
    """The state table has no such arrow: a fault in our code, not in anybody's input."""


def transition(
    row: Row,
    target: str,
    *,
    actor: audit.Actor,
    sources: Iterable[str] | None = None,
    attempt: int | None = None,
    reason: str = "",
    sentence: str = "",
    remedy: str = "",
    verb: str = "",
    where: models.Q | None = None,
    **changes: Any,
) -> bool:
    """Move `row` to `target` if it is still in one of `sources` (default: every state with an arrow there).

    `attempt` fences: the UPDATE applies only while the row carries that attempt number. `changes` are further
    columns set in the same statement. Returns False where somebody was first (zero rows changed); the row object
    is then refreshed. Raises IllegalMove where the table has no arrow from one of `sources`.
    """
    allowed = row.machine.sources_of(target)
    wanted = frozenset(sources) if sources is not None else allowed
    if not wanted or wanted - allowed:
        raise IllegalMove(f"{row.kind}: no move from {sorted(wanted - allowed)} to {target}")
    model = type(row)
    moment = clock.now()
    with transaction.atomic():
        rows = model._default_manager.filter(pk=row.pk).order_by("pk")
        before = rows.values_list("state", flat=True).first()
        guard = model._default_manager.filter(pk=row.pk, state=before, state__in=wanted)
        if attempt is not None:
            guard = guard.filter(attempt=attempt)
        if where is not None:
            guard = guard.filter(where)
        changed = guard.update(
            state=target,
            version=F("version") + 1,
            reason=reason,
            sentence=sentence,
            remedy=remedy,
            state_since=moment,
            updated_at=moment,
            **changes,
        )
        row.refresh_from_db()
        if not changed:
            return False
        audit.record(
            actor,
            verb or f"{row.kind}.{target}",
            row,
            from_state=str(before),
            to_state=target,
            reason=reason,
            sentence=sentence,
        )
        announce(row, from_state=str(before))
    return True


def amend(
    row: Row, *, attempt: int | None = None, states: Iterable[str] | None = None, **changes: Any
) -> bool:
    """Change columns other than the state, with a new version, while the row is in `states` (and attempt).

    For progress, process identities and the like. Returns False where the guard did not hold.
    """
    model = type(row)
    guard = model._default_manager.filter(pk=row.pk)
    if attempt is not None:
        guard = guard.filter(attempt=attempt)
    if states is not None:
        guard = guard.filter(state__in=list(states))
    with transaction.atomic():
        changed = guard.update(version=F("version") + 1, updated_at=clock.now(), **changes)
        row.refresh_from_db()
        if changed:
            announce(row, from_state=row.state)
    return bool(changed)


def announce(row: StatusModel, *, from_state: str = "") -> None:
    """Send `state_changed` for the row as it stands, after the surrounding transaction commits."""

    def send() -> None:
        state_changed.send(sender=type(row), instance=row, from_state=from_state, to_state=row.state)

    transaction.on_commit(send)
