"""A question to a deployment that sleeps wakes it, and waits for a server."""

from __future__ import annotations

import asyncio

import pytest

from apps.chat import waking
from apps.serving import autoscale, states
from apps.serving.models import Deployment
from tests import objects


@pytest.mark.django_db
def test_a_question_wakes_what_sleeps_once_and_nothing_else() -> None:
    row = objects.deployment(scaling={"min_replicas": 0, "idle_seconds": 60})
    revision = objects.revision(row)
    Deployment.objects.update(active_revision=revision, desired="running", state=states.ASLEEP, scaled_to=0)
    assert waking.wakes(row)
    row.refresh_from_db()
    assert row.scaled_to == 1
    # On its way it is asked again, and woken no second time.
    Deployment.objects.update(state=states.STARTING)
    assert waking.wakes(row)
    assert [each.actor for each in autoscale.decisions(row)] == ["chat"]
    for columns in ({"state": states.FAILED}, {"state": states.READY, "scaling": {}}):
        Deployment.objects.update(**columns)
        assert not waking.wakes(row)


def test_it_waits_as_long_as_the_deployment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [9.0, 9.0, None]
    seen: list[int] = []

    def wait(turn_id: int) -> float | None:
        seen.append(turn_id)
        return answers[min(len(seen), len(answers)) - 1]

    monkeypatch.setattr(waking, "_wait", wait)
    monkeypatch.setattr(waking, "LOOK_SECONDS", 0.0)
    asyncio.run(waking.until_serves(7))
    assert seen == [7, 7, 7]
    answers[:] = [0.0]
    asyncio.run(waking.until_serves(7))
    assert len(seen) == 4
