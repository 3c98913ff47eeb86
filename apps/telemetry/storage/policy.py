"""Which steps are kept, and for how long. Settings of the same names change the retention."""

from __future__ import annotations

from django.conf import settings

# Steps in seconds, finest first; each but the first is made of the one before it.
STEPS: tuple[int, ...] = (10, 60, 600, 3600, 28_800)
FINEST = STEPS[0]
NAMES: dict[int, str] = {1: "raw", 10: "10s", 60: "1m", 600: "10m", 3600: "1h", 28_800: "8h"}

_HOUR, _DAY = 3600, 86_400


def retention(step: int) -> int:
    """Seconds for which steps of this length are kept."""
    defaults = {10: 3 * _HOUR, 60: 2 * _DAY, 600: 14 * _DAY, 3600: 90 * _DAY, 28_800: 800 * _DAY}
    setting = getattr(settings, "INFLIGHT_RETENTION_SECONDS", {})
    return int(setting.get(step, defaults[step]))
