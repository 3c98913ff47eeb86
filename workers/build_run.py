"""One attempt at a build, from the claim to the engine's row or to the reason why there is none."""

from __future__ import annotations

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

from apps.core.exceptions import Finding, InflightError
from apps.engines import attempts, history, learning, paths, stages
from apps.engines.attempts import Artefact, Claim, Failure
from apps.engines.domain.trtllm.spec import TrtllmSpec
from apps.engines.frozen import read_spec
from apps.engines.requests import model_facts
from apps.engines.selectors import estimated_bytes
from apps.engines.sharing import transfer
from apps.fleet.containers import end_containers
from apps.fleet.leases import leased_gpus
from apps.fleet.models import Toolchain
from apps.fleet.processes import ProcessIdentity, end_tree, mark_of
from apps.fleet.toolchains import container_programs
from workers.attempt_rows import Ended, refuse_order, write_row
from workers.build_failures import failure_of_os, failure_of_ours, failure_of_step, out_of_time
from workers.builders.base import BuildContext, EngineBuilder, Step
from workers.builders.llamacpp import LlamaCppBuilder, serving_python
from workers.builders.publishing import whole
from workers.builders.trtllm import TrtllmBuilder
from workers.host import host_facts
from workers.progress import Progress
from workers.pumps import LogFile
from workers.stopping import stopping
from workers.supervisor import StepResult, Supervisor
from workers.watch import Duties, Watch

log = logging.getLogger(__name__)
BUILDERS: dict[str, EngineBuilder] = {"llamacpp": LlamaCppBuilder(), "trtllm": TrtllmBuilder()}
CHECKOUT = Path(__file__).resolve().parents[1]
# Failures that say nothing about what a stage looked at.
OF_THE_MACHINE = frozenset({"killed", "disk_full", "host_out_of_memory", "deadline"})


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
        self.spec = read_spec(claim.build.spec)
        self.folder = paths.build_folder(claim.build.number, claim.attempt)
        self.node_id = claim.build.node.node_id if claim.build.node else settings.INFLIGHT_NODE_ID
        self.mark = mark_of(self.node_id, claim.build.kind, claim.build.pk, claim.attempt)
        self.notes: list[str] = []
        self.results: dict[str, dict[str, Any]] = {}
        self.timings: dict[str, float] = {}
        self.usage: dict[str, dict[str, int]] = {}
        self._running = ""

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
            self._share(artefact, output)
            self._write(watch, lambda: attempts.finish_build(self.build, self.number, artefact, self.worker))
            learning.record_build(self.build)
        except Ended as ended:
            self._write_end(watch, ended)
        except OSError as error:
            self._write_end(watch, Ended(failure_of_os(error)))
        except InflightError as error:
            self._write_end(watch, Ended(Failure(error.code, error.sentence, error.remedy)))
        except SoftTimeLimitExceeded:
            self._write_end(watch, Ended(out_of_time()))
        except Exception as error:
            # A fault of ours: the row says so at once instead of waiting for its lease to run out.
            log.exception(
                "Build #%d, attempt %d failed in the worker itself.", self.build.number, self.number
            )
            self._write_end(watch, Ended(failure_of_ours(error)))
        finally:
            watch.stop()
            if output is not None:
                output.close()

    def _end_previous(self) -> None:
        """A new attempt first ends what the last one may have left running on this host."""
        if self.number > 1:
            mark = mark_of(self.node_id, self.build.kind, self.build.pk, self.number - 1)
            end_containers(mark, container_programs(self.build.node))
            end_tree(mark, self.previous, 1.0)
            left = paths.build_folder(self.build.number, self.number - 1)
            shutil.rmtree(left / "work", ignore_errors=True)

    def _work(self, output: LogFile, watch: Watch) -> Artefact:
        builder = BUILDERS[self.spec.builder]
        context = self._context()
        self._clear()
        context.work.mkdir(parents=True)
        output.say(
            f"build #{self.build.number}, attempt {self.number}, {self.spec.builder} {self.spec.quantization}"
        )
        if not whole(context.engines / context.fingerprint, context.fingerprint):
            self._make(builder, context, output, watch)
        else:
            output.say("The engine is published already; an attempt before this one came that far.")
        artefact = builder.collect(context)
        self._clear()
        reused = bool(self.results.get("publish", {}).get("reused"))
        return Artefact(artefact.path, artefact.size_bytes, artefact.manifest, reused)

    def _share(self, artefact: Artefact, output: LogFile) -> None:
        """Put the engine into the hosts' store, if there is one, before anybody may place it elsewhere.

        A store that is away costs the other hosts a fetch, not this build its engine.
        """
        try:
            sent = transfer.push(Path(artefact.path), artefact.manifest)
        except InflightError as error:
            output.say(f"Not in the store: {error.sentence} {error.remedy}")
        else:
            if sent:
                output.say(f"Put {sent} bytes into the store.")

    def _make(self, builder: EngineBuilder, context: BuildContext, output: LogFile, watch: Watch) -> None:
        """Run every step whose outputs are not kept from before."""
        self._refuse(builder, context, output)
        steps = builder.plan(self.spec, context)
        facts = builder.facts(self.spec, context)
        rows = [{"name": step.name, "title": step.title, "argv": list(step.words)} for step in steps]
        self._write(watch, lambda: attempts.record_plan(self.build, self.number, rows, str(output.path)))
        progress = Progress(steps, self._write_progress, context.expected)
        supervisor = Supervisor(
            mark=self.mark,
            log=output,
            watch=watch,
            record=lambda child: self._record(watch, child),
            progress=progress.update,
            doing=self._write_doing,
        )
        for step in self._still_to_do(steps, output, watch, progress):
            progress.begin(step)
            self._write_plan(context, steps, facts)
            self._run_step(step, supervisor, progress)

    def _still_to_do(
        self, steps: list[Step], output: LogFile, watch: Watch, progress: Progress
    ) -> list[Step]:
        """The steps after the last kept one; a step before it whose outputs are not kept has done its work in it."""
        kept = [step for step in steps if step.key and stages.use_stage(step.key) is not None]
        if not kept:
            return steps
        done = steps[: steps.index(kept[-1]) + 1]
        for step in done:
            stage = stages.find_stage(step.key) if step.key else None
            progress.skip(step)
            if stage is None:
                self._write(watch, self._stage_writer(step, "skipped", {"kept": True}))
                continue
            self.results |= stage.facts
            if stage.seconds is not None:
                self.timings[step.name] = stage.seconds
            output.say(f"{step.title}: kept from build #{stage.build}, in {stage.path}")
            note = _("Kept from build #%(number)s.") % {"number": stage.build}
            self._write(watch, self._stage_writer(step, "done", {"kept": True, "note": note}))
        return steps[len(done) :]

    def _stage_writer(self, step: Step, state: str, more: dict[str, Any]) -> Callable[[], bool]:
        return lambda: attempts.record_stage(self.build, self.number, step.name, state, **more)

    def _run_step(self, step: Step, supervisor: Supervisor, progress: Progress) -> None:
        watch = supervisor.watch
        self._running = step.name
        self._write(watch, self._stage_writer(step, "running", {}))
        began = time.monotonic()
        result = supervisor.run(step)
        seconds = self.timings[step.name] = round(time.monotonic() - began, 3)
        self.results[step.name] = result.result
        self.usage[step.name] = result.usage.as_dict()
        self.notes += result.notes
        self._judge(step, result, supervisor.log, watch)
        if step.key and step.keep is not None:
            # Only the lease's holder may move it; the stage is another's from here on, whoever ends this attempt.
            stages.keep_stage(
                step.key,
                step.name,
                step.keep,
                build=self.build.number,
                facts=self.results,
                seconds=seconds,
            )
        progress.finish()
        done: dict[str, Any] = {"note": " ".join(result.notes)} if result.notes else {}
        if result.doing:
            done["doing"] = result.doing
        self._write(watch, self._stage_writer(step, "done", {**result.usage.as_dict(), **done}))

    def _judge(self, step: Step, result: StepResult, output: LogFile, watch: Watch) -> None:
        """Raise Ended unless the step ended well."""
        refuse_order(result, watch)
        failure = failure_of_step(step, result, output)
        if failure is None:
            return
        for key in step.judges if failure.reason not in OF_THE_MACHINE else ():
            output.say("What this stage looked at is not used again.")
            stages.remove_stage(key)
        self._write(watch, self._stage_writer(step, "running", result.usage.as_dict()))
        raise Ended(failure)

    def _refuse(self, builder: EngineBuilder, context: BuildContext, output: LogFile) -> None:
        found = builder.check(self.spec, context)
        error = next((finding for finding in found if finding.severity == "error"), None)
        if error is not None:
            raise Ended(Failure(error.id, error.message, error.remedy))
        for finding in found:
            output.say(_said(finding))

    def _context(self) -> BuildContext:
        row = None
        if isinstance(self.spec, TrtllmSpec):
            row = Toolchain.objects.filter(node=self.build.node, name=self.spec.toolchain).first()
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
            mark=self.mark,
            toolchain=row,
            gpus=tuple(gpu.uuid or str(gpu.index) for gpu in leased_gpus(self.build, self.number)),
            facts=model_facts(self.build.checkpoint) if row is not None else None,
            stages=stages.stages_folder(),
            expected=self._expected(),
        )

    def _expected(self) -> dict[str, float]:
        """Seconds of each stage by builds of this shape; what is known of them may not keep a build from running."""
        try:
            return history.stage_seconds(self.build)
        except (DatabaseError, TypeError, ValueError) as error:
            log.warning("What builds like #%d took cannot be told: %s", self.build.number, error)
            return {}

    def _write_plan(self, context: BuildContext, steps: list[Step], facts: dict[str, Any]) -> None:
        """What the manifest says about how it was made; rewritten before each stage, read by the last."""
        plan = {
            "build": {"number": self.build.number, "attempt": self.number},
            "builder": {"name": self.spec.builder, "version": self.spec.builder_version},
            "quantization": self.spec.quantization,
            "options": getattr(self.spec, "options", {}),
            "source": {
                **dict.fromkeys(("sha256", "size_bytes")),
                "checkpoint": self.spec.checkpoint,
                "path": self.spec.path,
                **self.spec.source,
                **self.results.get("inspect", {}),
            },
            "tensor_types": self.results.get("convert", {}).get("tensor_types"),
            "notes": self.results.get("convert", {}).get("notes", []),
            "verified": self.results.get("verify"),
            "argv": {step.name: list(step.words) for step in steps},
            "seconds": self.timings,
            "usage": self.usage,
            "node": dict(context.node),
            **facts,
        }
        context.plan_file.write_text(json.dumps(plan, indent=2), encoding="utf-8")

    def _write_progress(self, progress: float | None, rate: float | None, eta: float | None) -> None:
        """Progress may be lost; nothing depends on it."""
        try:
            attempts.record_progress(self.build, self.number, progress, rate, eta)
        except DatabaseError as error:
            log.warning("Progress of build #%d was not written: %s", self.build.number, error)
            connections.close_all()

    def _write_doing(self, text: str) -> None:
        """What the running stage does now; it may be lost, as progress may."""
        try:
            attempts.record_stage(self.build, self.number, self._running, "running", doing=text)
        except DatabaseError as error:
            log.warning("What build #%d does was not written: %s", self.build.number, error)
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


def _said(finding: Finding) -> str:
    return f"{finding.severity}: {finding.message} {finding.remedy}".rstrip()
