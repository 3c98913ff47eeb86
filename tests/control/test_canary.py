"""The judge of canaries: its rules, and what it does with rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from apps.control import canary
from apps.control.domain.canary import Figures, Progress, Promise, figures_of, judge
from apps.core import clock
from apps.core.models import AuditEntry
from apps.serving import services, states
from apps.serving.models import Deployment, Revision
from tests import objects

PROMISE = Promise(ttft_ms=500, itl_ms=40, error_rate=0.01)
GOOD = Figures(requests=100, error_rate=0.0, ttft_ms=300, itl_ms=20)


def progress(elapsed: float = 61, last: bool = False, ready: bool = True) -> Progress:
    return Progress(elapsed=elapsed, seconds=60, last=last, ready=ready, deadline=600)


@pytest.mark.parametrize(
    ("new", "old", "at", "verdict"),
    [
        (GOOD, GOOD, progress(), ("advance", "kept")),
        (GOOD, GOOD, progress(last=True), ("promote", "kept")),
        (GOOD, GOOD, progress(elapsed=10), ("wait", "time")),
        (GOOD, GOOD, progress(ready=False), ("wait", "not_ready")),
        (Figures(100, 0.0, 900, 20), GOOD, progress(elapsed=5), ("roll_back", "slo_ttft")),
        (Figures(100, 0.0, 300, 60), GOOD, progress(), ("roll_back", "slo_itl")),
        (Figures(100, 0.05, 300, 20), GOOD, progress(), ("roll_back", "slo_error_rate")),
        # Both are as slow: the load, not the change.
        (Figures(100, 0.0, 900, 20), Figures(100, 0.0, 880, 20), progress(), ("wait", "both_miss")),
        (Figures(100, 0.0, 900, 20), Figures(100, 0.0, 880, 20), progress(601), ("roll_back", "slo_ttft")),
        # The old one misses too, but by much less.
        (Figures(100, 0.0, 900, 20), Figures(100, 0.0, 510, 20), progress(), ("roll_back", "slo_ttft")),
        (Figures(3, 1.0, 900, 20), GOOD, progress(), ("wait", "too_few_requests")),
        (Figures(3, 0.0, 300, 20), GOOD, progress(121), ("advance", "too_few_requests")),
        (Figures(), GOOD, progress(121, last=True), ("promote", "too_few_requests")),
        # A figure that nobody tells is not judged.
        (Figures(100, None, None, 20), GOOD, progress(), ("advance", "kept")),
    ],
)
def test_verdicts(new: Figures, old: Figures, at: Progress, verdict: tuple[str, str]) -> None:
    found = judge(PROMISE, at, new, old)
    assert (found.action, found.reason) == verdict
    assert found.sentence


def test_without_a_service_level_readiness_and_time_decide() -> None:
    assert judge(Promise(), progress(), Figures(100, 0.9, 9000, 900), GOOD).action == "advance"


def test_figures_out_of_telemetry() -> None:
    window = {
        "requests": 90.0,
        "ended": {"error": 10.0},
        "failed": 10.0,
        "rejected": 0.0,
        "histograms": {
            "ttft": {"unit": "s", "count": 100, "p90": 0.4},
            "itl": {"unit": "ms", "count": 900, "p90": 21.0},
        },
    }
    assert figures_of(window) == Figures(100.0, 0.1, 400.0, 21.0)
    assert figures_of({"requests": None, "histograms": {"ttft": {"count": 0, "p90": None}}}) == Figures()
    # The embedded engine's count holds the bad ends; a window names those alone, and none where none came.
    assert figures_of({**window, "requests": 100.0}, counts_every_end=True).error_rate == 0.1
    assert figures_of({"requests": 54.0, "ended": {}}, counts_every_end=True).error_rate == 0.0
    assert figures_of({"requests": None, "failed": 30.0}) == Figures(30.0, 1.0)


@pytest.fixture
def trial(db: None) -> Revision:
    """A deployment with two steps whose canary is in the first, for long enough."""
    deployment = objects.deployment()
    services.save_deployment(
        "test",
        {
            "slo": {"ttft_ms": 500},
            "rollout": {"canary": [{"weight": 10, "seconds": 60}, {"weight": 50, "seconds": 60}]},
        },
        deployment,
    )
    old, new = objects.revision(deployment, 1), objects.revision(deployment, 2, states.PENDING)
    for number, revision in enumerate((old, new)):
        objects.instance(revision, f"i-{number}", http_port=1, grpc_port=2, metrics_port=3)
    Deployment.objects.update(active_revision=old, desired="running", state=states.READY)
    Revision.objects.filter(pk=new.pk).update(canary_step=0, moved_at=clock.now() - timedelta(seconds=61))
    new.refresh_from_db()
    return new


def told(ttft: float) -> canary.Read:
    def read(instances: Sequence[int], since: float, until: float) -> Mapping[str, Any]:
        assert len(instances) == 1
        return {
            "requests": 100.0,
            "ended": {},
            "failed": 0.0,
            "rejected": 0.0,
            "histograms": {"ttft": {"unit": "s", "count": 100, "p90": ttft}},
        }

    return read


def test_a_good_canary_goes_step_by_step_to_the_whole(trial: Revision) -> None:
    assert canary.sweep(told(0.3)) == 1
    trial.refresh_from_db()
    assert (trial.canary_step, trial.promoted_at) == (1, None)
    kept = AuditEntry.objects.get(verb="rollout.step")
    assert (kept.detail["new"]["ttft_ms"], kept.detail["verdict"], kept.detail["weight"]) == (
        300.0,
        "kept",
        50,
    )
    assert canary.sweep(told(0.3)) == 0
    Revision.objects.filter(pk=trial.pk).update(moved_at=clock.now() - timedelta(seconds=61))
    assert canary.sweep(told(0.3)) == 1
    trial.refresh_from_db()
    assert trial.promoted_at is not None
    assert canary.sweep(told(9.0)) == 0


def test_a_bad_canary_is_taken_back_with_its_figures(trial: Revision) -> None:
    def read(instances: Sequence[int], since: float, until: float) -> Mapping[str, Any]:
        mine = trial.instances.filter(pk__in=instances).exists()
        return told(0.9 if mine else 0.2)(instances, since, until)

    assert canary.sweep(read) == 1
    trial.refresh_from_db()
    assert (trial.state, trial.reason) == (states.FAILED, "slo_ttft")
    kept = AuditEntry.objects.get(verb="rollout.rolled_back")
    assert (kept.detail["new"]["ttft_ms"], kept.detail["old"]["ttft_ms"]) == (900.0, 200.0)
    deployment = Deployment.objects.get()
    assert (deployment.state, deployment.reason) == (states.READY, "rollout_failed")
    assert "900 ms" in deployment.sentence


def test_a_paused_canary_is_not_judged(trial: Revision) -> None:
    services.pause_rollout("test", trial.deployment)
    assert canary.sweep(told(9.0)) == 0
    services.resume_rollout("test", trial.deployment)
    trial.refresh_from_db()
    assert (clock.now() - (trial.moved_at or trial.state_since)) < timedelta(seconds=10)


def test_steps_that_were_taken_out_end_the_trial(trial: Revision) -> None:
    services.save_deployment("test", {"rollout": {}}, trial.deployment)
    canary.sweep(told(0.1))
    trial.refresh_from_db()
    assert trial.promoted_at is not None
