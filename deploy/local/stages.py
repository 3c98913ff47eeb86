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


def run_stage(
    name: str, argv: Sequence[str], environ: dict[str, str], limit: float, report: Path | None = None
) -> Result:
    """Run one stage in a process group of its own, its output on ours; past `limit` seconds the group is ended."""
    print(f"\n== {name}", flush=True)
    if report is not None:
        report.unlink(missing_ok=True)
    began = time.monotonic()
    child = subprocess.Popen(
        argv, cwd=CHECKOUT, env=environ, stdin=subprocess.DEVNULL, start_new_session=True
    )
    why = ""
    try:
        code = child.wait(limit)
        why = "" if code == 0 else f"ended with {code}"
    except subprocess.TimeoutExpired:
        why = f"not done after {duration(limit)}"
    finally:
        _end_group(child)
    counts = read_report(report) if report is not None else None
    if counts is not None and not why and counts.passed + counts.failed == 0:
        why = "ran no test"
    return Result(name, time.monotonic() - began, why, counts)


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End what a stage left running in its group; a stage that ended in order has left nothing."""
    for number, seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        if child.poll() is not None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(seconds)
