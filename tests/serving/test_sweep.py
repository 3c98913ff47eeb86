"""Waiting deployments move on when their build ends; servers of lost nodes are marked."""

from __future__ import annotations

import pytest
from django.conf import settings

from apps.core.transitions import transition
from apps.engines import states as engine_states
from apps.engines.models import Build
from apps.fleet import states as fleet_states
from apps.serving import selectors, services, states, sweep
from apps.serving.models import Deployment
from tests import objects

pytestmark = pytest.mark.django_db


@pytest.fixture
def waiting() -> Deployment:
    """A deployment that waits for its build."""
    return services.deploy("test", objects.deployment(build_profile=objects.build_profile()))


def finish(build: Build, state: str, **columns: object) -> None:
    transition(build, engine_states.RUNNING, actor="test")
    transition(build, state, actor="test", **columns)  # type: ignore[arg-type]


def test_a_build_that_still_runs_changes_nothing(waiting: Deployment) -> None:
    assert sweep.sweep() == sweep.Swept(moved_on=0, unreachable=0)
    waiting.refresh_from_db()
    assert waiting.state == states.WAITING


def test_a_finished_build_starts_the_deployment(waiting: Deployment) -> None:
    build = Build.objects.get()
    engine = objects.engine(waiting.build_profile)
    finish(build, engine_states.SUCCEEDED, engine=engine)
    assert sweep.sweep().moved_on == 1
    waiting.refresh_from_db()
    assert (waiting.state, waiting.waiting_build, waiting.sentence) == (states.STARTING, None, "")
    assert selectors.target_revision(waiting).engine == engine  # type: ignore[union-attr]
    assert sweep.sweep().moved_on == 0


@pytest.mark.django_db(transaction=True)
def test_it_starts_at_once_when_the_build_commits() -> None:
    waiting = services.deploy("test", objects.deployment(build_profile=objects.build_profile()))
    engine = objects.engine(waiting.build_profile)
    finish(Build.objects.get(), engine_states.SUCCEEDED, engine=engine)
    waiting.refresh_from_db()
    assert waiting.state == states.STARTING


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (engine_states.FAILED, "Build #1 failed: The disk is full."),
        (engine_states.CANCELLED, "Build #1 was cancelled."),
    ],
)
def test_a_build_that_came_to_nothing_fails_the_deployment_with_its_sentence(
    waiting: Deployment, state: str, sentence: str
) -> None:
    finish(Build.objects.get(), state, sentence="The disk is full.", remedy="Free some.")
    sweep.sweep()
    waiting.refresh_from_db()
    assert (waiting.state, waiting.reason, waiting.sentence) == (states.FAILED, f"build_{state}", sentence)
    assert waiting.remedy == "Free some."
    assert waiting.waiting_build is None


def test_what_serves_meanwhile_goes_on_serving_when_the_new_build_fails(waiting: Deployment) -> None:
    revision = objects.revision(waiting)
    transition(waiting, states.STARTING, actor="test")
    transition(waiting, states.READY, actor="test", active_revision=revision)
    finish(Build.objects.get(), engine_states.FAILED, sentence="No.")
    sweep.sweep()
    waiting.refresh_from_db()
    assert (waiting.state, waiting.reason, waiting.waiting_build) == (states.READY, "build_failed", None)


def test_a_deployment_that_was_stopped_meanwhile_stays_stopped(waiting: Deployment) -> None:
    build = Build.objects.get()
    services.stop("test", waiting)
    finish(build, engine_states.SUCCEEDED, engine=objects.engine(waiting.build_profile))
    sweep.sweep()
    waiting.refresh_from_db()
    assert (waiting.state, waiting.desired) == (states.STOPPED, "stopped")


def test_servers_of_a_lost_node_are_unreachable_not_stopped() -> None:
    node = objects.node(settings.INFLIGHT_NODE_ID)
    deployment = objects.deployment(build_profile=objects.build_profile())
    row = objects.instance(objects.revision(deployment), node=node)
    assert sweep.sweep().unreachable == 0
    transition(node, fleet_states.SUSPECT, actor="test")
    transition(node, fleet_states.LOST, actor="test")
    assert sweep.sweep().unreachable == 1
    row.refresh_from_db()
    assert (row.state, row.reason) == (states.UNREACHABLE, "node_lost")
    assert "may still serve" in row.sentence
