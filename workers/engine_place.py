"""Where an instance's engine lies on this host, and its way here from the store where another host built it."""

from __future__ import annotations

from pathlib import Path

from apps.engines.sharing import transfer
from apps.serving.models import Instance

# What a fetch of the largest engine may take over a slow network.
FETCH_SECONDS = 4 * 3600.0


def settle(row: Instance) -> None:
    """Have the row's engine name this host's folder, in memory only: the row names that of the host that built it."""
    engine = row.revision.engine
    if engine is not None and engine.path:
        engine.path = str(transfer.local_folder(engine))


def is_here(row: Instance) -> bool:
    """Whether all of the engine lies here, or there is none to look for; `settle` comes before."""
    engine = row.revision.engine
    if engine is None or transfer.built_here(engine):
        return True
    return transfer.is_whole(Path(engine.path), engine)


def fetch(row: Instance) -> Path:
    """Fetch the engine from the store. Blocking and long. Raises StoreFailed."""
    engine = row.revision.engine
    return transfer.pull(engine) if engine is not None else Path()
