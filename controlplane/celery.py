"""The Celery application. Celery is a wake-up, never the truth: rows hold the state (docs/architecture.md)."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

app = Celery("inflight")
app.config_from_object("django.conf:settings", namespace="CELERY")
# Apps send tasks by name; only workers import their code.
app.conf.imports = ("workers.tasks",)
