"""The playground's knob: synthetic users beside one's own chat, so that one feels what batching does to it.

It is a run of the load generator like any other (same limits, same worker), that ends by itself: when nobody keeps
it, when its longest time is over, and with its deployment.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import clock
from apps.core.exceptions import InflightError, InvalidInput, NotPossibleNow
from apps.loadtests import runs, states
from apps.loadtests.background_models import BackgroundLoad
from apps.loadtests.domain.scenario import Scenario
from apps.serving.models import Deployment

# The page says every 5 s that it is still open; three times unheard, the load ends.
KEPT_SECONDS = 15.0
ACTOR = "background load"


def set_background_load(
    actor: User | str, deployment: Deployment, users: int, seconds: float | None = None
) -> BackgroundLoad | None:
    """Have so many synthetic users ask a deployment from now on; 0 ends them. Returns what runs, None for nothing.

    It ends after `seconds` (15 where none are given) unless `keep_background_load` is called, at the latest after
    INFLIGHT_BACKGROUND_SECONDS. Raises NotAllowed, InvalidInput naming `users` or `seconds`, and what a load test's
    limits say (production, clients a slot).
    """
    require(actor, Action.OPERATE)
    _check("users", users, 0, most_users(), _("users"))
    if seconds is not None:
        _check("seconds", seconds, 1, longest(), _("seconds"))
    until = clock.now() + timedelta(seconds=seconds or KEPT_SECONDS)
    current = running(deployment)
    if current is not None and current.users == users:
        return _keep(current, until)
    if users == 0:
        _stop(actor, current)
        return None
    # First the new one: where it is refused the old one stays as it is.
    with transaction.atomic():
        run = runs.begin(actor, _scenario(deployment, users))
        made = BackgroundLoad.objects.create(run=run, users=users, kept_until=until)
    _stop(actor, current)
    return made


def keep_background_load(actor: User | str, deployment: Deployment) -> BackgroundLoad | None:
    """Somebody still looks: go on for another 15 s, within the longest time. None where nothing runs."""
    require(actor, Action.OPERATE)
    current = running(deployment)
    if current is None:
        return None
    return _keep(current, max(current.kept_until, clock.now() + timedelta(seconds=KEPT_SECONDS)))


def running(deployment: Deployment) -> BackgroundLoad | None:
    """What runs, or waits for its worker, beside a deployment's chats; None where nothing does."""
    rows = BackgroundLoad.objects.select_related("run").filter(
        run__deployment=deployment,
        run__state__in=(states.QUEUED, states.RUNNING),
        run__cancel_requested_at__isnull=True,
    )
    return rows.order_by("-created_at").first()


def state(deployment: Deployment) -> dict[str, Any]:
    """What the knob shows: users, the most that may be asked for, the run's state, and when it ends at the latest."""
    current = running(deployment)
    run = current.run if current is not None else None
    return {
        "users": current.users if current is not None else 0,
        "most_users": most_users(),
        "run": run.number if run is not None else None,
        "state": run.state if run is not None else None,
        "sentence": (run.sentence or None) if run is not None else None,
        "ends_at": _latest(current).timestamp() if current is not None else None,
    }


def end_expired() -> int:
    """Stop what nobody keeps, and delete the runs of what has ended; returns how many were stopped or deleted.

    The telemetry process calls it every few seconds.
    """
    now = clock.now()
    count = 0
    for load in BackgroundLoad.objects.select_related("run__study"):
        if load.run.is_terminal:
            runs.delete_run(ACTOR, load.run)
            count += 1
        elif load.run.cancel_requested_at is None and min(load.kept_until, _latest(load)) <= now:
            _stop(ACTOR, load)
            count += 1
    return count


def most_users() -> int:
    """The most synthetic users that anybody may set."""
    return int(settings.INFLIGHT_BACKGROUND_USERS)


def longest() -> float:
    """The longest that one background load lasts, seconds."""
    return float(settings.INFLIGHT_BACKGROUND_SECONDS)


def _scenario(deployment: Deployment, users: int) -> Scenario:
    return Scenario.model_validate(
        {
            "target": deployment.name,
            "load": {"mode": "closed", "concurrency": [users]},
            # Short answers, so that a stop, which lets them end, is quick.
            "prompts": {
                "input": {"distribution": "uniform", "least": 16, "most": 64},
                "output": {"distribution": "uniform", "least": 16, "most": 64},
            },
            "timing": {
                "warm_up_seconds": 0.0,
                "seconds": longest(),
                "most_seconds": longest(),
                "requests": 1,
                "until_steady": False,
                "grace_seconds": 0.0,
            },
        }
    )


def _keep(load: BackgroundLoad, until: datetime) -> BackgroundLoad:
    load.kept_until = min(until, _latest(load))
    load.save(update_fields=["kept_until"])
    return load


def _latest(load: BackgroundLoad) -> datetime:
    return load.created_at + timedelta(seconds=longest())


def _stop(actor: User | str, load: BackgroundLoad | None) -> None:
    if load is None:
        return
    try:
        runs.stop_run(actor, load.run)
    except NotPossibleNow:
        # It has ended meanwhile, which is what was wanted.
        return


def _check(field: str, value: float, least: float, most: float, unit: str) -> None:
    if least <= value <= most:
        return
    problem: InflightError = InvalidInput(
        "out_of_range",
        _("%(value)s %(unit)s are outside of %(least)s to %(most)s.")
        % {"value": value, "unit": unit, "least": f"{least:g}", "most": f"{most:g}"},
        field=field,
        remedy=_("Choose a number in between; an administrator sets the bound."),
    )
    raise problem
