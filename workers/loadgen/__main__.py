"""Runs a plan: starts the parts, decides when each step is warm and when it has measured enough, sums up.

Told to its supervisor: progress (expected seconds done of all), and as result the summary of every step and of the
generator itself. A file `stop` in the folder, or SIGTERM, is a safe stop: nothing new is sent, what was measured
is kept and summed up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from apps.loadtests.domain import records
from apps.loadtests.domain.generator import judge
from apps.loadtests.domain.metrics import Window
from apps.loadtests.domain.results import summarise_run
from apps.loadtests.domain.stopping import StepClock
from workers.builders.llamacpp_steps.events import StepFailed, run, say, send
from workers.loadgen.plan import STOP, SUMMARY, TICKS, Plan, read, records_of

READY_SECONDS = 60.0
END_SECONDS = 60.0
SAFE_STOP = "stop"


class PartProcess:
    """One sending process and its two pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.done: dict[str, Any] = {}

    def say(self, **command: Any) -> None:
        """Command it."""
        if self.process.stdin is not None and not self.process.stdin.is_closing():
            self.process.stdin.write(json.dumps(command).encode() + b"\n")

    async def pump(self, coordinator: Coordinator) -> None:
        """Read what it tells until it ends."""
        assert self.process.stdout is not None  # noqa: S101 - started with a pipe
        while line := await self.process.stdout.readline():
            told: dict[str, Any] = json.loads(line)
            if "tick" in told:
                coordinator.tick(told)
            elif "done" in told:
                self.done = told["done"]
            else:
                await self.told.put(told)
        await self.told.put({"gone": self.process.returncode})

    async def expect(self, name: str, seconds: float) -> None:
        """Wait for an answer. Raises StepFailed where it fails or ends instead."""
        try:
            told = await asyncio.wait_for(self.told.get(), seconds)
        except TimeoutError as error:
            raise StepFailed(
                "generator_silent", f"A process of the generator did not answer in {seconds:.0f} s."
            ) from error
        if "failed" in told:
            raise StepFailed(*told["failed"])
        if name not in told:
            raise StepFailed(
                "generator_died",
                "A process of the generator ended by itself.",
                "See the run's log; with little memory, use fewer clients.",
            )


class Coordinator:
    """One run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.zero = 0.0
        self.clock: StepClock | None = None
        self.stopping = asyncio.Event()
        self.windows: list[tuple[float, Window, str]] = []
        self._ticks = (plan.folder / TICKS).open("w", encoding="utf-8")
        self._pending: list[dict[str, Any]] = []
        self._messages = 0
        self._done_seconds = 0.0

    async def run(self) -> dict[str, Any]:
        """Run every step; returns the summary. Raises StepFailed."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stopping.set)
        parts = [await self._start(number) for number in range(self.plan.processes)]
        pumps = [asyncio.create_task(part.pump(self)) for part in parts]
        machine = _Machine()
        try:
            for part in parts:
                await part.expect("ready", READY_SECONDS)
            self.zero = time.perf_counter()
            machine.begin(parts)
            for index, value in enumerate(self.plan.scenario.load.steps):
                await self._step(parts, index, value)
                if self.stopping.is_set():
                    break
            others = machine.others()
            for part in parts:
                part.say(quit=True)
            await asyncio.wait(pumps, timeout=END_SECONDS)
        finally:
            for part in parts:
                if part.process.returncode is None:
                    part.process.kill()
                await part.process.wait()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._ticks.close()
        return self._summary([part.done for part in parts], others)

    async def _start(self, number: int) -> PartProcess:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "workers.loadgen.part", str(self.plan.folder / "plan.json")),
            *(str(number), str(self.plan.processes)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )
        return PartProcess(process)

    async def _step(self, parts: list[PartProcess], index: int, value: float) -> None:
        scenario = self.plan.scenario
        clock = StepClock(scenario.timing, scenario.load.mode, value, time.perf_counter() - self.zero)
        self.clock = clock
        say(f"Step {index + 1} of {len(scenario.load.steps)}: {_load_text(scenario.load.mode, value)}")
        for part in parts:
            part.say(go=index, value=value, zero=self.zero)
        while not clock.ended:
            try:
                await asyncio.wait_for(self.stopping.wait(), 0.25)
                clock.stop(time.perf_counter() - self.zero, SAFE_STOP)
            except TimeoutError:
                clock.look(time.perf_counter() - self.zero, self._messages)
                if (self.plan.folder / STOP).exists():
                    self.stopping.set()
            self._tell_progress(index, clock)
            if any(part.process.returncode is not None for part in parts):
                raise StepFailed(
                    "generator_died", "A process of the generator ended by itself.", "See the run's log."
                )
        grace = 0.0 if self.stopping.is_set() else scenario.timing.grace_seconds
        for part in parts:
            part.say(stop=index, grace=grace)
        for part in parts:
            await part.expect("stopped", grace + END_SECONDS)
        self.clock = None
        if clock.window is not None:
            self.windows.append((value, clock.window, clock.reason))
            say(f"Measured {clock.window.seconds:.1f} s: {clock.reason}")

    def tick(self, told: dict[str, Any]) -> None:
        """A second of one part; when every part has told it, it goes to the chart's file and the step's clock."""
        self._messages += told["messages"]
        self._pending.append(told)
        if len(self._pending) < self.plan.processes:
            return
        all_of, self._pending = self._pending, []
        at = time.perf_counter() - self.zero
        total = {
            key: sum(part[key] for part in all_of)
            for key in ("started", "completed", "errors", "tokens", "running")
        }
        latency = sum(part["latency"] for part in all_of)
        ttft = sorted(value for part in all_of for value in part["ttft"])
        mean = latency / total["completed"] if total["completed"] else None
        if self.clock is not None:
            self.clock.tick(total["tokens"], total["completed"], mean)
        line = {
            "at": round(at, 2),
            "step": all_of[0]["tick"],
            **total,
            "latency_mean_ms": None if mean is None else round(mean * 1000, 2),
            "ttft_p50_ms": round(ttft[len(ttft) // 2] * 1000, 2) if ttft else None,
            "ttft_most_ms": round(ttft[-1] * 1000, 2) if ttft else None,
            "warm": self.clock is not None and self.clock.begin is not None,
        }
        self._ticks.write(json.dumps(line) + "\n")
        self._ticks.flush()

    def _tell_progress(self, index: int, clock: StepClock) -> None:
        steps = len(self.plan.scenario.load.steps)
        share = (index + clock.share(time.perf_counter() - self.zero)) / steps
        total = self.plan.scenario.expected_seconds
        send("progress", done=share * total, total=total, unit="seconds")

    def _summary(self, generators: list[dict[str, Any]], others: float | None) -> dict[str, Any]:
        if not self.windows:
            raise StepFailed(
                "nothing_measured",
                "The run was stopped before it had measured anything.",
                "Let it run past its warm-up.",
            )
        data = records.columns(records.read(records_of(self.plan.folder, self.plan.processes)))
        mode = self.plan.scenario.load.metrics_mode
        found = summarise_run(data, self.windows, mode, self.plan.scenario.slo.as_slo())
        found["generator"] = judge(
            generators, self.plan.scenario.load.mode, found["steps"][0]["figures"]["latency_mean_ms"]
        )
        found["generator"]["others_cpu"] = others
        found["seed"] = self.plan.seed
        (self.plan.folder / SUMMARY).write_text(json.dumps(found, indent=1), encoding="utf-8")
        return found


class _Machine:
    """CPU that went to neither the generator nor idleness; the server's share is in it where it runs here."""

    def begin(self, parts: list[PartProcess]) -> None:
        """Begin to count."""
        self._own = [psutil.Process(part.process.pid) for part in parts] + [psutil.Process()]
        self._cpu, self._at = self._seconds(), time.perf_counter()
        self._busy = _busy()

    def others(self) -> float | None:
        """Share of all cores, 0 to 1, that others used since then; None where it cannot be told."""
        elapsed = time.perf_counter() - self._at
        own = self._seconds() - self._cpu
        cores = os.cpu_count() or 1
        return max(0.0, (_busy() - self._busy - own) / (elapsed * cores)) if elapsed > 0 else None

    def _seconds(self) -> float:
        total = 0.0
        for process in self._own:
            try:
                times = process.cpu_times()
                total += times.user + times.system
            except psutil.Error:
                continue
        return total


def _busy() -> float:
    times = psutil.cpu_times()
    return float(sum(times[:3])) + float(getattr(times, "irq", 0)) + float(getattr(times, "softirq", 0))


def _load_text(mode: str, value: float) -> str:
    if mode == "closed":
        return f"{value:.0f} clients"
    return f"{value:g} requests/s" if mode == "open" else "the trace"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", type=Path)
    plan = read(parser.parse_args().plan)
    summary = asyncio.run(Coordinator(plan).run())
    # The pipe of events is for facts; the summary lies in the folder.
    send("result", facts={"summary": SUMMARY, "steps": len(summary["steps"])})


if __name__ == "__main__":
    run(main)
