"""The Celery application. Celery is a wake-up, never the truth: rows hold the state (docs/architecture.md)."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import celeryd_init

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
# Celery would run Django's checks at each start of a worker, which import every page and the API into a process that
# has neither. `manage.py` makes them before anything is started.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

app = Celery("inflight")
app.config_from_object("django.conf:settings", namespace="CELERY")


@celeryd_init.connect
def import_tasks(**kwargs: Any) -> None:
    """Apps send tasks by name and beat does too: only workers import their code, which takes a second of CPU time."""
    app.loader.import_task_module("workers.tasks")
