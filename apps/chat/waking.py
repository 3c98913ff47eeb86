"""A question to a deployment that sleeps: it wakes it, and waits until a server serves."""

from __future__ import annotations

import asyncio
import time

from django.utils.translation import gettext as _

from apps.chat.models import Turn
from apps.realtime import pool
from apps.serving import autoscale
from apps.serving.autoscale_policy import wait_for_waking
from apps.serving.models import Deployment
from apps.serving.selectors import serving_instances

LOOK_SECONDS = 0.5


def wakes(deployment: Deployment) -> bool:
    """Whether a question may be asked though nothing serves: the deployment is woken, or on its way."""
    row = Deployment.objects.filter(pk=deployment.pk).first()
    if row is None or wait_for_waking(row) is None:
        return False
    autoscale.wake("chat", row, _("A question waits for it in the playground: it is woken."), "asked")
    return True


async def until_serves(turn_id: int) -> None:
    """Wait while the deployment of a turn was woken and has no server yet, as long as its `wake_seconds` say.

    Returns also where it did not wake: whoever picks a server then says that none serves.
    """
    began = time.monotonic()
    while (seconds := await pool.run(_wait, turn_id)) is not None:
        if time.monotonic() - began > seconds:
            return
        await asyncio.sleep(LOOK_SECONDS)


def _wait(turn_id: int) -> float | None:
    """How long to wait at most; null where it serves or does not wake."""
    row = Deployment.objects.filter(
        pk__in=Turn.objects.filter(pk=turn_id).values("conversation__deployment")
    ).first()
    if row is None or serving_instances(row).exists():
        return None
    return wait_for_waking(row)
