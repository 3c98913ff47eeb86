"""One attempt at a load run: claim, plan, the generator as a supervised child, its summary, or the reason why not."""

from __future__ import annotations

import json
import logging
import os
import platform
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import DatabaseError, connections
from django.utils.translation import gettext as _

from apps.core.exceptions import InflightError
from apps.engines.attempts import Renewal
from apps.fleet.processes import ProcessIdentity, end_tree, mark_of
from apps.gateway import services as gateway
from apps.gateway.models import GatewayKey
from apps.loadtests import attempts, inputs, selectors, studies, tuning_steps
from apps.loadtests.attempts import Claim, Failure
from apps.loadtests.domain.scenario import Scenario
from apps.loadtests.models import LoadRun
from apps.loadtests.policy import DEADLINE_MARGIN_SECONDS, SERIES_EVERY_SECONDS, SERIES_POINTS, STOP_SECONDS
from apps.serving import selectors as serving
from workers.attempt_rows import Ended, refuse_order, write_row
from workers.builders.base import Step
from workers.loadgen import targets
from workers.loadgen.plan import KEY, STOP, SUMMARY, TICKS, Plan, processes_for
from workers.pumps import LogFile
from workers.stopping import stopping
from workers.supervisor import StepResult, Supervisor
from workers.watch import Duties, Watch

log = logging.getLogger(__name__)
CHECKOUT = Path(__file__).resolve().parents[1]
# Gateways know of a new key within 2 s (apps/gateway/table.py).
KEY_KNOWN_SECONDS = 2.5
# Why a step of the generator's own choosing ended before its time.
STOPPED = "stop"


def run_load(run_id: int, worker: str) -> bool:
    """Claim a queued run and make it. False where there was nothing to claim."""
    claim = attempts.claim_run(run_id, worker, settings.INFLIGHT_NODE_ID)
    if claim is None:
        log.info("Run %d is not to be made (any more).", run_id)
        return False
    Attempt(claim, worker).run()
    row = selectors.runs().get(pk=run_id)
    if row.is_terminal:
        studies.after_run(row)
        tuning_steps.after_run(row)
    return True


class Attempt:
    """One claimed attempt."""

    row: Any
    # Whether what an attempt before wrote stays.
    keeps_folder = False

    def __init__(self, claim: Claim, worker: str) -> None:
        self.row, self.number, self.worker, self.previous = claim.run, claim.attempt, worker, claim.previous
        self.folder = selectors.runs_folder() / f"{self.row.number}-{self.number}"
        self.stop_seen: float | None = None
        self.written_at = 0.0
        self.key: GatewayKey | None = None

    def run(self) -> None:
        """Work, then write how it ended."""
        watch = Watch(
            Duties(
                renew=lambda: Renewal(attempts.renew_run(self.row, self.number), False),
                cancelled=self._stop_is_overdue,
                stopping=stopping,
            )
        )
        watch.start()
        output: LogFile | None = None
        try:
            self._end_previous()
            if not self.keeps_folder:
                shutil.rmtree(self.folder, ignore_errors=True)
            output = LogFile(self.folder / "log.txt")
            self._work(output, watch)
        except Ended as ended:
            self._write_end(watch, ended)
        except InflightError as error:
            self._write_end(watch, Ended(Failure(error.code, error.sentence, error.remedy)))
        except SoftTimeLimitExceeded:
            self._write_end(watch, Ended(_deadline()))
        except Exception as error:
            # A fault of ours: the row says so at once instead of waiting for its lease to run out.
            log.exception("Run #%d, attempt %d failed in the worker itself.", self.row.number, self.number)
            self._write_end(watch, Ended(_failure_of_ours(error)))
        finally:
            watch.stop()
            self._revoke()
            if output is not None:
                output.close()

    def _end_previous(self) -> None:
        """A new attempt first ends what the last one may have left running on this host."""
        if self.number > 1:
            end_tree(self._mark(self.number - 1), self.previous, 1.0)

    def _mark(self, attempt: int) -> str:
        return mark_of(settings.INFLIGHT_NODE_ID, self.row.kind, self.row.pk, attempt)

    def _work(self, output: LogFile, watch: Watch) -> None:
        scenario = inputs.scenario(self.row.scenario)
        processes = processes_for(scenario, os.cpu_count() or 1)
        environ = {**_environment(), **self._access(scenario)}
        plan = Plan(
            folder=self.folder,
            scenario=scenario,
            seed=self.row.seed,
            addresses=targets.addresses(scenario, self.row.deployment),
            frame=targets.frame(scenario, self.row.deployment),
            dataset=str(selectors.datasets_folder() / scenario.prompts.dataset)
            if scenario.prompts.dataset
            else "",
            processes=processes,
        )
        path = plan.write()
        self._keep(
            watch, folder=str(self.folder), log_path=str(output.path), environment=_facts(self.row, processes)
        )
        supervisor = Supervisor(
            mark=self._mark(self.number),
            log=output,
            watch=watch,
            record=lambda child: self._record(watch, child),
            progress=self._progress,
        )
        result = supervisor.run(
            Step(
                name="load",
                title=_("Send the load"),
                argv=(sys.executable, "-m", "workers.loadgen", str(path)),
                cwd=CHECKOUT,
                env=environ,
                deadline_seconds=scenario.most_seconds + DEADLINE_MARGIN_SECONDS,
                # What measures must not wait behind what is measured; it uses next to nothing.
                niceness=0,
            )
        )
        self._judge(result, watch)
        self._finish(watch)

    def _access(self, scenario: Scenario) -> dict[str, str]:
        """The environment variable with a key of the run's own, where the load goes through the gateway."""
        if scenario.via != "gateway":
            return {}
        owner = self.row.requested_by or targets.any_administrator()
        name = f"load run {self.row.number}"
        self.key, raw = gateway.create_key("load worker", {"name": name, "routes": [scenario.target]}, owner)
        time.sleep(KEY_KNOWN_SECONDS)
        return {KEY: raw}

    def _revoke(self) -> None:
        if self.key is not None:
            try:
                gateway.revoke_key("load worker", self.key)
            except (InflightError, DatabaseError):
                log.exception("The key of run #%d was not revoked.", self.row.number)

    def _judge(self, result: StepResult, watch: Watch) -> None:
        # First: a worker that stops ends the generator's processes, which then say that they died.
        refuse_order(result, watch)
        if result.failure is not None:
            if self.stop_seen is not None:
                raise Ended(None, "cancelled")
            told = result.failure
            raise Ended(
                Failure(str(told.get("reason")), str(told.get("sentence")), str(told.get("remedy") or ""))
            )
        if result.ending == "deadline":
            raise Ended(_deadline())
        if result.exit_code != 0:
            raise Ended(
                Failure(
                    "generator_died",
                    _("The generator ended with exit code %(code)s.") % {"code": result.exit_code},
                    _("See the run's log."),
                    retry=True,
                )
            )

    def _finish(self, watch: Watch) -> None:
        summary: dict[str, Any] = json.loads((self.folder / SUMMARY).read_text(encoding="utf-8"))
        stopped = summary["steps"][-1]["stopped"] == STOPPED
        columns: dict[str, Any] = {"summary": summary, "series": thinned(read_ticks(self.folder))}
        if stopped:
            columns |= {
                "reason": "stopped",
                "sentence": _("Stopped before its time; what it had measured is kept."),
            }
        self._write(watch, lambda: attempts.finish_run(self.row, self.number, self.worker, **columns))

    # ------------------------------------------------------------------ the row

    def _stop_is_overdue(self) -> bool:
        """Pass a stop on to the generator, which sums up; True where it takes too long over that."""
        if self.stop_seen is None:
            if not attempts.stop_requested(self.row):
                return False
            self.stop_seen = time.monotonic()
            if self.folder.is_dir():
                (self.folder / STOP).touch()
        return time.monotonic() - self.stop_seen > STOP_SECONDS

    def _progress(self, done: float, total: float) -> None:
        """Progress and the live points, every two seconds. They may be lost; nothing depends on them."""
        now = time.monotonic()
        if now - self.written_at < SERIES_EVERY_SECONDS:
            return
        self.written_at = now
        try:
            attempts.record_run(self.row, self.number, **self._columns(done, total))
        except DatabaseError as error:
            log.warning("Progress of run #%d was not written: %s", self.row.number, error)
            connections.close_all()

    def _columns(self, done: float, total: float) -> dict[str, Any]:
        """What the row says of how far it is."""
        return {
            "progress": min(1.0, done / total) if total else None,
            "eta_seconds": max(0.0, total - done),
            "series": read_ticks(self.folder)[-SERIES_POINTS:],
        }

    def _keep(self, watch: Watch, **columns: Any) -> None:
        self._write(watch, lambda: attempts.record_run(self.row, self.number, **columns))

    def _record(self, watch: Watch, child: ProcessIdentity) -> bool:
        """Put a child's identity on the row; False where it may not run."""
        try:
            self._keep(watch, child_pid=child.pid, child_created=child.created, child_group=child.group)
        except Ended:
            return False
        return True

    def _write(self, watch: Watch, write: Any) -> None:
        write_row(str(self.row), watch, write)

    def _write_end(self, watch: Watch, ended: Ended) -> None:
        """Write how the attempt ended. Where the lease is lost nothing is ours to write any more."""
        row, number, worker = self.row, self.number, self.worker
        if ended.failure is not None:
            failure = ended.failure
            write = lambda: attempts.fail_run(row, number, failure, worker)  # noqa: E731
        elif ended.order == "cancelled":
            said = _("Stopped before it had measured anything.")
            write = lambda: attempts.cancel_run(row, number, said, worker)  # noqa: E731
        elif ended.order == "stopped":
            why = Failure("worker_stopped", _("The worker stopped; the run begins again with the next one."))
            write = lambda: attempts.requeue_run(row, number, why, worker, retries=row.retries)  # noqa: E731
        else:
            log.warning("Run #%d, attempt %d: the lease was lost.", row.number, number)
            return
        try:
            self._write(watch, write)
        except Ended:
            log.warning("Run #%d, attempt %d: its end could not be written.", row.number, number)


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


def thinned(ticks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most SERIES_POINTS of the seconds, evenly."""
    step = -(-len(ticks) // SERIES_POINTS) if ticks else 1
    return ticks[::step]


def _facts(row: LoadRun, processes: int) -> dict[str, Any]:
    """What answered the load, and on what: what a comparison's difference is made of."""
    found: dict[str, Any] = {
        "generator": {"processes": processes, "python": platform.python_version()},
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


def _environment() -> dict[str, str]:
    return {"PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}


def _deadline() -> Failure:
    return Failure(
        "deadline",
        _("It ran longer than its scenario allows and was ended."),
        _("See the run's log; the target may have stopped answering."),
    )


def _failure_of_ours(error: Exception) -> Failure:
    return Failure(
        "internal_error",
        _("The worker itself failed: %(error)s.") % {"error": f"{type(error).__name__}: {error}"},
        _("Report it with the worker's log under logs/, then try again."),
    )
