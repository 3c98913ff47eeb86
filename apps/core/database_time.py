"""The database's clock: what leases of several hosts are compared with, so that no host's own clock decides."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import connection

from apps.core import clock


def now() -> datetime:
    """Aware UTC time of the database server; on SQLite, which lies on this host, that is this host's.

    One short statement on PostgreSQL. It is the statement's time and not the transaction's, so that it also moves
    inside a transaction that waited for a lock. Raises django.db.DatabaseError.
    """
    if connection.vendor != "postgresql":
        return clock.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        row = cursor.fetchone()
    moment = row[0] if row else None
    if not isinstance(moment, datetime):
        return clock.now()
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def skew_seconds() -> float:
    """This host's clock less the database's, seconds; the time of the question is taken in its middle."""
    before = clock.now()
    there = now()
    after = clock.now()
    return (before + (after - before) / 2 - there).total_seconds()
