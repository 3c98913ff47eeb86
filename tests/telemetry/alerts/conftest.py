"""A deployment with a server that talks, rules, and an evaluator whose clock and samples the test holds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.serving.models import Deployment, Instance
from apps.telemetry import store
from apps.telemetry.alerts import services
from apps.telemetry.alerts.evaluation import Evaluator
from apps.telemetry.alerts.models import AlertRule
from apps.telemetry.alerts.watching import Memory
from tests import objects

RULE: dict[str, Any] = {
    "name": "kv-full",
    "summary": "KV cache almost full",
    "remedy": "Lower the batch size.",
    "target": "deployment",
    "severity": "warning",
    "for_seconds": 60,
    "resolve_seconds": 30,
    "condition": {"kind": "threshold", "key": "kv_use", "value": 0.9, "clear": 0.8},
}


def rule(**changes: Any) -> AlertRule:
    """A saved rule."""
    return services.save_alert_rule("test", {**RULE, **changes})


class World:
    """Time, samples and telemetry's sign of life, as the test says; `go` lets seconds pass."""

    def __init__(self, deployment: Deployment, instance: Instance) -> None:
        self.deployment, self.instance = deployment, instance
        # Before now: rows made by the database's clock lie after it.
        self.now = float(int(time.time()))
        self.streams: dict[str, list[dict[str, Any]]] = {}
        self.alive: bool | None = True
        self.evaluator = self.restarted()

    def restarted(self) -> Evaluator:
        """An evaluator that remembers nothing but what rows say."""
        self.evaluator = Evaluator(
            memory=Memory(self._read), clock=lambda: self.now, alive=lambda: self.alive
        )
        return self.evaluator

    def _read(self, stream: str, since: float) -> Sequence[dict[str, Any]]:
        return [sample for sample in self.streams.get(stream, []) if sample["at"] > since]

    def go(self, seconds: float, *, tick: bool = True, talk: bool = True, **values: float | None) -> None:
        """Let time pass: a sample each second, a look every five."""
        streams = [
            store.deployment_key(self.deployment.pk),
            store.instance_key(self.instance.pk),
            store.FLEET,
        ]
        for left in reversed(range(int(seconds))):
            self.now += 1
            if talk:
                for stream in streams:
                    self.streams.setdefault(stream, []).append({"at": self.now, **values})
            if tick and left % 5 == 0:
                self.evaluator.tick()


@pytest.fixture
def world(db: None) -> World:
    """See World."""
    made = objects.deployment("demo")
    revision = objects.revision(made)
    server = objects.instance(
        revision, "i-1", metrics_port=9002, serving_since=timezone.now() - timedelta(hours=1)
    )
    return World(made, server)
