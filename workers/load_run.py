"""One attempt at a load run by our own generator: claim, plan, the child, its summary, or the reason why not."""

from __future__ import annotations

import json
import logging
import os
import platform
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from apps.loadtests import attempts, inputs, selectors, studies, tuning_steps
from apps.loadtests.models import LoadRun
from apps.loadtests.policy import DEADLINE_MARGIN_SECONDS, SERIES_POINTS
from workers.aiperf_run import AiperfAttempt
from workers.builders.base import Step
from workers.child_attempt import CHECKOUT
from workers.load_attempt import LoadAttempt, dataset_of, facts, thinned
from workers.loadgen import targets
from workers.loadgen.plan import STOP, SUMMARY, TICKS, Plan, processes_for
from workers.pumps import LogFile
from workers.run_attempt import plain_environment
from workers.watch import Watch

log = logging.getLogger(__name__)
# Why a step of the generator's own choosing ended before its time.
STOPPED = "stop"


def run_load(run_id: int, worker: str) -> bool:
    """Claim a queued run and make it. False where there was nothing to claim."""
    claim = attempts.claim_run(run_id, worker, settings.INFLIGHT_NODE_ID)
    if claim is None:
        log.info("Run %d is not to be made (any more).", run_id)
        return False
    kind = AiperfAttempt if claim.run.generator == LoadRun.Generator.AIPERF else OwnAttempt
    kind(claim, worker).run()
    row = selectors.runs().get(pk=run_id)
    if row.is_terminal:
        studies.after_run(row)
        tuning_steps.after_run(row)
    return True


class OwnAttempt(LoadAttempt):
    """An attempt by workers.loadgen."""

    died = "generator_died"

    def _what(self) -> str:
        return _("The generator")

    def _work(self, output: LogFile, watch: Watch) -> None:
        scenario = inputs.scenario(self.row.scenario)
        processes = processes_for(scenario, os.cpu_count() or 1)
        plan = Plan(
            folder=self.folder,
            scenario=scenario,
            seed=self.row.seed,
            addresses=targets.addresses(scenario, self.row.deployment),
            frame=targets.frame(scenario, self.row.deployment),
            dataset=dataset_of(scenario),
            processes=processes,
        )
        path = plan.write()
        told = {"name": "inflight", "processes": processes, "python": platform.python_version()}
        self._keep(
            watch, folder=str(self.folder), log_path=str(output.path), environment=facts(self.row, told)
        )
        step = Step(
            name="load",
            title=_("Send the load"),
            argv=(sys.executable, "-m", "workers.loadgen", str(path)),
            cwd=CHECKOUT,
            env={**plain_environment(), **self._access(scenario)},
            deadline_seconds=scenario.most_seconds + DEADLINE_MARGIN_SECONDS,
            # What measures must not wait behind what is measured; it uses next to nothing.
            niceness=0,
        )
        self._judge(self._supervisor(output, watch).run(step), watch)
        summary: dict[str, Any] = json.loads((self.folder / SUMMARY).read_text(encoding="utf-8"))
        stopped = summary["steps"][-1]["stopped"] == STOPPED
        self._finish(watch, stopped, summary=summary, series=thinned(read_ticks(self.folder)))

    def _ask_to_stop(self) -> None:
        if self.folder.is_dir():
            (self.folder / STOP).touch()

    def _columns(self, done: float, total: float) -> dict[str, Any]:
        return {
            "progress": min(1.0, done / total) if total else None,
            "eta_seconds": max(0.0, total - done),
            "series": read_ticks(self.folder)[-SERIES_POINTS:],
        }


def read_ticks(folder: Path) -> list[dict[str, Any]]:
    """The seconds of a run so far; a line that is being written is left out."""
    found = []
    try:
        for line in (folder / TICKS).read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    except OSError:
        return []
    return found
