"""Builds as the comparison in domain/build_comparison.py wants them."""

from __future__ import annotations

from apps.engines.domain.build_comparison import Comparison, Side, compare
from apps.engines.models import Build


def side_of(row: Build) -> Side:
    """A build as the comparison wants it."""
    seconds = (
        (row.finished_at - row.started_at).total_seconds() if row.started_at and row.finished_at else None
    )
    return Side(
        number=row.number,
        state=row.state,
        spec=row.spec or {},
        stages=row.stages or [],
        manifest=row.engine.manifest if row.engine else None,
        size_bytes=row.engine.size_bytes if row.engine else None,
        seconds=seconds,
        reason=row.reason,
    )


def comparison(left: Build, right: Build) -> Comparison:
    """Two builds side by side."""
    return compare(side_of(left), side_of(right))
