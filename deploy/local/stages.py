"""One stage of the checks: a command with a time limit, and what pytest counted in it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local.home import CHECKOUT
from deploy.local.progress import duration

# Between two looks at stages that run beside each other.
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Counts:
    """Tests of one pytest run."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


@dataclass(frozen=True, slots=True)
class Result:
    """How one stage went. `counts` is None for a stage without tests; `why` is empty when it went well."""

    name: str
    seconds: float
    why: str
    counts: Counts | None = None

    def line(self) -> str:
        tests = f"{self.counts.passed} passed, {self.counts.failed} failed, " if self.counts else ""
        return f"  {self.name:<22} {tests}{self.why or 'ok'} in {duration(self.seconds)}"


def read_report(path: Path) -> Counts:
    """Counts of a JUnit report; nothing where pytest did not get as far as writing one."""
    try:
        suites = ET.parse(path).getroot().iter("testsuite")
    except (OSError, ET.ParseError):
        return Counts()
    total = Counts()
    for suite in suites:
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        # A test that passes and then errs in its teardown is counted once, among the failed.
        passed = max(int(suite.get("tests", 0)) - bad - skipped, 0)
        total += Counts(passed, bad, skipped)
    return total


@dataclass(frozen=True, slots=True)
class Stage:
    """A command with a limit in seconds; `report` is the JUnit file that pytest writes."""

    name: str
    argv: Sequence[str]
    environ: dict[str, str]
    limit: float
    report: Path | None = None


class Running:
    """A stage under way, in a process group of its own; what it says goes to `output`, or where we say ours."""

    def __init__(self, stage: Stage, output: Path | None = None) -> None:
        self.stage, self.output = stage, output
        if stage.report is not None:
            stage.report.unlink(missing_ok=True)
        self._began, self._over = time.monotonic(), False
        with output.open("wb") if output else contextlib.nullcontext() as file:
            self._child = subprocess.Popen(
                stage.argv,
                cwd=CHECKOUT,
                env=stage.environ,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT if file else None,
                start_new_session=True,
            )

    def done(self, seconds: float) -> bool:
        """Whether it ended, or ran past its limit, within `seconds`."""
        left = self._began + self.stage.limit - time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(max(min(seconds, left), 0))
        return self._child.returncode is not None or left <= seconds

    def result(self) -> Result:
        """How it went, once it is done; past its limit its processes are ended."""
        code = self._child.returncode
        why = "" if code == 0 else f"ended with {code}"
        if code is None:
            why = f"not done after {duration(self.stage.limit)}"
        self.end()
        counts = read_report(self.stage.report) if self.stage.report is not None else None
        if counts is not None and not why and counts.passed + counts.failed == 0:
            why = "ran no test"
        return Result(self.stage.name, time.monotonic() - self._began, why, counts)

    def end(self) -> None:
        """End what still runs of it."""
        if not self._over:
            self._over = True
            _end_group(self._child)


def run_stage(
    name: str, argv: Sequence[str], environ: dict[str, str], limit: float, report: Path | None = None
) -> Result:
    """Run one stage, its output on ours; past `limit` seconds its processes are ended."""
    print(f"\n== {name}", flush=True)
    running = Running(Stage(name, argv, environ, limit, report))
    try:
        running.done(limit)
        return running.result()
    finally:
        running.end()


def run_together(stages: Sequence[Stage], folder: Path, at_once: int = 2) -> list[Result]:
    """Run stages beside each other, begun in their order; each is printed whole, in that order, when it is done.

    `folder` keeps what they say meanwhile.
    """
    folder.mkdir(parents=True, exist_ok=True)
    waiting, running = list(enumerate(stages)), dict[int, Running]()
    results: dict[int, Result] = {}
    shown = 0
    try:
        while len(results) < len(stages):
            while waiting and len(running) < at_once:
                number, stage = waiting.pop(0)
                running[number] = Running(stage, folder / f"{stage.name.replace(' ', '-')}.txt")
            for number in list(running):
                if running[number].done(LOOK_SECONDS):
                    results[number] = running.pop(number).result()
            while shown in results:
                said = (folder / f"{stages[shown].name.replace(' ', '-')}.txt").read_text(errors="replace")
                print(f"\n== {stages[shown].name}\n{said}", end="", flush=True)
                shown += 1
    finally:
        for each in running.values():
            each.end()
    return [results[number] for number in range(len(stages))]


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End what a stage left running in its group; a stage that ended in order has left nothing."""
    for number, seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        if child.poll() is not None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(seconds)
