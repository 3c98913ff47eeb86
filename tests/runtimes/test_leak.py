"""GPU memory that a failed load keeps is said with the failure, so that the next one is not taken for a full GPU."""

from __future__ import annotations

import pytest

from apps.serving import states
from apps.serving.models import CrashReport, Deployment, Instance
from tests.support.standin import StandIn, Ticker
from workers import gpu_memory


@pytest.mark.parametrize(("after", "said"), [(900, True), (510, False)])
def test_what_a_failed_load_keeps_is_said(
    standin: StandIn,
    ticker: Ticker,
    demo: Deployment,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
    said: bool,
) -> None:
    levels = iter([500 << 20])
    monkeypatch.setattr(gpu_memory, "used_bytes", lambda gpu, pids=None: next(levels, after << 20))
    standin.behave(load="refuse")
    ticker.until(lambda: Instance.objects.filter(state=states.FAILED).exists())
    assert ("400 MiB" in Instance.objects.get().sentence) == said
    assert ("400 MiB" in CrashReport.objects.get().sentence) == said
