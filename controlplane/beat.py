"""The application of beat, which knows tasks by name only and so needs no apps, and what it counts by.

That is the time since boot, which nobody sets; it remembers nothing across restarts.

By the wall clock, as Celery counts, one that is set back by three hours holds every sweep up for three hours; what
is kept on disk would do so after a restart, too.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from celery import Celery, beat
from celery.schedules import maybe_schedule

# Without Django's fixup: that would load every app, which takes longer than all else that beat does at its start.
app = Celery("inflight-beat", set_as_current=False, fixups=[])
app.config_from_object("django.conf:settings", namespace="CELERY")


def since_boot() -> datetime:
    """A time that only grows, by a second each second; its beginning means nothing."""
    return datetime.fromtimestamp(time.clock_gettime(time.CLOCK_BOOTTIME), UTC)


class Entry(beat.ScheduleEntry):
    """One periodic task."""

    def __init__(self, **given: Any) -> None:
        counted: Any = maybe_schedule(given["schedule"], app=given.get("app"))
        counted.nowfun = since_boot
        super().__init__(**{**given, "schedule": counted})


class Scheduler(beat.Scheduler):
    """Celery's own, over such entries."""

    Entry = Entry
