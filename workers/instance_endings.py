"""How instances end: given up with their cause, killed whole, and cleared away."""

from __future__ import annotations

import logging

from apps.core import clock
from apps.core.transitions import transition
from apps.serving import crashes, states
from apps.serving import reconcile as rows_side
from apps.serving.domain import leaks
from apps.serving.models import Instance
from workers import failures, gpu_memory
from workers.instance_looks import Looks
from workers.instance_spec import server_identity, server_spec
from workers.runtimes import processes, spawn
from workers.runtimes.base import Failure, Identity
from workers.runtimes.jobs import Jobs
from workers.runtimes.triton import TritonRuntime

log = logging.getLogger(__name__)

ACTOR = "ctl"
# How long one that was killed may take until it is gone, all of it; what takes longer is seen by the next tick.
KILLED_SECONDS = 0.2
# How long a process that has died may take until the kernel tells its exit code; less than a tick.
REAP_SECONDS = 0.5


class Endings:
    """The part of the stepper that ends instances. Remembers only running jobs and what was seen."""

    def __init__(self, runtime: TritonRuntime, jobs: Jobs) -> None:
        self.runtime = runtime
        self.jobs = jobs
        self.looks = Looks(runtime, jobs)

    def _ended_whole(self, identity: Identity) -> bool:
        """Kill what is left of a server; whether nothing is, which takes the kernel a moment."""
        if self.runtime.gone(identity):
            return True
        self.runtime.stop(identity, force=True)
        processes.wait_gone(identity, KILLED_SECONDS)
        return self.runtime.gone(identity)

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
