"""Workers, the serving environment and checkpoints."""

from __future__ import annotations

from tests.support.celery import celery_broker, start_worker
from tests.support.llama import demo_checkpoint, demo_file, serving_python

__all__ = ["celery_broker", "demo_checkpoint", "demo_file", "serving_python", "start_worker"]
