"""The next step of one instance: what its state, its process and its server's own words ask for.

placed -> spawned -> loading -> serving -> draining -> gone; failed from each of them. Every write is guarded by the
state and attempt that were read, so a second writer loses.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from datetime import timedelta
from typing import Any

from django.db import transaction

from apps.core import clock
from apps.core.exceptions import InflightError
from apps.core.transitions import amend, transition
from apps.serving import crashes, policies, states
from apps.serving import reconcile as rows_side
from apps.serving.domain import leaks
from apps.serving.models import Instance
from workers import engine_guard, failures, gpu_memory, load_measures
from workers.instance_looks import Looks
from workers.instance_spec import server_identity, server_ports, server_spec
from workers.runtimes import processes, spawn
from workers.runtimes.arguments import EXIT_SECONDS
from workers.runtimes.base import Failure, Identity, Launch, Observation, ServerFailure
from workers.runtimes.jobs import Jobs
from workers.runtimes.triton import TritonRuntime
from workers.server_policy import version_refused

log = logging.getLogger(__name__)

ACTOR = "ctl"
START_SECONDS = 60.0
LOAD_SECONDS = 1800.0
PROBE_SECONDS = 120.0
PREPARE_SECONDS = 60.0
# A server that says nothing for this long is ended; one whose model is not ready, for this long.
SILENT_SECONDS = 30.0
UNREADY_SECONDS = 10.0
# A model that computes nothing for so long while requests are in it is asked for a token, an idle one so often; each
# has so long to answer, and so many unanswered in a row are a hang. A long prompt moves no figure before its end.
STILL_SECONDS = 20.0
IDLE_PROBE_SECONDS = 60.0
ALIVE_SECONDS = 12.0
PROBES_MISSED = 2
# Routers may have read "serving" just before: the first look that counts is this long after draining began.
ROUTERS_SETTLE_SECONDS = 1.0
KILL_AFTER_SECONDS = EXIT_SECONDS + 5.0
PORT_TRIES = 3
# How long a process that has died may take until the kernel tells its exit code; less than a tick.
REAP_SECONDS = 0.5


class Stepper:
    """Moves instances on. Remembers only running jobs and since when a server has been silent."""

    def __init__(self, runtime: TritonRuntime, jobs: Jobs | None = None) -> None:
        self.runtime = runtime
        self.jobs = jobs or Jobs()
        # Monotonic time until which a step may wait for a job; the tick sets it.
        self.until = 0.0
        self.looks = Looks(runtime, self.jobs)
        self._steps: dict[str, Callable[[Instance], bool]] = {
            states.PLACED: self._placed,
            states.SPAWNED: self._spawned,
            states.LOADING: self._loading,
            states.SERVING: self._serving,
            states.DRAINING: self._draining,
            states.UNREACHABLE: self._unreachable,
            states.FAILED: self._failed,
        }

    def _alive(self, row: Instance) -> bool:
        identity = server_identity(row)
        return identity is not None and self.runtime.adopt(identity)

    def _key(self, row: Instance, kind: str) -> tuple[str, int, str]:
        return (row.uid, row.attempt, kind)

    def _wait(self, key: Hashable, seconds: float) -> None:
        """Give a job a moment, so that what is quick needs no second tick."""
        self.jobs.wait([key], max(0.0, min(seconds, self.until - time.monotonic())))

    # ------------------------------------------------------------------ steps

    def step(self, row: Instance) -> bool:
        """Take the next step of a row if there is one; True where its state changed."""
        handler = self._steps.get(row.state)
        return handler(row) if handler is not None else False

    def _placed(self, row: Instance) -> bool:
        key = self._key(row, "prepare")
        if not self.jobs.knows(key):
            unfit = engine_guard.refusal(row)
            if unfit is not None:
                return self._fail(row, unfit)
            try:
                spec = server_spec(row, whole=True)
            except (ServerFailure, InflightError, OSError) as error:
                return self._fail(row, failures.of_start(error))
            self.jobs.start(key, lambda: self.runtime.prepare(spec))
        self._wait(key, 0.4)
        try:
            launch = self.jobs.take(key)
        except (ServerFailure, InflightError, OSError) as error:
            return self._fail(row, failures.of_start(error))
        except Exception as error:
            log.exception("instance %s cannot be prepared", row.uid)
            return self._fail(row, failures.of_start(error))
        if launch is None:
            if _age(row) > PREPARE_SECONDS:
                return self._fail(row, failures.prepare_timeout())
            return False
        return self._spawn(row, launch, states.PLACED)

    def _spawn(self, row: Instance, launch: Launch, source: str) -> bool:
        """Start the process; the row carries its identity before the server's first instruction."""

        def record(identity: Identity) -> bool:
            attempt = row.attempt + 1
            changes: dict[str, Any] = {
                "pid": identity.pid,
                "process_created": identity.created,
                "process_group": identity.pid,
                "http_port": launch.ports.http,
                "grpc_port": launch.ports.grpc,
                "metrics_port": launch.ports.metrics,
                "folder": launch.cwd,
                "log_path": str(launch.log),
            }
            with transaction.atomic():
                mine = Instance.objects.filter(pk=row.pk, state=source, attempt=row.attempt)
                if not mine.update(attempt=attempt):
                    return False
                if source == states.SPAWNED:
                    return amend(row, attempt=attempt, states=[source], **changes)
                return transition(
                    row, states.SPAWNED, actor=ACTOR, sources=[source], attempt=attempt, **changes
                )

        return self.runtime.ensure_started(server_spec(row), launch, record)

    def _spawned(self, row: Instance) -> bool:
        if not self._alive(row):
            return self._died_at_start(row)
        seen = self.looks.of(row)
        if seen is None or not seen.live:
            if _age(row) > START_SECONDS:
                return self._fail(row, failures.start_timeout(START_SECONDS))
            return False
        version = seen.version or ""
        refused = version_refused(version, row.node)
        if refused is not None:
            return self._fail(row, refused)
        self._start_load(row)
        return transition(
            row,
            states.LOADING,
            actor=ACTOR,
            sources=[states.SPAWNED],
            attempt=row.attempt,
            server_version=version,
        )

    def _died_at_start(self, row: Instance) -> bool:
        code = spawn.exit_code(row.pid, REAP_SECONDS) if row.pid is not None else None
        text = failures.log_tail(server_spec(row).log)
        if not failures.port_taken(text):
            return self._fail(row, failures.at_start(code, text), code)
        if row.attempt >= PORT_TRIES:
            return self._fail(row, failures.ports_taken(PORT_TRIES), code)
        failures.set_log_aside(server_spec(row).log)
        try:
            launch = self.runtime.prepare(server_spec(row, whole=True))
        except (ServerFailure, InflightError, OSError) as error:
            return self._fail(row, failures.of_start(error), code)
        self._spawn(row, launch, states.SPAWNED)
        return False

    def _start_load(self, row: Instance) -> None:
        spec, ports = server_spec(row), server_ports(row)
        failures.mark_load(spec.folder, spec.log, gpu_memory.used_bytes(row.gpu, self._pids(row)))
        self.jobs.start(self._key(row, "load"), lambda: (self.runtime.load(spec, ports, LOAD_SECONDS),))

    def _loading(self, row: Instance) -> bool:
        if not self._alive(row):
            return self._crashed(row)
        seen = self.looks.of(row)
        answer: tuple[Failure | None] | None = self.jobs.take(self._key(row, "load"))
        if answer is not None:
            if answer[0] is not None and answer[0].reason != "load_unanswered":
                return self._fail(row, answer[0])
            # What was seen may be older than this answer: look again first.
            return False
        if seen is None or seen.model is None:
            if self.looks.for_seconds(row, "silent", True) > SILENT_SECONDS:
                return self._fail(row, failures.not_answering(SILENT_SECONDS))
            return False
        self.looks.for_seconds(row, "silent", False)
        if seen.model == "ready":
            return self._probe(row)
        waiting = self.jobs.knows(self._key(row, "load"))
        if seen.model == "unavailable" and not waiting:
            return self._fail(row, failures.load_refused(seen.model_reason))
        if seen.model == "absent" and not waiting:
            # This process does not know of a load: it took over from one that died before asking.
            self._start_load(row)
        if _age(row) > LOAD_SECONDS:
            return self._fail(row, failures.load_timeout(LOAD_SECONDS))
        return False

    def _probe(self, row: Instance) -> bool:
        key = self._key(row, "probe")
        if not self.jobs.knows(key):
            spec, ports = server_spec(row), server_ports(row)
            self.jobs.start(key, lambda: (self.runtime.probe(spec, ports, PROBE_SECONDS),))
        self._wait(key, 0.3)
        answer: tuple[Failure | None] | None = self.jobs.take(key)
        if answer is None:
            return False
        if answer[0] is not None:
            return self._fail(row, answer[0])
        serving = transition(
            row,
            states.SERVING,
            actor=ACTOR,
            sources=[states.LOADING],
            attempt=row.attempt,
            serving_since=clock.now(),
        )
        if serving:
            load_measures.measure(row)
        return serving

    def _serving(self, row: Instance) -> bool:
        if not self._alive(row):
            return self._crashed(row)
        identity = server_identity(row)
        if identity is not None and self.runtime.model_process_runs(identity) is False:
            return self._fail(row, failures.model_process_died())
        seen = self.looks.of(row)
        if self.looks.for_seconds(row, "silent", seen is None or not seen.live) > SILENT_SECONDS:
            return self._fail(row, failures.not_answering(SILENT_SECONDS))
        # It lives and says nothing of its model: its index hangs.
        mute = seen is not None and seen.live and seen.model is None
        if self.looks.for_seconds(row, "mute", mute) > SILENT_SECONDS:
            return self._fail(row, failures.not_answering(SILENT_SECONDS))
        if seen is not None and self._is_hung(row, seen):
            return self._fail(row, failures.hung(PROBES_MISSED))
        unready = seen is not None and seen.model not in (None, "ready")
        if self.looks.for_seconds(row, "unready", unready) > UNREADY_SECONDS:
            return self._fail(row, failures.model_not_ready(seen.model_reason if seen else ""))
        return False

    def _is_hung(self, row: Instance, seen: Observation) -> bool:
        """Whether a server that says that it is ready generates nothing. Only generating proves a model.

        One whose figures move is at work and is not asked. One that stands still with requests in it is asked soon,
        an idle one now and then; it is hung when several probes in a row stay unanswered and nothing moved meanwhile.
        """
        still = self.looks.still_for(row, seen.progress)
        key = self._key(row, "alive")
        answer: tuple[Failure | None] | None = self.jobs.take(key)
        if answer is not None:
            unanswered = answer[0] is not None and answer[0].reason == "probe_unanswered"
            return self.looks.missed(row, not unanswered) >= PROBES_MISSED and still > 0
        if still > (STILL_SECONDS if seen.in_flight else IDLE_PROBE_SECONDS) and not self.jobs.knows(key):
            spec, ports = server_spec(row), server_ports(row)
            self.jobs.start(key, lambda: (self.runtime.probe(spec, ports, ALIVE_SECONDS),))
        return False

    def ask_to_drain(
        self,
        row: Instance,
        reason: str = "",
        sentence: str = "",
        seconds: float | None = None,
    ) -> bool:
        """Give a server no more requests and end it once it has none; one that never served ends at once."""
        if row.state == states.PLACED:
            if transition(row, states.GONE, actor=ACTOR, reason=reason, sentence=sentence):
                self._leave(row)
            return True
        if row.state not in (states.SPAWNED, states.LOADING, states.SERVING, states.UNREACHABLE):
            return False
        if seconds is None:
            seconds = float(policies.rollout_of(row.deployment).drain_seconds)
        wait = seconds if row.serving_since is not None else 0.0
        return transition(
            row,
            states.DRAINING,
            actor=ACTOR,
            attempt=row.attempt,
            reason=reason,
            sentence=sentence,
            drain_deadline=clock.now() + timedelta(seconds=wait),
        )

    def _draining(self, row: Instance) -> bool:
        identity = server_identity(row)
        if identity is None or not self.runtime.adopt(identity):
            return self._ended(row, identity)
        if row.signalled_at is not None:
            if (clock.now() - row.signalled_at).total_seconds() > KILL_AFTER_SECONDS:
                self.runtime.stop(identity, force=True)
            return False
        if self._idle(row):
            # A server that never served has nothing to finish; one with a dead model would wait for it in vain.
            useless = row.serving_since is None or self.runtime.model_process_runs(identity) is False
            self.runtime.stop(identity, force=useless)
            amend(row, attempt=row.attempt, states=[states.DRAINING], signalled_at=clock.now())
        return False

    def _idle(self, row: Instance) -> bool:
        if row.drain_deadline is None or clock.now() >= row.drain_deadline:
            return True
        seen = self.looks.of(row)
        return seen is not None and seen.in_flight == 0 and _age(row) >= ROUTERS_SETTLE_SECONDS

    def _ended(self, row: Instance, identity: Identity | None) -> bool:
        """The process of a draining row is gone: end what it left, then the row."""
        code = spawn.exit_code(row.pid) if row.pid is not None else None
        if identity is not None and not self.runtime.gone(identity):
            self.runtime.stop(identity, force=True)
            return False
        changed = transition(
            row,
            states.GONE,
            actor=ACTOR,
            attempt=row.attempt,
            reason=row.reason,
            sentence=row.sentence,
            pid=None,
            exit_code=code,
        )
        self._leave(row)
        return changed

    def _unreachable(self, row: Instance) -> bool:
        if not self._alive(row):
            return self._crashed(row)
        if row.drain_deadline is not None:
            return transition(row, states.DRAINING, actor=ACTOR, attempt=row.attempt)
        seen = self.looks.of(row)
        if seen is None or not seen.live:
            return False
        if seen.model == "ready" and row.serving_since is not None:
            return transition(row, states.SERVING, actor=ACTOR, attempt=row.attempt)
        return transition(
            row, states.LOADING, actor=ACTOR, attempt=row.attempt, server_version=seen.version or ""
        )

    def _failed(self, row: Instance) -> bool:
        """Clear away what a failed instance left; its row stays as history."""
        identity = server_identity(row)
        if identity is None:
            return False
        if not self.runtime.gone(identity):
            self.runtime.stop(identity, force=True)
            return False
        code = spawn.exit_code(identity.pid)
        amend(row, pid=None, exit_code=code if row.exit_code is None else row.exit_code)
        self._leave(row)
        return False

    # ------------------------------------------------------------------ endings

    def _crashed(self, row: Instance) -> bool:
        code = spawn.exit_code(row.pid, REAP_SECONDS) if row.pid is not None else None
        return self._fail(row, failures.crashed(code), code)

    def _fail(self, row: Instance, failure: Failure, code: int | None = None) -> bool:
        """Give the instance up with its cause; its process is killed and the replica placed anew, if it may be."""
        found = failures.explain(failure, server_spec(row), code)
        was = row.state
        sentence = f"{found.failure.sentence} {self._left_on_gpu(row, failure)}".strip()
        changed = transition(
            row,
            states.FAILED,
            actor=ACTOR,
            attempt=row.attempt,
            reason=found.failure.reason,
            sentence=sentence,
            remedy=found.failure.remedy,
            failed_at=clock.now(),
            exit_code=code,
            diagnosis=found.diagnosis,
        )
        if changed:
            crashes.keep(row, was, gpu_memory.state_of(row.gpu))
            if row.pid is None:
                self._leave(row)
        return changed

    def _pids(self, row: Instance) -> list[int]:
        identity = server_identity(row)
        return processes.group_members(identity) if identity is not None else []

    def _left_on_gpu(self, row: Instance, failure: Failure) -> str:
        """What a failed load keeps of the GPU's memory, so that the next failure is not taken for a full GPU."""
        before = failures.gpu_bytes_before_load(server_spec(row).folder)
        if failure.reason != "load_failed" or before is None:
            return ""
        after = gpu_memory.used_bytes(row.gpu, self._pids(row))
        if after is None:
            return ""
        leak = leaks.judge([before / 2**20, after / 2**20]).leak_mib_per_attempt
        return failures.leaked(leak) if leak is not None else ""

    def _leave(self, row: Instance) -> None:
        # First of all: a disk that takes nothing must not keep the slot.
        rows_side.release(row)
        try:
            self.runtime.cleanup(server_spec(row))
        except OSError as error:
            log.warning("instance %s leaves files behind: %s", row.uid, error)
        self.looks.forget(row.uid)

    def forget(self, row: Instance) -> None:
        """A row became history: nothing of it is remembered here."""
        self._leave(row)


def _age(row: Instance) -> float:
    return (clock.now() - row.state_since).total_seconds()
