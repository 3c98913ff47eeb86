"""Runs and studies as rows: who may start them, what spares production, what a worker writes, how a study moves
on."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from apps.accounts.roles import ADMINISTRATOR, OPERATOR, VIEWER
from apps.core import clock
from apps.core.exceptions import InvalidInput, NotAllowed, NotPossibleNow
from apps.loadtests import attempts, comparing, dispatch, services, studies
from apps.loadtests.attempts import Failure
from apps.loadtests.models import LoadRun, Study
from apps.serving import selectors as serving
from apps.serving.models import Deployment, Instance
from apps.specs import services as specs
from tests import objects, people
from tests.loadtests import rows

pytestmark = pytest.mark.django_db
SCENARIO = {"target": "demo", "load": {"concurrency": [8]}}


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the runs whose worker was woken."""
    found: list[int] = []
    monkeypatch.setattr(dispatch, "_publish", lambda row: found.append(row.number))
    return found


def serving_deployment(name: str = "demo", **fields: Any) -> Deployment:
    """A deployment with one server that serves."""
    row = objects.deployment(name, **fields)
    revision = objects.revision(row)
    revision.batching = {"strategy": "inflight", "max_batch_size": 16}
    revision.save()
    row.active_revision = revision
    row.state, row.desired = "ready", "running"
    row.save()
    node = objects.node(f"n-{name}")
    server = objects.instance(revision, f"uid{name}", node=node, gpu=node.gpus.get())
    Instance.objects.filter(pk=server.pk).update(state="serving", http_port=1, grpc_port=2, metrics_port=3)
    return row


def test_a_run_is_queued_sent_and_stopped(sent: list[int], django_capture_on_commit_callbacks: Any) -> None:
    serving_deployment()
    actor = people.person(OPERATOR)
    with django_capture_on_commit_callbacks(execute=True):
        row = services.start_scenario(actor, SCENARIO)
    assert (row.state, row.number, row.requested_by) == ("queued", 1, actor)
    assert sent == [1]
    assert services.stop_run(actor, row).state == "cancelled"
    again = services.repeat_run(actor, row)
    assert again.scenario == row.scenario
    assert again.seed != row.seed
    with pytest.raises(NotPossibleNow, match="can be repeated"):
        services.repeat_run(actor, again)
    with pytest.raises(NotAllowed):
        services.start_scenario(people.person(VIEWER), SCENARIO)


@pytest.mark.parametrize(
    ("scenario", "error", "words"),
    [
        ({"target": "none"}, InvalidInput, "no deployment none"),
        ({"target": "demo", "load": {"concurrency": [65]}}, NotPossibleNow, "65 clients are more than 64"),
        ({"target": "demo", "load": {"mode": "open", "rate": [2000.0]}}, NotPossibleNow, "more than"),
        ({"target": "demo", "prompts": {"dataset": "none.jsonl"}}, InvalidInput, "cannot be read"),
        ({"target": "demo", "wrong": 1}, InvalidInput, "Extra inputs"),
    ],
)
def test_what_cannot_be_run_says_why(scenario: dict[str, Any], error: type[Exception], words: str) -> None:
    serving_deployment()
    with pytest.raises(error, match=words):
        services.start_scenario(people.person(OPERATOR), scenario)


def test_a_run_wakes_what_sleeps_and_is_sent_once_it_serves(
    sent: list[int], django_capture_on_commit_callbacks: Any
) -> None:
    row = serving_deployment(scaling={"min_replicas": 0, "idle_seconds": 60, "wake_seconds": 30})
    Instance.objects.update(state="stopped")
    Deployment.objects.update(state="asleep", scaled_to=0)
    operator = people.person(OPERATOR)
    with django_capture_on_commit_callbacks(execute=True):
        run = services.start_scenario(operator, SCENARIO)
    row.refresh_from_db()
    run.refresh_from_db()
    assert (row.scaled_to, sent) == (1, [])
    assert (run.state, run.reason, run.sentence) == ("queued", "waking", "It waits until demo is awake.")
    assert dispatch.resend() == 0
    with pytest.raises(NotPossibleNow, match="clients are more than"):
        services.start_scenario(operator, {**SCENARIO, "load": {"concurrency": [65]}})
    Instance.objects.update(state="serving")
    assert dispatch.resend() == 1
    run.refresh_from_db()
    assert (sent, run.reason, run.sentence) == ([run.number], "", "")
    # One that does not wake in time: the worker says that nothing serves.
    Instance.objects.update(state="stopped")
    LoadRun.objects.update(dispatched_at=None, state_since=clock.now() - timedelta(seconds=31))
    assert dispatch.resend() == 1


def test_production_is_spared_unless_an_administrator_says_so() -> None:
    row = serving_deployment()
    operator, administrator = people.person(OPERATOR), people.person(ADMINISTRATOR)
    with pytest.raises(NotAllowed):
        services.set_production(operator, row, True)
    services.set_production(administrator, row, True)
    with pytest.raises(NotPossibleNow, match="marked as production"):
        services.start_scenario(operator, SCENARIO)
    with pytest.raises(NotAllowed):
        services.start_scenario(operator, SCENARIO, allow_production=True)
    assert services.start_scenario(administrator, SCENARIO, allow_production=True).allow_production
    # What shares its slot is spared with it.
    beside = serving_deployment("beside", build_profile=row.build_profile, batching=row.batching)
    slot = Instance.objects.get(deployment=row).gpu
    Instance.objects.filter(deployment=beside).update(gpu=slot)
    with pytest.raises(NotPossibleNow, match="same slot as demo"):
        services.start_scenario(operator, {**SCENARIO, "target": "beside"})
    services.set_production(administrator, row, False)
    assert services.start_scenario(operator, {**SCENARIO, "target": "beside"}).state == "queued"


def test_a_worker_that_was_replaced_changes_nothing() -> None:
    serving_deployment()
    row = services.start_scenario(people.person(OPERATOR), SCENARIO)
    first = attempts.claim_run(row.pk, "load", "n1")
    assert first is not None
    assert attempts.claim_run(row.pk, "load", "n1") is None
    lost = Failure("worker_lost", "silent", retry=True)
    assert attempts.fail_run(first.run, first.attempt, lost, "sweep")
    assert LoadRun.objects.get().state == "queued"
    second = attempts.claim_run(row.pk, "load", "n2")
    assert second is not None
    assert (second.attempt, second.run.retries) == (2, 1)
    assert not attempts.record_run(first.run, first.attempt, progress=0.5)
    assert not attempts.finish_run(first.run, first.attempt, "load", summary={})
    assert attempts.finish_run(second.run, second.attempt, "load", summary={"steps": []})
    assert LoadRun.objects.get().state == "succeeded"


def test_a_comparison_takes_turns_and_ends_with_a_verdict(tmp_path: Path) -> None:
    one = serving_deployment()
    serving_deployment("other", build_profile=one.build_profile, batching=one.batching)
    actor = people.person(OPERATOR)
    study = services.start_comparison(actor, ["demo", "other"], SCENARIO, repeats=2)
    order = []
    for number in range(1, 5):
        studies.advance(study)
        row = LoadRun.objects.get(number=number)
        assert LoadRun.objects.filter(state="queued").count() == 1
        order.append((row.target, row.repeat))
        made = rows.synthetic(number, 1.2 if row.arm else 1.0)
        rows.write(tmp_path / str(number), made)
        given = rows.scenario()
        claim = attempts.claim_run(row.pk, "load", "n1")
        assert claim is not None
        summary = rows.summary(made, given, [(8.0, rows.Window(4.0, rows.SECONDS), "measured")])
        attempts.record_run(claim.run, claim.attempt, folder=str(tmp_path / str(number)))
        attempts.finish_run(claim.run, claim.attempt, "load", summary=summary)
    # Each second repeat goes the other way round; both sides of a repeat ask the same.
    assert order == [("demo", 0), ("other", 0), ("other", 1), ("demo", 1)]
    seeds = list(LoadRun.objects.order_by("number").values_list("seed", flat=True))
    assert seeds[0] == seeds[1] != seeds[2] == seeds[3]
    studies.advance(study)
    study.refresh_from_db()
    assert study.state == "succeeded"
    assert study.verdict["arms"][0]["differences"]["output_tokens_per_second"]["better"] is True


def test_a_study_whose_run_fails_says_which_and_is_over() -> None:
    one = serving_deployment()
    serving_deployment("other", build_profile=one.build_profile, batching=one.batching)
    study = services.start_comparison("cli", ["demo", "other"], SCENARIO)
    studies.advance(study)
    claim = attempts.claim_run(LoadRun.objects.get().pk, "load", "n1")
    assert claim is not None
    attempts.fail_run(claim.run, claim.attempt, Failure("x", "The target is gone.", "Deploy it."), "load")
    studies.advance(study)
    study.refresh_from_db()
    assert (study.state, study.reason) == ("failed", "run_failed")
    assert "The target is gone." in study.sentence
    for refused in (["demo"], ["demo", "demo"], ["demo", "none"]):
        with pytest.raises((InvalidInput, Exception)):
            services.start_comparison("cli", refused, SCENARIO)


def test_a_batching_study_makes_servers_and_removes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    row = serving_deployment()
    monkeypatch.setattr(studies, "_room_for", lambda count: 5)
    study = services.start_batching_study(people.person(OPERATOR), row, repeats=1)
    names = [arm["deployment"] for arm in study.arms]
    assert names == [f"study-1-{label}" for label in ("none", "static", "dynamic", "inflight")]
    made = [serving.deployment(name) for name in names]
    assert [each.batching.strategy for each in made] == ["none", "static", "dynamic", "inflight"]
    assert {each.placement["share"] for each in made} == {5}
    services.cancel_study("cli", study)
    assert Study.objects.get().state in ("clearing", "cancelled")
    Deployment.objects.filter(name__startswith="study-").update(state="stopped", desired="stopped")
    studies.advance(study)
    assert Study.objects.get().state == "cancelled"
    assert not Deployment.objects.filter(name__startswith="study-").exists()


def test_a_document_makes_a_load_test_and_comes_back_the_same() -> None:
    text = (
        "apiVersion: inflight/v1\nkind: LoadTest\nmetadata: {name: steady}\n"
        "spec: {target: demo, load: {mode: open, rate: [1.0, 2.0]}, slo: {ttftMs: 500.0}}\n"
    )
    specs.apply("cli", text, "x")
    exported = specs.export("cli", ["LoadTest"])
    assert "warmUpSeconds" in exported
    assert specs.plan("cli", exported, "x").is_empty
    with pytest.raises(InvalidInput, match="speling"):
        specs.plan("cli", text.replace("rate:", "speling:"), "x")


def test_capacity_needs_a_curve(tmp_path: Path) -> None:
    run = rows.run(1, tmp_path)
    with pytest.raises(NotPossibleNow, match="no curve"):
        comparing.capacity_of(run, 30, "ttft_p99_ms", 500)
    run.scenario = {**run.scenario, "load": {**run.scenario["load"], "mode": "open", "rate": [3.0]}}
    found = comparing.capacity_of(run, 30, "ttft_p99_ms", 500)
    assert "For 30 requests/s at TTFT p99 under 500 ms you need 8 instances" in found["sentence"]
    assert found["extrapolated"]
