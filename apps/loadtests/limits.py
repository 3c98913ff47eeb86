"""What keeps a load test from starving production, unless an administrator says so."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core.exceptions import Finding, NotPossibleNow
from apps.loadtests.domain.scenario import Scenario
from apps.loadtests.models import ProductionMark
from apps.loadtests.policy import CLIENTS_A_SLOT, FREE_RATE
from apps.serving import selectors as serving
from apps.serving.autoscale_policy import wait_for_waking
from apps.serving.models import Deployment, Instance


def reasons(scenario: Scenario, deployment: Deployment | None) -> list[Finding]:
    """Why the load needs an administrator's word; empty where it does not."""
    found = []
    if deployment is not None:
        found += _production(deployment)
        slots = slots_of(deployment)
        asked = scenario.most_concurrency
        if asked is not None and slots and asked > CLIENTS_A_SLOT * slots:
            found.append(
                Finding(
                    "too_many_clients",
                    "error",
                    _(
                        "%(asked)s clients are more than %(most)s: %(each)s for each of %(slots)s slots of %(name)s."
                    )
                    % {
                        "asked": asked,
                        "most": CLIENTS_A_SLOT * slots,
                        "each": CLIENTS_A_SLOT,
                        "slots": slots,
                        "name": deployment.name,
                    },
                    "load.concurrency",
                    _("Use fewer clients, or have an administrator run it."),
                )
            )
    if scenario.load.mode == "open" and max(scenario.load.rate) > FREE_RATE:
        found.append(
            Finding(
                "rate_too_high",
                "error",
                _("%(rate)s requests/s are more than %(most)s.")
                % {"rate": max(scenario.load.rate), "most": FREE_RATE},
                "load.rate",
                _("Use a lower rate, or have an administrator run it."),
            )
        )
    return found


def check(actor: User | str, scenario: Scenario, deployment: Deployment | None, allowed: bool) -> None:
    """Raise NotPossibleNow where the load is beyond the limits and not allowed, NotAllowed where the person may
    not allow.

    A part of the system (str) that allows it is an administrator at the command line.
    """
    found = reasons(scenario, deployment)
    if not found:
        return
    if allowed:
        require(actor, Action.ADMINISTER)
        return
    first = found[0]
    raise NotPossibleNow(first.id, first.message, field=first.where, remedy=first.remedy)


def slots_of(deployment: Deployment) -> int:
    """Sequences that its servers generate at once; of one that sleeps, those of the server that it will have."""
    revision = deployment.active_revision
    if revision is None:
        return 0
    each = (
        1
        if revision.batching.get("strategy") == "none"
        else int(revision.batching.get("max_batch_size") or 0)
    )
    return each * (len(serving.endpoints(deployment)) or int(wait_for_waking(deployment) is not None))


def _production(deployment: Deployment) -> list[Finding]:
    marked = set(ProductionMark.objects.values_list("deployment__name", flat=True))
    if deployment.name in marked:
        return [
            Finding(
                "production_target",
                "error",
                _("%(name)s is marked as production.") % {"name": deployment.name},
                "target",
                _("Test a deployment of its own, or have an administrator allow it."),
            )
        ]
    slots = set(serving.live_instances(deployment).values_list("gpu", flat=True)) - {None}
    beside = (
        Instance.objects.filter(gpu__in=slots, deployment__name__in=marked)
        .exclude(state__in=["gone", "failed"])
        .values_list("deployment__name", flat=True)
        .first()
    )
    if beside is None:
        return []
    return [
        Finding(
            "beside_production",
            "error",
            _("%(name)s runs on the same slot as %(other)s, which is marked as production.")
            % {"name": deployment.name, "other": beside},
            "target",
            _("Test where production does not run, or have an administrator allow it."),
        )
    ]
