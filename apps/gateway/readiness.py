"""Whether requests can be answered: database, Redis, migrations, the table, workers. Asked by /readyz; blocks.

Requests with known keys go on without database and Redis; what is reported here is that something is wrong, not that
nothing works. `checks` names each part: ok, or what is the matter.
"""

from __future__ import annotations

from django.db import DatabaseError, close_old_connections, connection
from django.db.migrations.executor import MigrationExecutor
from django.utils.translation import gettext as _

from apps.fleet import beats
from apps.fleet import selectors as fleet
from apps.fleet.policy import LOST_AFTER_SECONDS
from apps.realtime.redis_clients import REDIS_ERRORS, sync_client
from apps.serving.models import Instance
from apps.serving.selectors import NO_PROCESS

_migrated = False


def checks() -> dict[str, str]:
    """{part: "ok" or a sentence}."""
    close_old_connections()
    database = _database()
    found = {"database": database, "redis": _redis()}
    found["migrations"] = _migrations() if database == "ok" else _("not known: the database does not answer")
    found["workers"] = _workers() if database == "ok" else _("not known: the database does not answer")
    return found


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except DatabaseError:
        connection.close()
        return _("does not answer")
    return "ok"


def _redis() -> str:
    try:
        sync_client().ping()
    except REDIS_ERRORS:
        return _("does not answer")
    return "ok"


def _migrations() -> str:
    """Whether all are applied; once they are, that stays so while this process runs."""
    global _migrated  # noqa: PLW0603 - one answer for the whole process
    if _migrated:
        return "ok"
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return _("cannot be read")
    if missing:
        return _("%(count)d are not applied: run manage.py migrate") % {"count": len(missing)}
    _migrated = True
    return "ok"


def _workers() -> str:
    """Whether each node that has servers, and this host's own, was heard of lately. None is no fault of a gateway."""
    try:
        # An instance whose node was deleted has nobody to be heard of.
        rows = Instance.objects.exclude(state__in=NO_PROCESS).filter(node__isnull=False)
        nodes = set(rows.values_list("node__node_id", flat=True).distinct())
        own = fleet.local_node()
        ages = beats.ages(sorted(nodes | ({own.node_id} if own is not None else set())))
    except DatabaseError:
        return _("cannot be read")
    except REDIS_ERRORS:
        return _("not known: Redis does not answer")
    stale = [name for name, age in ages.items() if age.beat is None or age.beat > LOST_AFTER_SECONDS]
    return "ok" if not stale else _("not heard of lately: %(nodes)s") % {"nodes": ", ".join(stale)}
