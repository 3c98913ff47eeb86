"""Tunings as rows: who may start one, how it moves on whoever dies, what applying does."""

from __future__ import annotations

from typing import Any

import pytest

from apps.accounts.roles import OPERATOR, VIEWER
from apps.core import clock
from apps.core.exceptions import InvalidInput, NotAllowed, NotFound, NotPossibleNow
from apps.core.models import AuditEntry
from apps.fleet.models import Gpu, GpuLease
from apps.loadtests import dispatch, services, tuning_figures, tuning_servers, tuning_space, tuning_steps
from apps.loadtests.models import LoadRun
from apps.loadtests.tuning_models import Trial, Tuning
from apps.loadtests.tuning_serialize import tuning_dict
from apps.serving.models import BatchingProfile, Deployment, Instance
from apps.telemetry import history
from tests import objects, people
from tests.loadtests import tuning_rows
from tests.loadtests.test_services import serving_deployment
from workers import tune_run

pytestmark = pytest.mark.django_db
REQUEST: dict[str, Any] = {
    "deployment": "demo",
    "parameters": {"strategy": ["inflight", "dynamic"], "max_batch_size": [4, 8, 16]},
    "trials": 3,
}


@pytest.fixture(autouse=True)
def woken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the tunings whose worker was woken; runs are sent nowhere."""
    found: list[int] = []
    monkeypatch.setattr(dispatch, "_publish", lambda row: None)
    monkeypatch.setattr(tuning_steps, "_publish", lambda row: found.append(row.number))
    return found


@pytest.fixture
def demo() -> Deployment:
    """A deployment that serves, its engine built."""
    row = serving_deployment()
    assert row.build_profile is not None
    if not row.active_revision or row.active_revision.engine is None:
        objects.engine(row.build_profile)
    return Deployment.objects.get(pk=row.pk)


def serves(trial: Trial) -> None:
    """What workers make true: the trial's server serves."""
    made = Deployment.objects.get(name=trial.made)
    revision = made.revisions.get()
    server = objects.instance(revision, f"uid{trial.made}", node=objects.node(f"n-{trial.made}"))
    Instance.objects.filter(pk=server.pk).update(state="serving", http_port=1, grpc_port=2, metrics_port=3)
    Deployment.objects.filter(pk=made.pk).update(state="ready", active_revision=revision)


def ends(run: LoadRun, tokens: float, **columns: Any) -> None:
    """The run has measured."""
    figures = {"output_tokens_per_second": tokens, "requests": 40, "errors": 1, "ttft_p99_ms": 100.0}
    summary = {"steps": [{"value": 16.0, "begin": 0.0, "end": 9.0, "stopped": "time", "figures": figures}]}
    values = {"state": "succeeded", "summary": summary, **columns}
    LoadRun.objects.filter(pk=run.pk).update(**values)


def goes(trial: Trial) -> None:
    """The trial's servers are gone."""
    Instance.objects.filter(deployment__name=trial.made).delete()
    Deployment.objects.filter(name=trial.made).update(state="stopped")


def whole_trial(row: Tuning, tokens: float) -> Trial:
    """One trial from its proposal to its end."""
    trial = tuning_steps.propose(row)
    assert trial is not None
    serves(trial)
    tuning_steps.advance(row)
    trial.refresh_from_db()
    assert (trial.state, trial.run is not None) == ("running", True)
    assert trial.run is not None
    ends(trial.run, tokens)
    tuning_steps.after_run(trial.run)
    trial.refresh_from_db()
    assert trial.state == "clearing"
    goes(trial)
    tuning_steps.advance(row)
    trial.refresh_from_db()
    return trial


def test_a_tuning_tries_judges_clears_up_and_its_winner_is_applied(
    demo: Deployment, woken: list[int]
) -> None:
    actor = people.person(OPERATOR)
    row = services.start_tuning(actor, REQUEST)
    tuning_steps.advance(row)
    assert woken == [1]
    trials = [whole_trial(row, tokens) for tokens in (100.0, 160.0, 130.0)]
    assert [trial.state for trial in trials] == ["succeeded"] * 3
    assert trials[0].source == "present"
    assert trials[0].configuration == {"strategy": "inflight", "max_batch_size": 16}
    # Every trial asks the same, and what was made for it is gone.
    assert len({trial.run.seed for trial in trials if trial.run}) == 1
    assert set(Deployment.objects.values_list("name", flat=True)) == {"demo"}
    assert BatchingProfile.objects.count() == 1
    assert tuning_steps.propose(row) is None
    row.refresh_from_db()
    assert (row.state, row.winner) == ("succeeded", 2)
    assert "Against what runs now" in " ".join(row.report)
    assert trials[1].figures is not None
    assert trials[1].figures["failed_share"] == pytest.approx(1 / 40)
    before = Deployment.objects.get(name="demo").active_revision
    assert before is not None
    made = services.apply_tuning(actor, row)
    wanted = row.trials.get(number=2).configuration
    assert (made.batching.name, made.batching.max_batch_size) == ("demo-tuned-1-2", wanted["max_batch_size"])
    newest = made.revisions.latest("number")
    assert newest.number == before.number + 1
    assert newest.state == "pending"
    # The loser stays to roll back to: its revision and its profile.
    before.refresh_from_db()
    assert before.state == "active"
    row.refresh_from_db()
    assert (row.applied_trial, row.applied_before) == (2, before.number)
    entry = AuditEntry.objects.get(verb="deployment.tuning_applied")
    assert entry.detail["configuration"] == wanted
    with pytest.raises(NotPossibleNow, match="has this configuration already"):
        services.apply_tuning(actor, row)
    services.delete_tuning(actor, row)
    assert not LoadRun.objects.exists()


def test_it_goes_on_after_a_worker_died_and_nothing_comes_twice(demo: Deployment, woken: list[int]) -> None:
    row = services.start_tuning("test", REQUEST)
    tuning_steps.advance(row)
    tuning_steps.advance(row)
    # One message at a time; it is sent again only when nothing came of it.
    assert woken == [1]
    assert tune_run.propose_trial(row.pk)
    assert not tune_run.propose_trial(row.pk)
    trial = row.trials.get()
    # The worker died between the row and its servers: after a while the trial ends, the tuning does not.
    Deployment.objects.filter(name=trial.made).delete()
    Trial.objects.filter(pk=trial.pk).update(made="", state_since="2020-01-01T00:00:00Z")
    tuning_steps.advance(row)
    trial.refresh_from_db()
    assert (trial.state, trial.reason) == ("failed", "servers_failed")
    assert not BatchingProfile.objects.filter(name__startswith="tune-").exists()
    row.refresh_from_db()
    assert row.state == "running"
    other = whole_trial(row, 90.0)
    assert other.configuration != trial.configuration


def test_a_cancelled_tuning_stops_its_run_and_keeps_what_it_measured(demo: Deployment) -> None:
    row = services.start_tuning("test", REQUEST)
    whole_trial(row, 100.0)
    trial = tuning_steps.propose(row)
    assert trial is not None
    serves(trial)
    tuning_steps.advance(row)
    services.cancel_tuning(people.person(OPERATOR), row)
    trial.refresh_from_db()
    run = trial.run
    assert run is not None
    run.refresh_from_db()
    # The run was still queued, so it is over at once.
    assert run.state == "cancelled"
    tuning_steps.advance(row)
    goes(trial)
    tuning_steps.advance(row)
    row.refresh_from_db()
    trial.refresh_from_db()
    assert (row.state, trial.state, row.winner) == ("cancelled", "cancelled", 1)
    with pytest.raises(NotPossibleNow, match="is cancelled"):
        services.cancel_tuning("test", row)


def test_what_the_plan_refuses_is_never_run(demo: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tuning_space,
        "why_infeasible",
        lambda row, config: "too large" if config["max_batch_size"] > 4 else "",
    )
    row = services.start_tuning("test", {**REQUEST, "trials": 2})
    trial = tuning_steps.propose(row)
    assert trial is not None
    assert trial.configuration["max_batch_size"] == 4
    refused = row.trials.filter(state="infeasible")
    assert refused.count() >= 1
    assert {each.sentence for each in refused} == {"too large"}
    assert tuning_dict(row)["trials_run"] == 0
    assert tuning_dict(row)["trials_refused"] == refused.count()


def test_a_configuration_larger_than_the_memory_does_not_fit(demo: Deployment) -> None:
    row = tuning_rows.tuning(demo)
    Gpu.objects.update(memory_bytes=2**34)
    assert tuning_space.why_infeasible(row, tuning_rows.config()) == ""
    row.base["profile"]["max_seq_len"] = 1_048_576
    assert "are needed" in tuning_space.why_infeasible(
        row, {**tuning_rows.config(max_batch_size=256), "replicas": 64}
    )


def test_every_build_of_the_checkpoint_that_has_an_engine_may_be_chosen(demo: Deployment) -> None:
    own = demo.build_profile
    assert own is not None
    other = objects.build_profile("q8", quantization="Q8_0")
    objects.build_profile("unbuilt", quantization="Q4_0")
    objects.engine(other)
    row = services.start_tuning("test", {**REQUEST, "parameters": {"build": None}})
    (parameter,) = row.space
    assert (parameter["name"], sorted(parameter["values"])) == ("build", sorted([own.name, "q8"]))


def test_power_and_price_of_a_trial(demo: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    row = services.start_tuning("test", REQUEST)
    trial = whole_trial(row, 100.0)
    run = trial.run
    assert run is not None
    assert trial.figures is not None
    # What no device tells, and what has no price, is unknown.
    assert (trial.figures["tokens_per_watt"], trial.figures["cost_per_million_tokens"]) == (None, None)
    server = objects.instance(demo.active_revision or demo.revisions.get(), "priced", replica=1)
    slot = objects.node("priced").gpus.get()
    Gpu.objects.filter(pk=slot.pk).update(price_per_hour="3.60")
    GpuLease.objects.create(
        gpu=slot, purpose="serve", holder_kind=Instance.kind, holder_id=server.pk, share=50
    )
    LoadRun.objects.filter(pk=run.pk).update(deployment=demo, started_at=clock.now(), finished_at=clock.now())
    run.refresh_from_db()
    monkeypatch.setattr(history, "window", lambda *_args: {"means": {"gpu_power_watts": 250.0}})
    told = tuning_figures.figures_of(run)
    assert told is not None
    assert told["tokens_per_watt"] == pytest.approx(0.4)
    # Half a slot of 3.60 an hour, 100 tokens/s.
    assert told["cost_per_million_tokens"] == pytest.approx(1.8 / 360_000 * 1e6)


def test_trials_that_all_fail_end_it(demo: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(row: Tuning, trial: Trial) -> None:
        raise NotPossibleNow("no_room", "There is no room.")

    monkeypatch.setattr(tuning_servers, "make", refuse)
    row = services.start_tuning("test", {**REQUEST, "trials": 6})
    for _ in range(tuning_steps.MOST_FAILURES):
        assert tuning_steps.propose(row) is not None
        tuning_steps.advance(row)
    row.refresh_from_db()
    assert (row.state, row.reason) == ("failed", "trials_fail")
    assert "There is no room." in row.sentence


def test_its_time_is_bounded(demo: Deployment) -> None:
    row = services.start_tuning("test", REQUEST)
    whole_trial(row, 100.0)
    Tuning.objects.filter(pk=row.pk).update(created_at="2020-01-01T00:00:00Z")
    tuning_steps.advance(row)
    row.refresh_from_db()
    assert (row.state, row.reason, row.winner) == ("succeeded", "time_over", 1)


@pytest.mark.parametrize(
    ("given", "error", "field", "words"),
    [
        ({"deployment": "none"}, NotFound, "", "no deployment"),
        (
            {"parameters": {"max_batch_size": [0, 4]}},
            InvalidInput,
            "parameters.max_batch_size",
            "cannot be 0",
        ),
        ({"parameters": {"build": ["none"]}}, InvalidInput, "parameters.build", "is no build profile"),
        ({"parameters": {"replicas": [0]}}, InvalidInput, "parameters.replicas", "1 to 64"),
        ({"parameters": {"max_batch_size": [16]}}, InvalidInput, "parameters", "nothing to choose"),
        ({"objectives": ["goodput_per_second"]}, InvalidInput, "scenario.slo", "has none"),
        ({"scenario": {"load": {"concurrency": [2, 4]}}}, InvalidInput, "scenario.load", "one load"),
        ({"scenario": {"load": {"concurrency": [4000]}}}, NotPossibleNow, "load.concurrency", "more than"),
        ({"trials": 1}, InvalidInput, "trials", "greater than"),
    ],
)
def test_what_cannot_be_tuned_says_why(
    demo: Deployment, given: dict[str, Any], error: type[Exception], field: str, words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        services.start_tuning(people.person(OPERATOR), {**REQUEST, **given})
    assert getattr(caught.value, "field", "") == field or not field
    assert not Tuning.objects.exists()


def test_who_may_and_what_may_be_applied(demo: Deployment) -> None:
    row = tuning_rows.tuning(demo)
    viewer = people.person(VIEWER)
    for refused in (
        lambda: services.start_tuning(viewer, REQUEST),
        lambda: services.cancel_tuning(viewer, row),
        lambda: services.apply_tuning(viewer, row),
        lambda: services.delete_tuning(viewer, row),
    ):
        with pytest.raises(NotAllowed):
            refused()
    with pytest.raises(NotPossibleNow, match="does not keep the constraints"):
        services.apply_tuning("test", row, 3)
    with pytest.raises(NotPossibleNow, match="was not measured"):
        services.apply_tuning("test", row, 4)
    with pytest.raises(NotFound):
        services.apply_tuning("test", row, 9)
    shown = tuning_dict(row)
    assert (shown["front"], shown["actions"]) == ([2], ["apply", "delete"])
