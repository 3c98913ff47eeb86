"""Runs against what sleeps: the target is woken, and the run is sent once a server serves.

Waiting is the row's, not a worker's: what is measured begins with a server that is there.
"""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

from apps.core import clock
from apps.core.transitions import amend
from apps.loadtests import states
from apps.serving import autoscale
from apps.serving import selectors as serving
from apps.serving.autoscale_policy import wait_for_waking
from apps.serving.models import Deployment

WAKING = "waking"


def serves_or_wakes(deployment: Deployment) -> bool:
    """Whether a run against it can be asked for: a server is there, or will be because of the run."""
    return bool(serving.endpoints(deployment)) or wait_for_waking(deployment) is not None


def held(row: Any) -> bool:
    """Whether a queued run (LoadRun, QualityRun) is not to be sent yet: its target was woken and does not serve.

    Beyond the deployment's `wake_seconds` it is sent all the same, and its worker says that nothing serves.
    """
    targets = (row.deployment, getattr(row, "baseline_deployment", None))
    waits = {
        each: wait_for_waking(each) for each in targets if each is not None and not serving.endpoints(each)
    }
    asleep = {each: seconds for each, seconds in waits.items() if seconds is not None}
    if not asleep or (clock.now() - row.state_since).total_seconds() > max(asleep.values()):
        return False
    for deployment in asleep:
        autoscale.wake("loadtest", deployment, _("A load test waits for it: it is woken."), "asked")
    if row.reason != WAKING:
        names = ", ".join(each.name for each in asleep)
        sentence = _("It waits until %(name)s is awake.") % {"name": names}
        amend(row, states=[states.QUEUED], reason=WAKING, sentence=sentence, remedy="")
    return True
