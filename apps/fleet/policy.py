"""Figures of heartbeats and leases in one place (DESIGN.md 5)."""

from __future__ import annotations

from apps.fleet.models import Gpu, GpuLease

# The protocol between control plane and workers; a worker of another number is refused work.
PROTOCOL_VERSION = 1

BEAT_EVERY_SECONDS = 3.0
ROW_EVERY_SECONDS = 15.0
# Three beats missed: suspect. Five: lost.
SUSPECT_AFTER_SECONDS = 9.0
LOST_AFTER_SECONDS = 15.0
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
