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
from apps.serving import policies, states
from apps.serving.models import Instance
from workers import engine_guard, engine_place, failures, gpu_memory, load_measures
from workers.instance_endings import ACTOR, REAP_SECONDS, Endings
from workers.instance_spec import server_identity, server_ports, server_spec
from workers.runtimes import spawn
from workers.runtimes.arguments import EXIT_SECONDS
from workers.runtimes.base import Failure, Identity, Launch, Observation, ServerFailure, ServerSpec
from workers.runtimes.jobs import Jobs
from workers.runtimes.triton import TritonRuntime
from workers.server_policy import version_refused

log = logging.getLogger(__name__)

START_SECONDS = 60.0
LOAD_SECONDS = 1800.0
PROBE_SECONDS = 120.0
PREPARE_SECONDS = 60.0
# A server that says nothing for this long is ended; one whose model is not ready, for this long.
SILENT_SECONDS = 30.0
# A process that somebody stopped (SIGSTOP) does not go on by itself; a debugger that looks at it takes less.
STOPPED_SECONDS = 4.0
UNREADY_SECONDS = 10.0
# A model that computes nothing for so long while requests are in it is asked for a token, an idle one so often; each
# has so long to answer, and so many unanswered in a row are a hang. A long prompt moves no figure before its end.
STILL_SECONDS = 20.0
IDLE_PROBE_SECONDS = 60.0
ALIVE_SECONDS = 12.0
PROBES_MISSED = 2
UNLOAD_SECONDS = 10.0
# Routers may have read "serving" just before: the first look that counts is this long after draining began.
ROUTERS_SETTLE_SECONDS = 1.0
KILL_AFTER_SECONDS = EXIT_SECONDS + 5.0
PORT_TRIES = 3


class Stepper(Endings):
    """Moves instances on. Remembers only running jobs and since when a server has been silent."""

    def __init__(self, runtime: TritonRuntime, jobs: Jobs | None = None) -> None:
        super().__init__(runtime, jobs or Jobs())
        # Monotonic time until which a step may wait for a job; the tick sets it.
        self.until = 0.0
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

    def _seen_for(self, row: Instance) -> float:
        """How long this process has seen the row in its state."""
        return self.looks.for_seconds(row, f"is {row.state}", True)

    def _wait(self, key: Hashable, seconds: float) -> None:
        """Give a job a moment, so that what is quick needs no second tick."""
        self.jobs.wait([key], max(0.0, min(seconds, self.until - time.monotonic())))

    # ------------------------------------------------------------------ steps

    def step(self, row: Instance) -> bool:
        """Take the next step of a row if there is one; True where its state changed."""
        handler = self._steps.get(row.state)
        return handler(row) if handler is not None else False

    def _placed(self, row: Instance) -> bool:
        if not engine_place.is_here(row):
            return self._fetch(row)
        key = self._key(row, "prepare")
        if not self.jobs.knows(key):
            unfit = engine_guard.refusal(row)
            if unfit is not None:
                return self._fail(row, unfit)
            try:
                spec = server_spec(row, whole=True)
            except (ServerFailure, InflightError, OSError) as error:
                return self._fail(row, failures.of_start(error))
            self.jobs.start(key, lambda: self.runtime.prepare(spec), wakes=True)
        self._wait(key, 0.4)
        try:
            launch = self.jobs.take(key)
        except (ServerFailure, InflightError, OSError) as error:
            return self._fail(row, failures.of_start(error))
        except Exception as error:
            log.exception("instance %s cannot be prepared", row.uid)
            return self._fail(row, failures.of_start(error))
        if launch is None:
            if self._seen_for(row) > PREPARE_SECONDS:
                return self._fail(row, failures.prepare_timeout())
            return False
        return self._spawn(row, launch, states.PLACED)

    def _fetch(self, row: Instance) -> bool:
        """Have another host's engine brought here, however long it takes; True where that failed."""
        key = self._key(row, "fetch")
        self.jobs.start(key, lambda: (engine_place.fetch(row),), wakes=True)
        try:
            self.jobs.take(key)
        except (InflightError, OSError) as error:
            return self._fail(row, failures.of_fetch(error))
        # How long it took is no time that the preparing took.
        self.looks.for_seconds(row, f"is {row.state}", False)
        return False

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
            if _running_for(row) > START_SECONDS:
                return self._fail(row, failures.start_timeout(START_SECONDS))
            self._watch_start(row)
            return False
        version = seen.version or ""
        refused = version_refused(version, row.node, self.runtime.is_embedded(server_spec(row)))
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

    def _watch(self, row: Instance, what: str, until: Callable[[], None]) -> None:
        """Let a job wait for what the next tick wants to see, and wake that tick; losing the job costs a second."""
        key = self._key(row, what)
        self.jobs.take(key)
        self.jobs.start(key, until, wakes=True)

    def _watch_start(self, row: Instance) -> None:
        identity, ports = server_identity(row), server_ports(row)
        if identity is not None:
            self._watch(row, "live", lambda: self.runtime.until_live(ports, identity, START_SECONDS))

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
        self.jobs.start(
            self._key(row, "load"), lambda: (self.runtime.load(spec, ports, LOAD_SECONDS),), wakes=True
        )

    def _loading(self, row: Instance) -> bool:
        if not self._alive(row):
            return self._crashed(row)
        seen = self.looks.of(row)
        answer: tuple[Failure | None] | None = self.jobs.take(self._key(row, "load"))
        if answer is not None:
            if answer[0] is not None and answer[0].reason != "load_unanswered":
                return self._fail(row, answer[0])
            # What was seen may be older than this answer.
            self.looks.look_again(row, max(0.0, min(0.3, self.until - time.monotonic())))
            seen = self.looks.of(row)
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
        if _running_for(row) > LOAD_SECONDS:
            return self._fail(row, failures.load_timeout(LOAD_SECONDS))
        return False

    def _probe(self, row: Instance) -> bool:
        key = self._key(row, "probe")
        if not self.jobs.knows(key):
            spec, ports = server_spec(row), server_ports(row)
            self.jobs.start(key, lambda: (self.runtime.probe(spec, ports, PROBE_SECONDS),), wakes=True)
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
        if identity is not None and self._model_runs(row, identity) is False:
            return self._fail(row, failures.model_process_died())
        stopped = identity is not None and self.runtime.is_stopped(identity)
        if self.looks.for_seconds(row, "stopped", stopped) > STOPPED_SECONDS:
            return self._fail(row, failures.stopped(STOPPED_SECONDS))
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
            useless = row.serving_since is None or self._model_runs(row, identity) is False
            self.runtime.stop(identity, force=useless)
            amend(row, attempt=row.attempt, states=[states.DRAINING], signalled_at=clock.now())
        else:
            self._watch_requests(row, identity)
        return False

    def _watch_requests(self, row: Instance, identity: Identity) -> None:
        """Wait beside the ticks until routers have settled and no request is left."""
        spec, ports = server_spec(row), server_ports(row)
        settle, left = ROUTERS_SETTLE_SECONDS - self._seen_for(row), _drain_seconds(row)

        def wait() -> None:
            time.sleep(max(0.0, settle))
            self.runtime.until_idle(spec, ports, identity, max(0.0, left))

        self._watch(row, "idle", wait)

    def _idle(self, row: Instance) -> bool:
        drained = self._seen_for(row)
        # Both clocks must say so: the wall's may have been set, ours begins anew with this process.
        late = row.drain_deadline is None or clock.now() >= row.drain_deadline
        if late and drained >= _drain_seconds(row):
            return True
        seen = self.looks.of(row)
        if seen is None or drained < ROUTERS_SETTLE_SECONDS:
            return False
        spec = server_spec(row)
        if spec.tells_requests:
            return seen.in_flight == 0
        return self._unloaded(row, spec, seen)

    def _unloaded(self, row: Instance, spec: ServerSpec, seen: Observation) -> bool:
        """Whether a model that tells of no requests has finished them: unloading one waits for them in the server."""
        ports = server_ports(row)
        if self.runtime.is_finished(seen.model, ports):
            return True
        key = self._key(row, "unload")
        if seen.model == "ready" and not self.jobs.knows(key):
            self.jobs.start(key, lambda: (self.runtime.unload(spec, ports, UNLOAD_SECONDS),))
        self.jobs.take(key)
        return False

    def _model_runs(self, row: Instance, identity: Identity) -> bool | None:
        return self.runtime.model_process_runs(identity, server_spec(row).stubs)

    def _ended(self, row: Instance, identity: Identity | None) -> bool:
        """The process of a draining row is gone: end what it left, then the row."""
        code = spawn.exit_code(row.pid) if row.pid is not None else None
        if identity is not None and not self._ended_whole(identity):
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
        if not self._ended_whole(identity):
            return False
        code = spawn.exit_code(identity.pid)
        amend(row, pid=None, exit_code=code if row.exit_code is None else row.exit_code)
        self._leave(row)
        return False


def _running_for(row: Instance) -> float:
    """Seconds since its process began, whatever was done to the wall clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - (row.process_created or 0.0)


def _drain_seconds(row: Instance) -> float:
    """How long a draining server may finish its requests in all."""
    if row.drain_deadline is None:
        return 0.0
    return (row.drain_deadline - row.state_since).total_seconds()
