"""Changing a batching profile: the plan, its token, versions, going back, and what it says about deployments."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from apps.accounts.roles import OPERATOR, VIEWER
from apps.core.exceptions import InvalidInput, NotAllowed, NotFound, NotPossibleNow
from apps.core.transitions import transition
from apps.engines.models import BuildProfile
from apps.serving import (
    changes,
    memory_verdict,
    preview,
    selectors,
    serialize,
    services,
    states,
    trtllm_files,
)
from apps.serving.models import BatchingProfile, Deployment
from tests import objects
from tests.people import person

pytestmark = pytest.mark.django_db


def running(name: str, profile: BatchingProfile, build: BuildProfile) -> Deployment:
    """A deployment that serves with one server, as the control worker would have it."""
    row = objects.deployment(name, batching=profile, build_profile=build)
    services.deploy("cli", row)
    revision = selectors.target_revision(row)
    assert revision is not None
    transition(revision, states.ACTIVE, actor="test")
    transition(row, states.READY, actor="test", active_revision=revision)
    objects.instance(revision, uid=f"i-{name}")
    return row


def test_a_plan_names_fields_files_and_what_restarts() -> None:
    build = objects.build_profile()
    objects.engine(build)
    profile = objects.batching(max_batch_size=4)
    running("busy", profile, build)
    objects.deployment("quiet", batching=profile, build_profile=build)
    plan = changes.plan_batching_profile(person(OPERATOR), {"max_batch_size": 8}, profile)
    assert plan.changes == {"max_batch_size": [4, 8]}
    busy, quiet = plan.affected
    assert (busy.restarts, busy.servers, quiet.restarts) == (True, 1, False)
    assert "until Deploy is pressed; then it is restarted" in busy.sentence
    assert '-    string_value: "4"' in busy.diff
    assert '+    string_value: "8"' in busy.diff
    profile.refresh_from_db()
    assert profile.max_batch_size == 4
    # What runs goes on with what it was deployed with.
    services.save_batching_profile("cli", {"max_batch_size": 8}, profile, plan.token)
    revision = selectors.target_revision(Deployment.objects.get(name="busy"))
    assert revision is not None
    assert revision.batching["max_batch_size"] == 4


def test_a_change_without_effect_on_the_files_says_so() -> None:
    build = objects.build_profile()
    objects.engine(build)
    profile = objects.batching()
    running("busy", profile, build)
    plan = changes.plan_batching_profile("cli", {"queue_timeout_microseconds": 5}, profile)
    assert "Its files would stay as they are." in plan.affected[0].sentence
    assert plan.idle == {
        "queue_timeout_microseconds": "Requests join the running batch at once; Triton forms none."
    }


def test_a_profile_that_nobody_uses_restarts_nothing() -> None:
    plan = changes.plan_batching_profile("cli", {"threads": 2}, objects.batching())
    assert plan.sentences == ["No deployment uses it: nothing restarts or reloads."]
    assert plan.as_dict()["changes"] == [{"field": "threads", "before": 0, "after": 2}]


def test_a_token_confirms_one_change_only() -> None:
    profile = objects.batching()
    token = changes.plan_batching_profile("cli", {"threads": 2}, profile).token
    with pytest.raises(NotPossibleNow, match="not the change that was confirmed"):
        services.save_batching_profile("cli", {"threads": 3}, profile, token)
    services.save_batching_profile("cli", {"threads": 2}, profile, token)
    # Nothing is left to do, so nothing has to be confirmed.
    services.save_batching_profile("cli", {"threads": 2}, profile, token)


def test_versions_hold_who_and_what_and_lead_back() -> None:
    ann = person(OPERATOR, name="ann")
    profile = services.save_batching_profile(ann, {"name": "p", "threads": 1})
    services.save_batching_profile("cli", {"threads": 2, "trtllm": {"max_beam_width": 2}}, profile)
    profile.refresh_from_db()
    services.roll_back_batching_profile(ann, profile, 1)
    profile.refresh_from_db()
    assert (profile.threads, profile.trtllm) == (1, {})
    told = [(row.number, row.actor, sorted(row.changes)) for row in profile.versions.all()]
    assert told == [(3, "ann", ["threads", "trtllm"]), (2, "cli", ["threads", "trtllm"]), (1, "ann", [])]
    with pytest.raises(NotFound):
        services.roll_back_batching_profile(ann, profile, 9)
    with pytest.raises(NotAllowed):
        services.roll_back_batching_profile(person(VIEWER), profile, 1)


def test_a_profile_from_before_versions_begins_with_what_it_said() -> None:
    profile = objects.batching(threads=4)
    profile.versions.all().delete()
    services.save_batching_profile("cli", {"threads": 5}, profile)
    assert [(row.number, row.values["threads"]) for row in profile.versions.all()] == [(2, 5), (1, 4)]


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"trtllm": {"max_beam_width": 0}}, "trtllm"),
        ({"trtllm": {"nothing": 1}}, "trtllm"),
        ({"priority_classes": [{"name": "vip"}]}, "priority_classes"),
        ({"priority_classes": "high"}, "priority_classes"),
        ({"default_priority_class": "vip"}, "default_priority_class"),
        ({"preserve_ordering": True, "priority_classes": ["high"]}, "preserve_ordering"),
        ({"engine": "vllm"}, "engine"),
        ({"timeout_action": "wait"}, "timeout_action"),
    ],
)
def test_what_is_refused_names_its_field(data: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        services.save_batching_profile("cli", {"name": "p", **data})
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("kind", "file"), [("trtllm", "tensorrt_llm/config.pbtxt"), ("llmapi", "tensorrt_llm/1/model.yaml")]
)
def test_a_profile_renders_the_files_of_its_engine(kind: str, file: str) -> None:
    profile = objects.batching(engine=kind, max_batch_size=32, trtllm={"enable_chunked_context": True})
    files = preview.rendered_files(profile)
    assert file in files
    assert "<engine>" in files[file]
    told = serialize.batching_profile_dict(profile)
    assert (told["engine"], told["version"], told["idle"]) == (kind, 1, {})


def test_the_recipe_decides_what_serves() -> None:
    rows = [
        (None, "llamacpp"),
        (BuildProfile(builder="llamacpp"), "llamacpp"),
        (BuildProfile(builder="trtllm", recipe="engine"), "trtllm"),
        (BuildProfile(builder="trtllm", recipe="auto"), "trtllm"),
        (BuildProfile(builder="trtllm", recipe="checkpoint"), "llmapi"),
    ]
    assert [trtllm_files.engine_kind(row) for row, _kind in rows] == [kind for _row, kind in rows]


def test_the_command_lists_versions_and_goes_back() -> None:
    profile = objects.batching(name="p")
    services.save_batching_profile("cli", {"threads": 2}, profile)
    out = StringIO()
    call_command("batching_profile", "rollback", "p", "1", stdout=out)
    assert "p says again what version 1 said." in out.getvalue()
    call_command("batching_profile", "versions", "p", stdout=out)
    assert "threads" in out.getvalue()
    profile.refresh_from_db()
    assert profile.threads == 0


def test_a_deployment_keeps_paths_gpus_and_ranks() -> None:
    row = objects.deployment(
        placement={"device": "gpu", "trtllm": {"gpu_device_ids": "0", "num_nodes": None}}
    )
    assert row.placement == {"device": "gpu", "trtllm": {"gpu_device_ids": "0"}}
    snapshot = {**serialize.deployment_dict(row)["batching_profile"], "trtllm": {}}
    what = trtllm_files.Served("trtllm", "/engines/x")
    files = trtllm_files.rendered(snapshot, what, None, 4, row.placement)
    assert 'string_value: "0"' in files["tensorrt_llm/config.pbtxt"]
    for wrong in ({"gpu_device_ids": "x"}, {"tokenizer": "/x"}, ["0"]):
        with pytest.raises(InvalidInput) as refused:
            services.save_deployment("cli", {"placement": {"trtllm": wrong}}, row)
        assert refused.value.field.startswith("placement.trtllm")


def test_the_memory_plan_judges_a_profile_on_a_slot_of_the_fleet() -> None:
    profile = objects.batching(max_batch_size=4)
    objects.checkpoint()
    assert [found.fits for found in memory_verdict.verdicts(profile)] == [None]
    node = objects.node()
    node.versions = {"memory_bytes": 2**33}
    node.save()
    [found] = memory_verdict.verdicts(profile)
    assert (found.checkpoint, found.fits) == ("tiny", True), found.sentence
    assert "of 8.0 GiB; the cache holds" in found.sentence
    node.versions = {"memory_bytes": 2**20}
    node.save()
    [full] = memory_verdict.verdicts(profile)
    assert full.fits is False


def test_limits_are_those_of_the_build() -> None:
    build = BuildProfile(builder="trtllm", options={"build": {"max_num_tokens": 4096, "max_seq_len": 32768}})
    found = trtllm_files.limits(build)
    assert (found.max_num_tokens, found.max_seq_len, found.max_batch_size) == (4096, 32768, None)
    assert trtllm_files.limits(None).max_num_tokens is None
