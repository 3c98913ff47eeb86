"""Rows with a number of their own: the database's counter has to go on behind them."""

from __future__ import annotations

from django.core.management.color import no_style
from django.db import connection, models


def go_on_after(*kinds: type[models.Model]) -> None:
    """Set the counters of these tables behind their highest number. PostgreSQL does not do it by itself."""
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), list(kinds)):
            cursor.execute(statement)
