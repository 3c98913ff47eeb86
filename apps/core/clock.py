"""The two clocks. Rows carry wall time of the control plane; durations and deadlines use the monotonic clock."""

from __future__ import annotations

import time
from datetime import datetime

from django.utils import timezone


def now() -> datetime:
    """Aware UTC time, for rows."""
    return timezone.now()


def monotonic() -> float:
    """Seconds that never go back, for durations inside one process."""
    return time.monotonic()
