"""The advisor on rows: what it reads, what blocks it, and what its button does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.control import selectors, services
from apps.control.domain.advice.figures import Distribution, Sample
from apps.control.serialize import report_dict
from apps.core.exceptions import NotAllowed, NotFound, NotPossibleNow
from apps.core.models import AuditEntry
from apps.serving import revisions
from apps.serving import selectors as serving
from apps.serving.models import BatchingProfile, Deployment, Revision
from tests import objects
from tests.control.scenarios import CALM
from tests.people import person

pytestmark = pytest.mark.django_db
FULL = {**CALM, "requests_running": 16.0, "requests_waiting": 6.0}


def told(values: dict[str, Any]) -> selectors.Read:
    """Samples of the whole range, one a second, always the same."""

    def read(_pk: int, since: float, until: float) -> tuple[Sequence[Sample], dict[str, Distribution]]:
        count = int(until - since)
        return [{"at": since + number, **values} for number in range(count)], {}

    return read


@pytest.fixture
def running() -> Deployment:
    """A deployment whose first revision has served for an hour, as it is configured."""
    made = objects.deployment("demo")
    revision = objects.revision(made)
    Revision.objects.filter(pk=revision.pk).update(
        batching=revisions.batching_snapshot(made.batching), state_since=timezone.now() - timedelta(hours=1)
    )
    Deployment.objects.filter(pk=made.pk).update(active_revision=revision, desired="running", state="ready")
    objects.instance(revision, "i-1")
    return serving.deployment("demo")


def test_the_button_makes_a_new_revision(running: Deployment) -> None:
    operator = person("operator")
    services.apply_advice(operator, running, "batch_size_always_full", 32, read=told(FULL))
    row = serving.deployment("demo")
    assert row.batching.max_batch_size == 32
    newest = row.revisions.first()
    assert newest is not None
    assert (newest.number, newest.state, newest.batching["max_batch_size"]) == (2, "pending", 32)
    entry = AuditEntry.objects.get(verb="deployment.advice_applied")
    assert entry.actor == operator
    assert entry.detail["change"] == {"max_batch_size": [16, 32]}
    assert entry.detail["evidence"]


def test_a_profile_that_others_use_is_copied(running: Deployment) -> None:
    other = objects.deployment("other", batching=running.batching)
    services.apply_advice("test", running, "batch_size_always_full", read=told(FULL))
    other.refresh_from_db()
    assert other.batching.max_batch_size == 16
    assert serving.deployment("demo").batching.name == "inflight-16-demo"
    assert BatchingProfile.objects.count() == 2


def test_what_is_not_advised_any_more_is_refused(running: Deployment) -> None:
    with pytest.raises(NotFound, match="not advised any more"):
        services.apply_advice("test", running, "batch_size_always_full", read=told(CALM))
    with pytest.raises(NotFound):
        services.apply_advice("test", running, "no_such_rule", read=told(FULL))


def test_a_value_that_changed_meanwhile_is_refused(running: Deployment) -> None:
    with pytest.raises(NotPossibleNow, match="By now 32 is advised"):
        services.apply_advice("test", running, "batch_size_always_full", 24, read=told(FULL))


def test_what_no_button_can_do_says_what_to_do(running: Deployment) -> None:
    tight = {**FULL, "kv_use": 0.99}
    with pytest.raises(NotPossibleNow) as caught:
        services.apply_advice("test", running, "kv_cache_too_small", read=told(tight))
    assert "Give the KV cache more memory" in caught.value.remedy


def test_changes_that_are_not_deployed_block_the_button(running: Deployment) -> None:
    BatchingProfile.objects.update(max_queue_size=7)
    row = serving.deployment("demo")
    assert "differs from what runs" in selectors.report(row, read=told(FULL)).blocked
    with pytest.raises(NotPossibleNow, match="differs from what runs"):
        services.apply_advice("test", row, "batch_size_always_full", read=told(FULL))


def test_a_stopped_deployment_is_not_changed(running: Deployment) -> None:
    Deployment.objects.update(desired="stopped")
    with pytest.raises(NotPossibleNow, match="stopped"):
        services.apply_advice("test", serving.deployment("demo"), "batch_size_always_full", read=told(FULL))


def test_only_those_who_may_deploy_and_configure(running: Deployment) -> None:
    with pytest.raises(NotAllowed):
        services.apply_advice(person("viewer"), running, "batch_size_always_full", read=told(FULL))


def test_what_was_before_this_revision_is_not_looked_at(running: Deployment) -> None:
    Revision.objects.update(state_since=timezone.now() - timedelta(minutes=5))
    report = selectors.report(serving.deployment("demo"), read=told(FULL))
    assert time.time() - report.opinion.since == pytest.approx(270, abs=20)
    Revision.objects.update(state_since=timezone.now())
    report = selectors.report(serving.deployment("demo"), read=told(FULL))
    assert report.opinion.advice == ()
    assert all("less than a minute" in each.why for each in report.opinion.unknown)


def test_without_redis_and_history_it_cannot_say(running: Deployment) -> None:
    report = selectors.report(running)
    assert report.opinion.advice == ()
    assert report_dict(report)["advice"] == []
    assert report_dict(report)["cannot_say"]


def test_nothing_was_deployed_yet() -> None:
    with pytest.raises(NotFound, match="has not run yet"):
        selectors.report(objects.deployment("new"))


def test_the_subject_knows_engine_and_place(running: Deployment) -> None:
    subject = selectors.report(running, read=told(FULL)).revision
    found = selectors.subject_of(running, subject)
    assert (found.builder, found.reuse, found.chunked_context, found.device) == ("llamacpp", True, True, None)
