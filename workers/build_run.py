"""One attempt at a build, from the claim to the engine's row or to the reason why there is none."""

from __future__ import annotations

import errno
import json
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import DatabaseError, connections
from django.utils.translation import gettext as _

from apps.core.exceptions import InflightError
from apps.diagnosis.domain.rules import diagnose
from apps.engines import attempts, learning, paths
from apps.engines.attempts import Artefact, Claim, Failure
from apps.engines.domain.build_spec import BuildSpec
from apps.engines.selectors import estimated_bytes
from apps.fleet.processes import ProcessIdentity, end_tree, mark_of
from workers.attempt_rows import Ended, refuse_order, write_row
from workers.builders.base import BuildContext, EngineBuilder, Step
from workers.builders.llamacpp import LlamaCppBuilder, serving_python
from workers.host import host_facts
from workers.progress import Progress
from workers.pumps import LogFile
from workers.stopping import stopping
from workers.supervisor import StepResult, Supervisor
from workers.watch import Duties, Watch

log = logging.getLogger(__name__)
BUILDERS: dict[str, EngineBuilder] = {"llamacpp": LlamaCppBuilder()}
CHECKOUT = Path(__file__).resolve().parents[1]
LOG_TAIL_BYTES = 65_536
# Causes that lie with the machine and may be gone at the next try.
RETRIED = frozenset({"killed"})


def run_build(build_id: int, worker: str) -> bool:
    """Claim a build and run it to its end. False where there was nothing to claim. `worker` names us in the audit."""
    claim = attempts.claim_build(build_id, worker)
    if claim is None:
        log.info("Build %d is not to be claimed (any more).", build_id)
        return False
    Attempt(claim, worker).run()
    return True


class Attempt:
    """One claimed attempt."""

    def __init__(self, claim: Claim, worker: str) -> None:
        self.build, self.number, self.worker = claim.build, claim.attempt, worker
        self.previous = claim.previous
        self.spec = BuildSpec.model_validate(claim.build.spec)
        self.folder = paths.build_folder(claim.build.number, claim.attempt)
        self.node_id = claim.build.node.node_id if claim.build.node else settings.INFLIGHT_NODE_ID
        self.notes: list[str] = []
        self.results: dict[str, dict[str, Any]] = {}
        self.timings: dict[str, float] = {}

    def run(self) -> None:
        """Work, then write how it ended; the log stays, the work folder goes."""
        watch = Watch(
            Duties(
                renew=lambda: attempts.renew_build(self.build, self.number),
                cancelled=lambda: attempts.cancel_requested(self.build),
                stopping=stopping,
            )
        )
        watch.start()
        output: LogFile | None = None
        try:
            self._end_previous()
            output = LogFile(self.folder / "log.txt")
            artefact = self._work(output, watch)
            self._write(watch, lambda: attempts.finish_build(self.build, self.number, artefact, self.worker))
            learning.record_build(self.build)
        except Ended as ended:
            self._write_end(watch, ended)
        except OSError as error:
            self._write_end(watch, Ended(_failure_of_os(error)))
        except InflightError as error:
            self._write_end(watch, Ended(Failure(error.code, error.sentence, error.remedy)))
        except SoftTimeLimitExceeded:
            self._write_end(watch, Ended(_out_of_time()))
        except Exception as error:
            # A fault of ours: the row says so at once instead of waiting for its lease to run out.
            log.exception(
                "Build #%d, attempt %d failed in the worker itself.", self.build.number, self.number
            )
            self._write_end(watch, Ended(_failure_of_ours(error)))
        finally:
            watch.stop()
            if output is not None:
                output.close()

    def _end_previous(self) -> None:
        """A new attempt first ends what the last one may have left running on this host."""
        if self.number > 1:
            mark = mark_of(self.node_id, self.build.kind, self.build.pk, self.number - 1)
            end_tree(mark, self.previous, 1.0)

    def _work(self, output: LogFile, watch: Watch) -> Artefact:
        builder = BUILDERS[self.spec.builder]
        context = self._context()
        self._clear()
        context.work.mkdir(parents=True)
        output.say(
            f"build #{self.build.number}, attempt {self.number}, {self.spec.builder} {self.spec.quantization}"
        )
        self._refuse(builder, context)
        steps = builder.plan(self.spec, context)
        stages = [{"name": step.name, "title": step.title, "argv": list(step.argv)} for step in steps]
        self._write(watch, lambda: attempts.record_plan(self.build, self.number, stages, str(output.path)))
        progress = Progress(steps, self._write_progress)
        supervisor = Supervisor(
            mark=mark_of(self.node_id, self.build.kind, self.build.pk, self.number),
            log=output,
            watch=watch,
            record=lambda child: self._record(watch, child),
            progress=progress.update,
        )
        for step in steps:
            progress.begin(step)
            self._run_step(step, steps, context, supervisor, progress)
        artefact = builder.collect(context)
        self._clear()
        reused = bool(self.results.get("publish", {}).get("reused"))
        return Artefact(artefact.path, artefact.size_bytes, artefact.manifest, reused)

    def _run_step(
        self, step: Step, steps: list[Step], context: BuildContext, supervisor: Supervisor, progress: Progress
    ) -> None:
        watch = supervisor.watch
        self._write_plan(context, steps)
        self._write(watch, lambda: attempts.record_stage(self.build, self.number, step.name, "running"))
        began = time.monotonic()
        result = supervisor.run(step)
        self.timings[step.name] = round(time.monotonic() - began, 3)
        self.results[step.name] = result.result
        self.notes += result.notes
        self._judge(step, result, supervisor.log, watch)
        progress.finish()
        done: dict[str, Any] = {"note": " ".join(result.notes)} if result.notes else {}
        self._write(watch, lambda: attempts.record_stage(self.build, self.number, step.name, "done", **done))

    def _judge(self, step: Step, result: StepResult, output: LogFile, watch: Watch) -> None:
        """Raise Ended unless the step ended well."""
        refuse_order(result, watch)
        if result.ending == "deadline":
            sentence = _("%(stage)s ran longer than %(hours)s hours and was ended.")
            hours = f"{step.deadline_seconds / 3600:.1f}"
            raise Ended(
                Failure(
                    "deadline",
                    sentence % {"stage": step.title, "hours": hours},
                    _("See the log for what it waited for; then try again."),
                )
            )
        if result.failure is not None:
            raise Ended(_failure_of_event(result.failure))
        if result.exit_code != 0:
            raise Ended(_failure_of_log(step, result.exit_code, output))
        missing = next((path for path in step.outputs if not path.exists()), None)
        if missing is not None:
            raise Ended(
                Failure(
                    "output_missing",
                    _("%(stage)s ended well but left no %(file)s.")
                    % {"stage": step.title, "file": missing.name},
                    _("Try again; look for something else that removes files under builds/."),
                    retry=True,
                )
            )

    def _refuse(self, builder: EngineBuilder, context: BuildContext) -> None:
        error = next(
            (found for found in builder.check(self.spec, context) if found.severity == "error"), None
        )
        if error is not None:
            raise Ended(Failure(error.id, error.message, error.remedy))

    def _context(self) -> BuildContext:
        return BuildContext(
            number=self.build.number,
            attempt=self.number,
            fingerprint=self.build.fingerprint,
            folder=self.folder,
            engines=paths.engines_folder(),
            checkout=CHECKOUT,
            serving_python=serving_python(),
            node=host_facts(self.node_id),
            engine_bytes=estimated_bytes(self.build.checkpoint, self.spec.quantization),
        )

    def _write_plan(self, context: BuildContext, steps: list[Step]) -> None:
        """What the manifest says about how it was made; rewritten before each stage, read by the last."""
        plan = {
            "build": {"number": self.build.number, "attempt": self.number},
            "builder": {"name": self.spec.builder, "version": self.spec.builder_version},
            "quantization": self.spec.quantization,
            "options": self.spec.options,
            "source": {"checkpoint": self.spec.checkpoint, "path": self.spec.path}
            | {key: self.results.get("inspect", {}).get(key) for key in ("sha256", "size_bytes")},
            "tensor_types": self.results.get("convert", {}).get("tensor_types"),
            "notes": self.results.get("convert", {}).get("notes", []),
            "verified": self.results.get("verify"),
            "argv": {step.name: list(step.argv) for step in steps},
            "seconds": self.timings,
            "node": dict(context.node),
        }
        context.plan_file.write_text(json.dumps(plan, indent=2), encoding="utf-8")

    def _write_progress(self, progress: float | None, rate: float | None, eta: float | None) -> None:
        """Progress may be lost; nothing depends on it."""
        try:
            attempts.record_progress(self.build, self.number, progress, rate, eta)
        except DatabaseError as error:
            log.warning("Progress of build #%d was not written: %s", self.build.number, error)
            connections.close_all()

    def _write(self, watch: Watch, write: Callable[[], bool]) -> None:
        """Write to the row; see attempt_rows."""
        write_row(f"build #{self.build.number}", watch, write)

    def _record(self, watch: Watch, child: ProcessIdentity) -> bool:
        """Put a child's identity on the row; False where it may not run."""
        try:
            self._write(watch, lambda: attempts.record_child(self.build, self.number, child))
        except Ended:
            return False
        return True

    def _clear(self) -> None:
        """Remove what was half made, before the row says that the attempt has ended."""
        shutil.rmtree(self.folder / "work", ignore_errors=True)

    def _write_end(self, watch: Watch, ended: Ended) -> None:
        """Write how the attempt ended. Where the lease is lost nothing is ours to write any more."""
        self._clear()
        build, number = self.build, self.number
        if ended.failure is not None:
            failure = ended.failure
            write = lambda: attempts.fail_build(build, number, failure, self.worker)  # noqa: E731
        elif ended.order == "cancelled":
            write = lambda: attempts.end_cancelled(build, number, self.worker)  # noqa: E731
        elif ended.order == "stopped":
            why = Failure(
                "worker_stopped", _("The worker stopped; the build begins again with the next one.")
            )
            write = lambda: attempts.requeue_build(build, number, why, self.worker, counted=False)  # noqa: E731
        else:
            log.warning("Build #%d, attempt %d: the lease was lost.", build.number, number)
            return
        try:
            self._write(watch, write)
        except Ended:
            log.warning("Build #%d, attempt %d: its end could not be written.", build.number, number)


def _out_of_time() -> Failure:
    return Failure(
        "deadline",
        _("The build ran longer than a day and was ended."),
        _("See the log for what it waited for; then try again."),
    )


def _failure_of_ours(error: Exception) -> Failure:
    return Failure(
        "internal_error",
        _("The worker itself failed: %(error)s.") % {"error": f"{type(error).__name__}: {error}"},
        _("Report it with the worker's log under logs/, then try again."),
    )


def _failure_of_event(event: dict[str, Any]) -> Failure:
    reason = str(event.get("reason", "step_failed"))
    return Failure(
        reason, str(event.get("sentence", "")), str(event.get("remedy", "")), retry=reason in RETRIED
    )


def _failure_of_log(step: Step, exit_code: int | None, output: LogFile) -> Failure:
    """A step that said nothing: its log's cause, else its last line."""
    text = output.tail(LOG_TAIL_BYTES)
    verdict = diagnose(text, "build", exit_code)
    found = verdict.diagnosis
    if found is not None:
        evidence = f" {found.evidence[0].text}" if found.evidence else ""
        return Failure(
            found.id,
            f"{found.title}{evidence}",
            found.remedies[0],
            retry=found.id in RETRIED,
            diagnosis=found.as_dict(),
        )
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    return Failure(
        "step_failed",
        _("%(stage)s ended with exit code %(code)s. Its last line: %(line)s")
        % {"stage": step.title, "code": exit_code, "line": last[:300]},
        _("See the log; then try again or change the profile."),
    )


def _failure_of_os(error: OSError) -> Failure:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Failure(
            "disk_full",
            _("The disk is full at %(path)s.") % {"path": error.filename or settings.INFLIGHT_HOME},
            _("Delete engines that are no longer needed, or free space on that disk, then try again."),
        )
    transient = error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
    return Failure(
        "worker_cannot_work",
        _("The worker cannot work on it: %(why)s (%(path)s).")
        % {"why": error.strerror or error, "path": error.filename or "-"},
        _("See the worker's log; check the rights and limits of the user that runs it."),
        retry=transient,
    )
