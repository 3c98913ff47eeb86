"""What a load took of memory, read from the server's log and from /proc, for the planner to learn from."""

from __future__ import annotations

import logging
from pathlib import Path

from apps.core.exceptions import InflightError
from apps.engines import learning, retention
from apps.serving.domain import batching
from apps.serving.models import Instance
from workers import failures
from workers.instance_spec import server_identity, server_spec
from workers.runtimes import processes

log = logging.getLogger(__name__)
PROC = Path("/proc")


def measure(row: Instance) -> None:
    """Record the load of an instance that has just answered its probe. Never fails a load."""
    if row.revision.engine is None:
        return
    retention.mark_used(row.revision.engine)
    try:
        facts = batching.facts(row.revision.batching)
        identity = server_identity(row)
        load = learning.Load(
            engine=row.revision.engine,
            instance=row.uid,
            attempt=row.attempt,
            slots=facts.slots,
            context_per_slot=facts.context_per_slot,
            log=failures.log_since_load(server_spec(row)),
            process_bytes=resident_bytes(processes.group_members(identity)) if identity else None,
            gpu_kind=row.gpu.product if row.gpu else "",
        )
    except (InflightError, OSError):
        log.warning("The load of instance %s could not be measured.", row.uid, exc_info=True)
        return
    learning.record_load(load)


def resident_bytes(pids: list[int], proc: Path = PROC) -> int | None:
    """Resident memory of these processes in bytes; None where /proc tells of none of them.

    VmRSS and not Pss: the kernel walks every page of a process for the latter.
    """
    found = [size for pid in pids if (size := _resident(proc / str(pid) / "status")) is not None]
    return sum(found) if found else None


def _resident(status: Path) -> int | None:
    try:
        lines = status.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    line = next((line for line in lines if line.startswith("VmRSS:")), None)
    return int(line.split()[1]) * 1024 if line is not None else None
