"""The only place that starts build processes: each step in its own session, watched, and gone when it must be."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from apps.core import clock
from apps.engines.domain.resources import FILE
from apps.fleet.containers import ask
from apps.fleet.processes import MARK, ProcessIdentity, end_tree, identify
from workers.builders.base import Milestones, Step
from workers.pumps import LogFile, Pump, event_reader
from workers.usage import Meter, Samples, Usage
from workers.watch import Watch

GATE = Path(__file__).with_name("gate.py")
EVENTS_FD = "INFLIGHT_EVENTS_FD"
# TERM first, so that a step may remove its files; then KILL. With the poll this keeps a cancel under 5 s.
GRACE_SECONDS = 2.0
# How long the loop sleeps at most between two looks at deadline and lease.
TICK_SECONDS = 0.2
PUMP_SECONDS = 2.0
# Builds give way to what serves on the same processor.
NICENESS = 5

# A container program that hangs must not hold up a cancel.
CONTAINER_SECONDS = 3.0

Ending = Literal["exited", "cancelled", "lost", "stopped", "deadline", "disk_low", "not_started"]


@dataclass(slots=True)
class StepResult:
    """How a step ended. `exit_code` is negative for a signal; `failure` and `result` are what the step itself said.

    `survivors` are pids that KILL did not end (in uninterruptible sleep); normally none.
    """

    ending: Ending
    exit_code: int | None = None
    failure: dict[str, Any] | None = None
    result: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    survivors: list[int] = field(default_factory=list)
    # (done, total) as the step last said; written by a pump, read by the waiting loop.
    progress: tuple[float, float] | None = None
    # What the log last said that it does.
    doing: str = ""
    usage: Usage = field(default_factory=Usage)


def _nothing(text: str) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class Supervisor:
    """Runs the steps of one attempt. `record` writes a child's identity on the row and says whether it still may run.

    `mark` is in the environment of everything that a step starts. `progress` gets (done, total) of the step several
    times a second, total 0 where it says nothing, and `doing` what its log says; both from the calling thread.
    """

    mark: str
    log: LogFile
    watch: Watch
    record: Callable[[ProcessIdentity], bool]
    progress: Callable[[float, float], None]
    doing: Callable[[str], None] = _nothing

    def run(self, step: Step) -> StepResult:
        """Run one step to its end. Call it from the thread that lives as long as the step: its death ends the step.

        Raises OSError where no process or pipe can be made.
        """
        self.log.say(f"{step.title}: {' '.join(step.words)}")
        result = StepResult("exited")
        child, gate, events, pumps = self._start(step, result)
        identity = identify(child.pid)
        try:
            if identity is not None and not self.record(identity):
                result.ending = "not_started"
            elif identity is not None:
                self._open(gate, step, events)
                gate = -1
                self._wait(child, step, result, self._meter(step, identity))
        finally:
            if gate >= 0:
                os.close(gate)
            self._end(child, identity, step, result, pumps)
        result.exit_code = child.returncode
        self.log.say(f"{step.title}: {_ending_text(result)}")
        return result

    def _start(self, step: Step, result: StepResult) -> tuple[subprocess.Popen[bytes], int, int, list[Pump]]:
        """The gate process; returns it, its gate's writing end, the number of its events' descriptor, the pumps."""
        gate_read, gate_write = os.pipe()
        out_read, out_write = os.pipe()
        events_read, events_write = os.pipe()
        try:
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GATE), str(gate_read), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=out_write,
                stderr=subprocess.STDOUT,
                env={MARK: self.mark, EVENTS_FD: str(events_write), "PATH": os.defpath},
                cwd="/",
                pass_fds=(gate_read, events_write),
                start_new_session=True,
            )
        except BaseException:
            for descriptor in (gate_write, out_read, events_read):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (gate_read, out_write, events_write):
                os.close(descriptor)
        pumps = [
            Pump(out_read, f"log of {step.name}", self._line_taker(step, result)),
            Pump(
                events_read, f"events of {step.name}", event_reader(lambda event: self._take(event, result))
            ),
        ]
        for pump in pumps:
            pump.start()
        return child, gate_write, events_write, pumps

    def _open(self, gate: int, step: Step, events: int) -> None:
        env = {**step.env, MARK: self.mark, EVENTS_FD: str(events)}
        command = {
            "argv": list(step.argv),
            "env": env,
            "cwd": str(step.cwd),
            "nice": NICENESS if step.niceness is None else step.niceness,
        }
        with os.fdopen(gate, "wb") as pipe:
            pipe.write(json.dumps(command).encode())

    def _meter(self, step: Step, identity: ProcessIdentity | None) -> Meter:
        """Measures the step, the attempt's work folder, and keeps the course beside the log."""
        folder = self.log.path.parent
        return Meter(self.mark, identity, step.cwd, folder / "work", Samples(folder / FILE, step.name))

    def _line_taker(self, step: Step, result: StepResult) -> Callable[[bytes], None]:
        """What takes the step's lines: the log, and what reads progress out of them."""
        if step.reads_log is None:
            return self.log.write
        milestones: Milestones = step.reads_log()

        def take(line: bytes) -> None:
            self.log.write(line)
            seen = milestones.read(line.decode("utf-8", "replace").rstrip())
            if seen is not None:
                result.progress, result.doing = (seen.share, 1.0), seen.doing

        return take

    def _wait(self, child: subprocess.Popen[bytes], step: Step, result: StepResult, meter: Meter) -> None:
        """Until the step ends, or must end."""
        deadline = clock.monotonic() + step.deadline_seconds
        result.usage, told = meter.usage, ""
        threading.Thread(target=_wake_at_exit, args=(child.pid, self.watch.woken), daemon=True).start()
        while child.poll() is None:
            order = self.watch.order()
            if order is not None:
                result.ending = order
                return
            if clock.monotonic() > deadline:
                result.ending = "deadline"
                return
            if not meter.look():
                result.ending = "disk_low"
                return
            # Also without a word of the step: time alone tells something where builds like this one have run.
            self.progress(*(result.progress or (0.0, 0.0)))
            if result.doing != told:
                told = result.doing
                self.doing(told)
            if self.watch.woken.wait(TICK_SECONDS):
                self.watch.woken.clear()

    def _end(
        self,
        child: subprocess.Popen[bytes],
        identity: ProcessIdentity | None,
        step: Step,
        result: StepResult,
        pumps: list[Pump],
    ) -> None:
        """Leave nothing behind: neither the step nor what it started, also where it ended by itself."""
        ended_itself = child.poll() is not None or result.ending == "not_started"
        if step.end and not ended_itself:
            # Its processes are children of the container's own parent: only that program ends them for certain.
            ask(list(step.end), CONTAINER_SECONDS)
        result.survivors = end_tree(self.mark, identity, 0.0 if ended_itself else GRACE_SECONDS)
        if not result.survivors:
            child.wait()
        for pump in pumps:
            pump.join(PUMP_SECONDS)

    def _take(self, event: dict[str, Any], result: StepResult) -> None:
        match event["event"]:
            case "progress":
                result.progress = (float(event.get("done", 0)), float(event.get("total", 0)))
            case "failure":
                result.failure = event
            case "result":
                result.result.update(event.get("facts", {}))
            case "note":
                result.notes.append(str(event.get("text", "")))
                self.log.say(str(event.get("text", "")))


def _wake_at_exit(pid: int, woken: threading.Event) -> None:
    """Wake the waiting loop at the instant at which the process ends, without reaping it."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    woken.set()


def _ending_text(result: StepResult) -> str:
    if result.ending != "exited":
        return {
            "cancelled": "ended because somebody cancelled the build",
            "lost": "ended because the lease could not be renewed",
            "stopped": "ended because this worker stops",
            "deadline": "ended because it ran longer than its deadline",
            "disk_low": "ended because the disk was about to be full",
            "not_started": "not started: another worker owns the build",
        }[result.ending]
    if result.exit_code is not None and result.exit_code < 0:
        return f"ended by signal {-result.exit_code}"
    return f"ended with exit code {result.exit_code}"
