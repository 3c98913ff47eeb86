"""What builds of the same shape took, and that an ETA out of it comes true within a quarter."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from apps.core import clock
from apps.engines import history, states
from apps.engines.models import Build, BuildProfile
from apps.engines.policy import LEASE_SECONDS, PROGRESS_EVERY_SECONDS
from apps.fleet.models import Gpu
from controlplane.settings.queues import CELERY_BEAT_SCHEDULE
from tests import objects

pytestmark = pytest.mark.django_db
TIMES = {"quantize": 3600.0, "build": 1800.0, "publish": 120.0}


def past(profile: BuildProfile, slot: Gpu, number: int, scale: float = 1.0, **columns: Any) -> Build:
    """A successful build whose stages took `scale` of the usual time."""
    at, rows = clock.now(), []
    for name, seconds in TIMES.items():
        end = at + timedelta(seconds=seconds * scale)
        rows.append(
            {"name": name, "state": "done", "started_at": at.isoformat(), "finished_at": end.isoformat()}
        )
        at = end
    known: dict[str, Any] = {"state": states.SUCCEEDED, "stages": rows, "gpu": slot, "node": slot.node}
    return objects.build(profile, number=number, **known | columns)


def test_three_alike_are_enough_and_two_are_not(profile: BuildProfile, slot: Gpu) -> None:
    now = objects.build(profile, number=9, gpu=slot)
    past(profile, slot, 1, 0.9)
    past(profile, slot, 2, 1.1)
    assert history.stage_seconds(now) == {}
    past(profile, slot, 3, 1.0)
    assert history.stage_seconds(now) == pytest.approx(TIMES, rel=1e-6)


@pytest.mark.parametrize(
    "columns",
    [
        {"state": states.FAILED},
        {"reused": True},
        {"gpu": None},
        {
            "stages": [
                {"name": "quantize", "state": "done", "kept": True, "started_at": "x", "finished_at": "y"}
            ]
        },
        {"stages": [{"name": "quantize", "state": "done"}]},
    ],
)
def test_what_is_not_alike_counts_for_nothing(
    profile: BuildProfile, slot: Gpu, columns: dict[str, Any]
) -> None:
    now = objects.build(profile, number=9, gpu=slot)
    for number in range(1, 4):
        past(profile, slot, number, **columns)
    assert history.stage_seconds(now) == {}


def test_another_shape_of_the_same_builder_counts_for_nothing(profile: BuildProfile, slot: Gpu) -> None:
    for number in range(1, 4):
        row = past(profile, slot, number)
        row.spec = {**row.spec, "request": {"parallel": {"tp": 4}}}
        row.save()
    assert history.stage_seconds(objects.build(profile, number=9, gpu=slot)) == {}
    row = Build.objects.get(number=9)
    row.spec = {**row.spec, "request": {"parallel": {"tp": 4}}}
    assert set(history.stage_seconds(row)) == set(TIMES)


def test_a_build_goes_on_within_a_minute_of_its_workers_death() -> None:
    """The lease runs out, a sweep sees it, sends the build, and a progress write later somebody works on it."""
    sweep_every = CELERY_BEAT_SCHEDULE["sweep"]["schedule"].total_seconds()
    assert LEASE_SECONDS + 2 * sweep_every + PROGRESS_EVERY_SECONDS < 60
