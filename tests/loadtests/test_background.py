"""Background load of the playground: bounded, kept by whoever looks, ended by itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from apps.core import clock
from apps.core.exceptions import InflightError, NotAllowed
from apps.loadtests import background, dispatch, services
from apps.loadtests.background_models import BackgroundLoad
from apps.loadtests.models import LoadRun
from apps.serving.models import Deployment
from tests import people
from tests.chat.rows import serving_deployment


@pytest.fixture
def deployment(db: None, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Deployment:
    """A deployment that serves 16 at once, and a queue that takes everything."""
    monkeypatch.setattr(dispatch, "_publish", lambda row: None)
    settings.INFLIGHT_BACKGROUND_USERS = 16
    row = serving_deployment("demo")
    assert row.active_revision is not None
    row.active_revision.batching = {"strategy": "inflight", "max_batch_size": 2}
    row.active_revision.save()
    return row


@pytest.fixture
def olga(db: None) -> User:
    """An operator."""
    return people.person("operator", name="olga")


def test_the_knob_starts_changes_and_ends(olga: User, deployment: Deployment) -> None:
    first = services.set_background_load(olga, deployment, 4)
    assert first is not None
    assert first.run.scenario["load"]["concurrency"] == [4]
    assert services.set_background_load(olga, deployment, 4) == first
    second = services.set_background_load(olga, deployment, 8)
    assert second is not None
    first.run.refresh_from_db()
    assert first.run.state == "cancelled"
    assert background.state(deployment)["users"] == 8
    assert services.set_background_load(olga, deployment, 0) is None
    assert background.state(deployment) | {"ends_at": None} == {
        **{"users": 0, "most_users": 16, "run": None, "state": None, "sentence": None, "ends_at": None}
    }


@pytest.mark.parametrize(
    ("users", "seconds", "code", "field"),
    [
        (17, None, "out_of_range", "users"),
        (-1, None, "out_of_range", "users"),
        (2, 0.5, "out_of_range", "seconds"),
        (2, 601, "out_of_range", "seconds"),
        # The limits of every load test: four clients a slot.
        (9, None, "too_many_clients", "load.concurrency"),
    ],
)
def test_it_is_bounded(
    olga: User, deployment: Deployment, users: int, seconds: float | None, code: str, field: str
) -> None:
    kept = services.set_background_load(olga, deployment, 2)
    with pytest.raises(InflightError) as found:
        services.set_background_load(olga, deployment, users, seconds)
    assert (found.value.code, found.value.field) == (code, field)
    # What ran goes on.
    assert background.running(deployment) == kept


def test_viewers_may_not_and_production_is_spared(olga: User, deployment: Deployment) -> None:
    with pytest.raises(NotAllowed):
        services.set_background_load(people.person("viewer"), deployment, 1)
    services.set_production(people.person("administrator"), deployment, True)
    with pytest.raises(InflightError, match="production"):
        services.set_background_load(olga, deployment, 1)


def test_it_ends_when_nobody_keeps_it_and_leaves_no_run(olga: User, deployment: Deployment) -> None:
    load = services.set_background_load(olga, deployment, 2)
    assert load is not None
    assert background.end_expired() == 0
    assert services.keep_background_load(olga, deployment) == load
    BackgroundLoad.objects.update(kept_until=clock.now() - timedelta(seconds=1))
    assert background.end_expired() == 1
    load.run.refresh_from_db()
    assert load.run.state == "cancelled"
    assert services.keep_background_load(olga, deployment) is None
    background.end_expired()
    assert not LoadRun.objects.exists()


def test_keeping_it_does_not_outlast_the_longest_time(olga: User, deployment: Deployment) -> None:
    load = services.set_background_load(olga, deployment, 2, seconds=600)
    assert load is not None
    BackgroundLoad.objects.update(created_at=clock.now() - timedelta(seconds=601))
    assert services.keep_background_load(olga, deployment) is not None
    assert background.end_expired() == 1
