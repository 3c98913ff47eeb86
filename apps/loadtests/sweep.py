"""What keeps runs and studies true without anybody pressing anything. Reaping is the worker's
(workers/load_sweep)."""

from __future__ import annotations

from dataclasses import dataclass

from apps.loadtests import dispatch, studies, tuning_steps


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep did, in counts."""

    sent: int
    studies: int
    tunings: int


def sweep() -> Swept:
    """Send queued runs again, move studies and tunings on."""
    return Swept(dispatch.resend(), studies.advance_all(), tuning_steps.advance_all())
