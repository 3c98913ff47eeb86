"""What the advisor does when a person presses its button: a changed profile field as a new revision."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.control import selectors
from apps.control.domain.advice.outcome import Advice
from apps.core import audit
from apps.core.exceptions import NotFound, NotPossibleNow
from apps.serving import services as serving
from apps.serving.models import BatchingProfile, Deployment
from apps.serving.revisions import batching_snapshot

__all__ = ["apply_advice"]


def apply_advice(
    actor: User | str,
    deployment: Deployment,
    advice_id: str,
    after: Any = None,
    seconds: float = selectors.WINDOW,
    read: selectors.Read | None = None,
) -> Deployment:
    """Make the change that an advice proposes, and deploy it: servers are replaced by a rolling change.

    The advice is worked out again: what no longer holds is refused. `after` is the value that the person saw; another
    one now is refused too. A batching profile that other deployments use is copied, so that theirs stays.
    """
    require(actor, Action.CONFIGURE)
    require(actor, Action.OPERATE)
    report = selectors.report(deployment, seconds, read)
    advice = _advice(report, advice_id)
    change = advice.change
    if change is None:
        raise NotPossibleNow("advice_by_hand", _("No button can do this."), remedy=advice.action)
    if report.blocked:
        raise NotPossibleNow("advice_blocked", report.blocked, remedy=_("Then look at the advice again."))
    if after is not None and after != change.after:
        raise NotPossibleNow(
            "advice_changed",
            _("By now %(after)s is advised.") % {"after": change.after},
            remedy=_("Look at the evidence again, then press the button."),
        )
    with transaction.atomic():
        profile = _profile(actor, deployment, {change.field: change.after})
        deployment = serving.save_deployment(actor, {"batching": profile}, deployment)
        audit.record(
            actor,
            "deployment.advice_applied",
            deployment,
            sentence=advice.sentence,
            detail={
                "advice": advice.id,
                "change": {change.field: [change.before, change.after]},
                "evidence": [{"label": each.label, "value": each.value} for each in advice.evidence],
                "since": report.opinion.since,
                "until": report.opinion.until,
            },
        )
    return serving.deploy(actor, deployment)


def _advice(report: selectors.Report, advice_id: str) -> Advice:
    found = next((each for each in report.opinion.advice if each.id == advice_id), None)
    if found is None:
        raise NotFound(
            "advice_gone",
            _("This is not advised any more."),
            remedy=_("Look at the tab Advice again: the figures have changed."),
        )
    return found


def _profile(actor: User | str, deployment: Deployment, change: dict[str, Any]) -> BatchingProfile:
    """The deployment's profile with the change: itself, or a copy where others use it."""
    profile = deployment.batching
    if not profile.deployments.exclude(pk=deployment.pk).exists():
        return serving.save_batching_profile(actor, change, profile)
    data = {**batching_snapshot(profile), **change, "name": _free_name(f"{profile.name}-{deployment.name}")}
    return serving.save_batching_profile(actor, data)


def _free_name(wanted: str) -> str:
    """The name, cut to what a name may be, with a number where it is taken."""
    for number in range(1, 1000):
        end = "" if number == 1 else f"-{number}"
        name = wanted[: 63 - len(end)] + end
        if not BatchingProfile.objects.filter(name=name).exists():
            return name
    return wanted[:63]
