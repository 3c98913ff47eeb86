"""Where an instance's engine lies on this host, and its way here from the store where another host built it."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from apps.engines import paths
from apps.engines.sharing import transfer
from apps.serving.models import Instance


def settle(row: Instance) -> None:
    """Have the row's engine name this host's folder, in memory only: the row names that of the host that built it."""
    engine = row.revision.engine
    if engine is None or not _is_others(row) or Path(engine.path).is_relative_to(settings.INFLIGHT_HOME):
        return
    engine.path = str(paths.engine_folder(engine.fingerprint))


def is_here(row: Instance) -> bool:
    """Whether all of the engine lies here, or this host built it and its own sweep looks; `settle` comes before."""
    engine = row.revision.engine
    return engine is None or not _is_others(row) or transfer.is_whole(Path(engine.path), engine)


def fetch(row: Instance) -> Path:
    """Fetch the engine from the store. Blocking and long. Raises StoreFailed."""
    engine = row.revision.engine
    return transfer.pull(engine) if engine is not None else Path()


def _is_others(row: Instance) -> bool:
    """Whether another node built the engine. No query: this is asked in every tick."""
    engine = row.revision.engine
    return engine is not None and bool(engine.path) and engine.node_id not in (None, row.node_id)
