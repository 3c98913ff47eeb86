"""What people do with batching profiles and deployments: roles, refusals, revisions, states, audit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from apps.accounts.roles import ADMINISTRATOR, CODE_AUTHOR, OPERATOR, VIEWER
from apps.core.exceptions import InflightError, InvalidInput, NotAllowed, NotFound, NotPossibleNow
from apps.core.models import AuditEntry
from apps.core.transitions import transition
from apps.engines import states as engine_states
from apps.engines.models import Build, BuildProfile, Engine
from apps.serving import selectors, services, states
from apps.serving.models import BatchingProfile, Deployment, Instance, Revision
from tests import objects
from tests.people import person

pytestmark = pytest.mark.django_db


@pytest.fixture
def profile() -> BuildProfile:
    """A build profile whose engine is ready."""
    made = objects.build_profile()
    objects.engine(made)
    return made


@pytest.fixture
def demo(profile: BuildProfile) -> Deployment:
    """A stopped deployment of it."""
    return objects.deployment(build_profile=profile)


def serving(deployment: Deployment) -> Instance:
    """Make the target revision active with one serving instance, as the control worker would."""
    revision = selectors.target_revision(deployment)
    assert revision is not None
    transition(revision, states.ACTIVE, actor="test")
    transition(deployment, states.READY, actor="test", active_revision=revision)
    return objects.instance(revision, uid=f"i-{revision.number}")


def refused(call: Callable[[], object]) -> InflightError:
    with pytest.raises(InflightError) as caught:
        call()
    return caught.value


# ---------------------------------------------------------------------- batching profiles


def test_a_profile_is_made_and_changed_with_an_audit_row() -> None:
    operator = person(OPERATOR)
    made = services.save_batching_profile(operator, {"name": "wide", "max_batch_size": 32})
    assert (made.strategy, made.max_batch_size, made.max_seq_len) == ("inflight", 32, 1024)
    changed = services.save_batching_profile(operator, {"max_seq_len": 2048}, made)
    assert (changed.max_batch_size, changed.max_seq_len) == (32, 2048)
    verbs = (
        AuditEntry.objects.filter(object_type="batchingprofile")
        .order_by("id")
        .values_list("verb", "actor_label")
    )
    assert list(verbs) == [("batchingprofile.created", "operator"), ("batchingprofile.changed", "operator")]
    last = AuditEntry.objects.latest("id")
    assert last.detail == {"changes": {"max_seq_len": [1024, 2048]}}
    services.save_batching_profile(operator, {"max_seq_len": 2048}, changed)
    assert AuditEntry.objects.latest("id") == last


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"max_batch_size": 0}, "max_batch_size"),
        ({"max_batch_size": 257}, "max_batch_size"),
        ({"max_seq_len": 1}, "max_seq_len"),
        ({"strategy": "batched"}, "strategy"),
        ({"preferred_batch_sizes": [99]}, "preferred_batch_sizes"),
        ({"preferred_batch_sizes": "4"}, "preferred_batch_sizes"),
        ({"queue_timeout_microseconds": -1}, "queue_timeout_microseconds"),
        ({"name": "Not A Name"}, "name"),
        ({"threads": "many"}, "threads"),
        ({"batch": 3}, "batch"),
    ],
)
def test_a_wrong_value_is_refused_by_field_and_nothing_changes(data: dict[str, Any], field: str) -> None:
    profile = objects.batching("b")
    error = refused(lambda: services.save_batching_profile("test", data, profile))
    assert error.field == field
    assert error.remedy
    fresh = BatchingProfile.objects.get(pk=profile.pk)
    assert (fresh.name, fresh.max_batch_size, fresh.strategy) == ("b", 16, "inflight")
    # The caller's row was not touched either.
    assert profile.max_batch_size == 16


def test_every_wrong_value_is_listed() -> None:
    error = refused(lambda: services.save_batching_profile("test", {"name": "", "max_batch_size": 0}))
    assert isinstance(error, InvalidInput)
    assert {finding.where for finding in error.findings} == {"name", "max_batch_size"}


def test_a_profile_in_use_is_not_deleted(demo: Deployment) -> None:
    error = refused(lambda: services.delete_batching_profile("test", demo.batching))
    assert error.code == "batching_profile_in_use"
    assert "demo" in error.sentence
    spare = objects.batching("spare")
    services.delete_batching_profile("test", spare)
    assert not BatchingProfile.objects.filter(name="spare").exists()


# ---------------------------------------------------------------------- roles


@pytest.mark.parametrize("role", [VIEWER, CODE_AUTHOR, ""])
def test_nobody_below_operator_changes_anything(demo: Deployment, role: str) -> None:
    user = person(*([role] if role else []))
    revision = objects.revision(demo)
    instance = objects.instance(revision)
    for call in (
        lambda: services.save_batching_profile(user, {"name": "x"}),
        lambda: services.delete_batching_profile(user, demo.batching),
        lambda: services.save_deployment(user, {"replicas": 2}, demo),
        lambda: services.deploy(user, demo),
        lambda: services.stop(user, demo),
        lambda: services.roll_back(user, demo, revision),
        lambda: services.restart_instance(user, instance),
        lambda: services.delete_deployment(user, demo),
    ):
        assert isinstance(refused(call), NotAllowed)


@pytest.mark.parametrize("role", [OPERATOR, ADMINISTRATOR])
def test_operators_deploy(demo: Deployment, role: str) -> None:
    user: User = person(role)
    services.deploy(user, demo)
    assert selectors.target_revision(demo).created_by == user  # type: ignore[union-attr]
    entry = AuditEntry.objects.get(verb="deployment.deployed")
    assert (entry.actor, entry.from_state, entry.to_state) == (user, states.STOPPED, states.STARTING)


# ---------------------------------------------------------------------- saving a deployment


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"name": "warmup"}, "name"),
        ({"name": "-x"}, "name"),
        ({"replicas": 0}, "replicas"),
        ({"build_profile": "nothing"}, "build_profile"),
        ({"build_profile": None}, "build_profile"),
        ({"batching": "nothing"}, "batching"),
        ({"placement": {"device": "tpu"}}, "placement.device"),
        ({"placement": {"share": 0}}, "placement.share"),
        ({"placement": {"share": True}}, "placement.share"),
        ({"placement": {"gpus": 0}}, "placement.gpus"),
        ({"placement": "gpu"}, "placement"),
        ({"state": "ready"}, "state"),
    ],
)
def test_a_wrong_deployment_is_refused_by_field(
    profile: BuildProfile, data: dict[str, Any], field: str
) -> None:
    batching = objects.batching()
    good = {"name": "new", "build_profile": profile, "batching": batching}
    error = refused(lambda: services.save_deployment("test", {**good, **data}))
    assert error.field == field
    assert error.remedy
    assert not Deployment.objects.exists()


def test_profiles_may_be_named(profile: BuildProfile) -> None:
    objects.batching("b")
    made = services.save_deployment("test", {"name": "new", "build_profile": "f16", "batching": "b"})
    assert (made.build_profile, made.batching.name, made.placement) == (profile, "b", {"device": "any"})
    assert (made.state, made.desired) == (states.STOPPED, "stopped")


def test_a_public_name_stays(demo: Deployment) -> None:
    error = refused(lambda: services.save_deployment("test", {"name": "other"}, demo))
    assert (error.field, error.code) == ("name", "name_fixed")
    same = services.save_deployment("test", {"name": "demo", "replicas": 2}, demo)
    assert same.replicas == 2
    assert same.version == demo.version + 1


# ---------------------------------------------------------------------- deploy


def test_deploying_makes_one_revision_however_often_it_is_pressed(demo: Deployment) -> None:
    for _press in range(3):
        services.deploy("test", demo)
    revision = demo.revisions.get()
    assert (revision.number, revision.state, revision.replicas) == (1, states.PENDING, 1)
    assert revision.batching["max_batch_size"] == 16
    assert (demo.state, demo.desired) == (states.STARTING, "running")


def test_a_changed_configuration_is_a_new_revision_and_the_old_snapshot_stays(demo: Deployment) -> None:
    services.deploy("test", demo)
    serving(demo)
    services.save_batching_profile("test", {"max_batch_size": 4}, demo.batching)
    assert demo.revisions.count() == 1
    services.deploy("test", demo)
    first, second = demo.revisions.order_by("number")
    assert (first.state, first.batching["max_batch_size"]) == (states.ACTIVE, 16)
    assert (second.state, second.batching["max_batch_size"]) == (states.PENDING, 4)
    assert demo.state == states.READY
    services.save_batching_profile("test", {"max_batch_size": 8}, demo.batching)
    demo.refresh_from_db()
    services.deploy("test", demo)
    assert [row.state for row in demo.revisions.order_by("number")] == ["active", "superseded", "pending"]


def test_going_back_to_a_configuration_that_runs_gives_up_the_pending_one(demo: Deployment) -> None:
    services.deploy("test", demo)
    serving(demo)
    services.save_batching_profile("test", {"max_batch_size": 4}, demo.batching)
    services.deploy("test", demo)
    services.save_batching_profile("test", {"max_batch_size": 16}, demo.batching)
    services.deploy("test", demo)
    assert [row.state for row in demo.revisions.order_by("number")] == ["active", "superseded"]


def test_a_failed_revision_is_tried_again(demo: Deployment) -> None:
    services.deploy("test", demo)
    revision = demo.revisions.get()
    transition(revision, states.FAILED, actor="test")
    transition(demo, states.FAILED, actor="test", reason="load_failed", sentence="No.")
    services.deploy("test", demo)
    revision.refresh_from_db()
    assert (demo.state, demo.reason, revision.state) == (states.STARTING, "", states.PENDING)


def test_without_an_engine_a_build_is_started_and_waited_for() -> None:
    demo = objects.deployment(build_profile=objects.build_profile())
    services.deploy("test", demo)
    build = Build.objects.get()
    assert (demo.state, demo.desired, demo.waiting_build) == (states.WAITING, "running", build)
    assert f"#{build.number}" in demo.sentence
    services.deploy("test", demo)
    assert Build.objects.count() == 1
    assert not Revision.objects.exists()


def test_while_it_waits_for_a_new_engine_the_old_one_goes_on_serving(demo: Deployment) -> None:
    services.deploy("test", demo)
    instance = serving(demo)
    other = objects.build_profile("q8", quantization="Q8_0")
    services.save_deployment("test", {"build_profile": other}, demo)
    services.deploy("test", demo)
    assert (demo.state, demo.reason) == (states.READY, "engine_not_built")
    assert demo.waiting_build is not None
    assert list(selectors.serving_instances(demo)) == [instance]


def test_a_checkpoint_that_cannot_be_built_refuses_the_deployment() -> None:
    profile = objects.build_profile()
    checkpoint = profile.checkpoint
    transition(checkpoint, "missing", actor="test", sentence="The file is gone.")
    demo = objects.deployment(build_profile=profile)
    error = refused(lambda: services.deploy("test", demo))
    assert isinstance(error, NotPossibleNow)
    demo.refresh_from_db()
    assert (demo.state, demo.desired) == (states.STOPPED, "stopped")


# ---------------------------------------------------------------------- stop, roll back, restart, delete


def test_stopping_drains_what_serves_and_ends_what_waits(demo: Deployment) -> None:
    services.deploy("test", demo)
    serving(demo)
    services.stop("test", demo)
    assert (demo.state, demo.desired) == (states.STOPPING, "stopped")
    services.stop("test", demo)
    assert demo.state == states.STOPPING
    services.deploy("test", demo)
    assert (demo.state, demo.desired) == (states.STARTING, "running")


def test_stopping_a_waiting_deployment_stops_at_once_and_leaves_the_build() -> None:
    demo = objects.deployment(build_profile=objects.build_profile())
    services.deploy("test", demo)
    services.stop("test", demo)
    assert (demo.state, demo.waiting_build) == (states.STOPPED, None)
    assert Build.objects.get().state == engine_states.QUEUED


def test_rolling_back_makes_the_earlier_revision_pending(demo: Deployment) -> None:
    services.deploy("test", demo)
    serving(demo)
    first = demo.revisions.get()
    services.save_batching_profile("test", {"max_batch_size": 4}, demo.batching)
    services.deploy("test", demo)
    second = demo.revisions.get(number=2)
    transition(first, states.SUPERSEDED, actor="test")
    transition(second, states.ACTIVE, actor="test")
    services.roll_back("test", demo, first)
    first.refresh_from_db()
    assert first.state == states.PENDING
    assert selectors.target_revision(demo) == first
    assert demo.batching.max_batch_size == 4
    assert AuditEntry.objects.filter(verb="revision.rolled_back", object_id=str(first.pk)).exists()


def test_rolling_back_is_refused_where_it_means_nothing(demo: Deployment) -> None:
    services.deploy("test", demo)
    revision = demo.revisions.get()
    assert refused(lambda: services.roll_back("test", demo, revision)).code == "revision_is_current"
    other = objects.deployment("other")
    error = refused(lambda: services.roll_back("test", other, revision))
    assert (error.code, error.field) == ("revision_of_another", "revision")
    transition(revision, states.SUPERSEDED, actor="test")
    transition(Engine.objects.get(), engine_states.MISSING, actor="test")
    revision = Revision.objects.get(pk=revision.pk)
    assert refused(lambda: services.roll_back("test", demo, revision)).code == "engine_not_ready"


def test_restarting_asks_and_refuses(demo: Deployment) -> None:
    services.deploy("test", demo)
    instance = serving(demo)
    services.restart_instance("test", instance)
    assert instance.stop_requested_at is not None
    assert list(selectors.serving_instances(demo)) == []
    transition(instance, states.DRAINING, actor="test")
    assert refused(lambda: services.restart_instance("test", instance)).code == "instance_not_running"
    services.stop("test", demo)
    assert refused(lambda: services.restart_instance("test", instance)).code == "deployment_stopped"


def test_restarting_a_failed_server_tries_the_deployment_again(demo: Deployment) -> None:
    services.deploy("test", demo)
    revision = demo.revisions.get()
    instance = objects.instance(revision, state=states.FAILED)
    transition(revision, states.FAILED, actor="test")
    transition(demo, states.FAILED, actor="test")
    services.restart_instance("test", instance)
    demo.refresh_from_db()
    revision.refresh_from_db()
    assert (demo.state, revision.state) == (states.STARTING, states.PENDING)


def test_only_a_stopped_deployment_is_deleted_with_all_its_history(demo: Deployment) -> None:
    services.deploy("test", demo)
    instance = serving(demo)
    assert refused(lambda: services.delete_deployment("test", demo)).code == "deployment_running"
    services.stop("test", demo)
    assert refused(lambda: services.delete_deployment("test", demo)).code == "deployment_running"
    transition(instance, states.DRAINING, actor="test")
    transition(instance, states.GONE, actor="test")
    transition(demo, states.STOPPED, actor="test")
    services.delete_deployment("test", demo)
    assert not Deployment.objects.exists()
    assert not Revision.objects.exists()
    assert not Instance.objects.exists()
    assert Engine.objects.exists()
    assert AuditEntry.objects.filter(verb="deployment.deleted", object_label="demo").exists()


def test_unknown_names_are_not_found() -> None:
    assert isinstance(refused(lambda: selectors.deployment("nothing")), NotFound)
    assert isinstance(refused(lambda: selectors.batching_profile("nothing")), NotFound)


def test_a_kv_cache_larger_than_the_memory_is_refused(demo: Deployment) -> None:
    node = objects.node("n-test")
    node.versions = {"memory_bytes": str(2**30)}
    node.save()
    checkpoint = demo.build_profile.checkpoint
    checkpoint.facts = {**checkpoint.facts, "kv_bytes_per_token": 131_072}
    checkpoint.save()
    error = refused(lambda: services.deploy("test", demo))
    assert (error.code, error.field) == ("kv_cache_exceeds_memory", "batching")
    assert "2.0 GiB" in error.sentence
    services.save_batching_profile("test", {"max_batch_size": 2}, demo.batching)
    services.deploy("test", demo)
    assert demo.state == states.STARTING
