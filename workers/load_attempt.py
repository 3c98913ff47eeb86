"""What attempts at a load run share, whichever generator makes it: the gateway's key, the stop, what answered."""

from __future__ import annotations

import logging
import os
import platform
import time
from abc import abstractmethod
from typing import Any

from django.conf import settings
from django.db import DatabaseError
from django.utils.translation import gettext as _

from apps.core.exceptions import InflightError
from apps.gateway import services as gateway
from apps.gateway.models import GatewayKey
from apps.loadtests import attempts, selectors
from apps.loadtests.attempts import Claim
from apps.loadtests.domain.scenario import Scenario
from apps.loadtests.models import LoadRun
from apps.loadtests.policy import SERIES_EVERY_SECONDS, SERIES_POINTS, STOP_SECONDS
from apps.serving import selectors as serving
from workers.attempt_rows import Ended
from workers.loadgen import targets
from workers.loadgen.plan import KEY
from workers.run_attempt import RunAttempt
from workers.supervisor import StepResult
from workers.watch import Watch

log = logging.getLogger(__name__)
# Gateways know of a new key within 2 s (apps/gateway/table.py).
KEY_KNOWN_SECONDS = 2.5


class LoadAttempt(RunAttempt):
    """One claimed attempt at a load run, whichever generator makes it: the gateway's key, and the safe stop."""

    row: LoadRun
    progress_every = SERIES_EVERY_SECONDS

    def __init__(self, claim: Claim, worker: str) -> None:
        super().__init__(claim, worker, selectors.runs_folder() / f"{claim.run.number}-{claim.attempt}")
        self.stop_seen: float | None = None
        self.key: GatewayKey | None = None

    def _access(self, scenario: Scenario) -> dict[str, str]:
        """The environment variable with a key of the run's own, where the load goes through the gateway."""
        if scenario.via != "gateway":
            return {}
        owner = self.row.requested_by or targets.any_administrator()
        name = f"load run {self.row.number}"
        self.key, raw = gateway.create_key("load worker", {"name": name, "routes": [scenario.target]}, owner)
        time.sleep(KEY_KNOWN_SECONDS)
        return {KEY: raw}

    def _after(self) -> None:
        if self.key is not None:
            try:
                gateway.revoke_key("load worker", self.key)
            except (InflightError, DatabaseError):
                log.exception("The key of run #%d was not revoked.", self.row.number)

    def _must_end(self) -> bool:
        """Pass a stop on to the generator, which sums up; True where it takes too long over that."""
        if self.stop_seen is None:
            if not attempts.stop_requested(self.row):
                return False
            self.stop_seen = time.monotonic()
            self._ask_to_stop()
        return time.monotonic() - self.stop_seen > STOP_SECONDS

    @abstractmethod
    def _ask_to_stop(self) -> None:
        """Tell the child to send nothing more and to sum up."""

    def _judge(self, result: StepResult, watch: Watch) -> None:
        if result.failure is not None and self.stop_seen is not None and result.ending == "exited":
            raise Ended(None, "cancelled")
        super()._judge(result, watch)

    def _finish(self, watch: Watch, stopped: bool, **columns: Any) -> None:
        if stopped:
            columns |= {
                "reason": "stopped",
                "sentence": _("Stopped before its time; what it had measured is kept."),
            }
        self._write(watch, lambda: attempts.finish_run(self.row, self.number, self.worker, **columns))


def dataset_of(scenario: Scenario) -> str:
    """The path of a scenario's dataset; empty where it has none."""
    name = scenario.prompts.dataset
    return str(selectors.datasets_folder() / name) if name else ""


def thinned(ticks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most SERIES_POINTS of the seconds, evenly."""
    step = -(-len(ticks) // SERIES_POINTS) if ticks else 1
    return ticks[::step]


def facts(row: LoadRun, generator: dict[str, Any]) -> dict[str, Any]:
    """What answered the load, and on what: what a comparison's difference is made of."""
    found: dict[str, Any] = {
        "generator": generator,
        "machine": {"node": settings.INFLIGHT_NODE_ID, "cores": os.cpu_count(), "kernel": platform.release()},
        "instances": [],
    }
    deployment = row.deployment
    if deployment is None:
        return found
    instances = list(
        serving.serving_instances(deployment).select_related("revision__engine__checkpoint", "gpu")
    )
    revision = deployment.active_revision
    if revision is not None:
        engine = revision.engine
        found["deployment"] = {
            "name": deployment.name,
            "revision": revision.number,
            "replicas": revision.replicas,
        }
        # Null where a model repository is served, which has no engine of its own.
        found["engine"] = engine and {
            "fingerprint": engine.fingerprint,
            "checkpoint": engine.checkpoint.name,
            "builder": engine.builder,
            "quantization": engine.quantization,
        }
        found["batching"] = revision.batching
    found["instances"] = [
        {
            "uid": instance.uid,
            "slot": f"{instance.gpu.device}{instance.gpu.index}" if instance.gpu else None,
            "server_version": instance.server_version,
        }
        for instance in instances
    ]
    return found
