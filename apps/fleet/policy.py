"""Figures of heartbeats and leases in one place (DESIGN.md 5)."""

from __future__ import annotations

from apps.fleet.domain.silence import LOST_AFTER_SECONDS, ROW_EVERY_SECONDS, SUSPECT_AFTER_SECONDS
from apps.fleet.models import Gpu, GpuLease

__all__ = ["LOST_AFTER_SECONDS", "ROW_EVERY_SECONDS", "SUSPECT_AFTER_SECONDS"]

# The protocol between control plane and workers. A node of another number gets no new work and its servers move away;
# it raises with every change of a task's arguments or of what a column that workers write means.
PROTOCOL_VERSION = 1

BEAT_EVERY_SECONDS = 3.0
# Between two looks at the host's GPUs, folders and versions while its worker runs.
FACTS_EVERY_SECONDS = 60.0
# A clock that is this far from the database's is worth telling a person; it decides nothing.
SKEW_TOLD_SECONDS = 2.0
# A beat stays readable this long, so that its age can be told after the node is lost.
BEAT_KEPT_SECONDS = 3600

# A GPU is leased whole. A CPU slot is leased by quarters, so that one machine can build an engine while up to
# three servers run (two replicas and the one that replaces them in a roll-out).
WHOLE = 100
CPU_SHARES: dict[str, int] = {
    GpuLease.Purpose.BUILD: 25,
    GpuLease.Purpose.SERVE: 25,
    GpuLease.Purpose.TEST: 25,
}


def default_share(gpu: Gpu, purpose: str) -> int:
    """Hundredths of the slot that a holder of this purpose takes."""
    return CPU_SHARES[purpose] if gpu.device == Gpu.Device.CPU else WHOLE
