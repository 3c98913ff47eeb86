"""Workers, the serving environment and checkpoints."""

from __future__ import annotations

import os

import pytest
from django.conf import settings

from tests.support.celery import celery_broker, start_worker
from tests.support.llama import demo_checkpoint, demo_file, serving_python

__all__ = ["celery_broker", "demo_checkpoint", "demo_file", "serving_python", "start_worker"]


@pytest.fixture(autouse=True)
def _node_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts are ended by their mark, on the whole host: two test processes must not share node and row number."""
    monkeypatch.setattr(settings, "INFLIGHT_NODE_ID", f"n-test-{os.getpid()}")
