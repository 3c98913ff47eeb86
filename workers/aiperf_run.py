"""One attempt at a load run by AIPerf: a child for each step of the load, its results and records read back."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.utils.translation import gettext as _

from apps.core.exceptions import NotPossibleNow
from apps.fleet import programs
from apps.fleet.processes import ProcessIdentity, is_same
from apps.loadtests import inputs
from apps.loadtests.attempts import Claim, Failure
from apps.loadtests.domain import aiperf, aiperf_plan, aiperf_records, datasets, records
from apps.loadtests.domain.aiperf_plan import ARTIFACTS, CONFIGURATION, PROMPTS, TOKENIZER, Place, Told
from apps.loadtests.domain.metrics import Window
from apps.loadtests.domain.results import distributions
from apps.loadtests.policy import DEADLINE_MARGIN_SECONDS, SERIES_POINTS
from workers.attempt_rows import Ended
from workers.builders.base import Seen, Step
from workers.load_attempt import LoadAttempt, dataset_of, facts, thinned
from workers.loadgen import targets
from workers.loadgen.plan import KEY, RECORDS, SUMMARY, processes_for
from workers.pumps import LogFile
from workers.run_attempt import plain_environment
from workers.usage import size_of
from workers.watch import Watch

# A run whose own files grow beyond this is ended: what AIPerf keeps of a request is about a kilobyte.
MOST_BYTES = 4 * 1024**3
# Of the records that it has written, read at once while it runs.
FOLLOWED_BYTES = 4 * 1024**2


class AiperfAttempt(LoadAttempt):
    """An attempt by the AIPerf program of this node."""

    died = "aiperf_failed"

    def __init__(self, claim: Claim, worker: str) -> None:
        super().__init__(claim, worker)
        self.scenario = inputs.scenario(self.row.scenario)
        self.told = Told()
        self.step = 0
        self.child: ProcessIdentity | None = None
        self.sockets = ""
        self.live, self.zero, self.offset = aiperf_records.Seconds(), 0.0, 0

    def _what(self) -> str:
        return "AIPerf"

    def _after(self) -> None:
        super()._after()
        if self.sockets:
            shutil.rmtree(self.sockets, ignore_errors=True)

    def _work(self, output: LogFile, watch: Watch) -> None:
        program = programs.aiperf()
        if program is None:
            raise NotPossibleNow(
                "aiperf_missing",
                _("There is no AIPerf on this node (any more)."),
                remedy=_("Install it there and name its program in INFLIGHT_AIPERF_BIN."),
            )
        workers = processes_for(self.scenario, os.cpu_count() or 1)
        told = {"name": "aiperf", "version": program.version, "processes": workers}
        self._keep(
            watch, folder=str(self.folder), log_path=str(output.path), environment=facts(self.row, told)
        )
        self._write_tokenizer()
        self.sockets = tempfile.mkdtemp(prefix="inflight-aiperf-")
        access = self._access(self.scenario)
        steps: list[dict[str, Any]] = []
        ran: list[tuple[str, ...]] = []
        for index, value in enumerate(self.scenario.load.steps):
            self.step, self.offset, self.told = index, 0, Told(since=time.monotonic())
            step = self._planned(program.path, index, value, workers, access)
            ran.append(step.words)
            result = self._supervisor(output, watch).run(step)
            self._judge_child(result.exit_code, result.ending)
            self._judge(result, watch)
            read = self._read(index, value)
            if read is not None:
                steps.append(read)
            if self.stop_seen is not None:
                break
        if not steps:
            raise Ended(None, "cancelled")
        self._sum_up(watch, steps, program.version, ran)

    def _judge_child(self, code: int | None, ending: str) -> None:
        """Raise Ended with AIPerf's own error where it ended with one."""
        if ending != "exited" or code == 0:
            return
        if self.stop_seen is not None:
            raise Ended(None, "cancelled")
        if self.told.error:
            raise Ended(
                Failure(
                    self.died,
                    _("AIPerf ended with exit code %(code)s: %(error)s")
                    % {"code": code, "error": self.told.error[:400]},
                    _("See the run's log."),
                )
            )

    # ------------------------------------------------------------------ what it is given

    def _place(self, index: int, workers: int) -> Place:
        address = targets.addresses(self.scenario, self.row.deployment)[0]
        url = f"http://{address.host}:{address.port}"
        return Place(url, self.folder / f"step-{index}", self.folder / "tokenizer", workers)

    def _planned(self, program: Path, index: int, value: float, workers: int, access: dict[str, str]) -> Step:
        place = self._place(index, workers)
        place.folder.mkdir(parents=True, exist_ok=True)
        scenario, name = self.scenario, dataset_of(self.scenario)
        rows = datasets.load(Path(name)) if name else []
        with (place.folder / PROMPTS).open("w", encoding="utf-8") as file:
            file.writelines(aiperf_plan.prompt_lines(scenario, index, value, self.row.seed, rows))
        said = aiperf_plan.configuration(scenario, KEY, place)
        (place.folder / CONFIGURATION).write_text(said, encoding="utf-8")
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        return Step(
            name="aiperf",
            title=_("Run AIPerf"),
            argv=(str(program), *aiperf_plan.arguments(scenario, value, self.row.seed, place)),
            cwd=place.folder,
            env={
                **plain_environment(),
                **access,
                # Its large files lie in the folder that is measured, and go with the run; its sockets need a short
                # path, which a home folder may not have.
                "AIPERF_DATASET_MMAP_BASE_PATH": str(work),
                "TMPDIR": self.sockets,
                "HOME": str(work),
                "NO_COLOR": "1",
                "COLUMNS": "400",
            },
            deadline_seconds=aiperf_plan.expected_seconds(scenario)
            + scenario.timing.grace_seconds
            + DEADLINE_MARGIN_SECONDS,
            niceness=0,
            reads_log=lambda: _Reader(self.told),
        )

    def _write_tokenizer(self) -> None:
        folder = self.folder / "tokenizer"
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in TOKENIZER.items():
            (folder / name).write_text(json.dumps(value), encoding="utf-8")

    def _amend_child(self, child: ProcessIdentity) -> bool:
        self.child = child
        return super()._amend_child(child)

    def _ask_to_stop(self) -> None:
        """As Ctrl-C does: it sends nothing more and sums up what it has."""
        if self.child is not None and is_same(self.child):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child.pid, signal.SIGINT)

    def _columns(self, done: float, total: float) -> dict[str, Any]:
        if (size_of(self.folder) or 0) > MOST_BYTES:
            raise Ended(
                Failure(
                    "too_many_files",
                    _("The files of AIPerf grew beyond %(most)d GiB.") % {"most": MOST_BYTES // 1024**3},
                    _("Send fewer requests: a shorter time, or a lower rate."),
                )
            )
        whole = aiperf_plan.expected_seconds(self.scenario)
        steps = len(self.scenario.load.steps)
        passed = self.step * whole + self.told.seconds_done(self.scenario, time.monotonic())
        self._follow()
        return {
            "progress": min(0.99, passed / (whole * steps)),
            "eta_seconds": max(0.0, whole * steps - passed),
            "series": self.live.points(0.0)[-SERIES_POINTS:],
        }

    def _follow(self) -> None:
        """Count the requests that were written since the last look."""
        path = self.folder / f"step-{self.step}" / ARTIFACTS / aiperf_records.RECORDS
        with contextlib.suppress(OSError), path.open("rb") as file:
            file.seek(self.offset)
            data = file.read(FOLLOWED_BYTES)
            data = data[: data.rfind(b"\n") + 1]
            self.offset += len(data)
            found = [aiperf_records.read_line(line.decode("utf-8", "replace")) for line in data.splitlines()]
            asked = [each for each in found if each is not None]
            self.zero = self.zero or min((each.record.sent for each in asked), default=0.0)
            for row in aiperf_records.moved(asked, self.zero, self.step):
                self.live.add(row)

    # ------------------------------------------------------------------ what it left

    def _results(self, index: int) -> Path:
        return self.folder / f"step-{index}" / ARTIFACTS / aiperf.RESULTS

    def _read(self, index: int, value: float) -> dict[str, Any] | None:
        """A step of the summary, without what needs the records; None where it was stopped before it measured."""
        try:
            found = aiperf.read_results(self._results(index).read_text(encoding="utf-8"))
        except (OSError, aiperf.UnreadableResults) as error:
            raise Ended(
                Failure(
                    "aiperf_unreadable",
                    _("AIPerf's results cannot be read: %(why)s") % {"why": error},
                    _("See the run's log; its files lie in %(folder)s.") % {"folder": self.folder},
                )
            ) from error
        if self.stop_seen is not None and not found.completed:
            return None
        figures = {**found.figures, "completed": found.completed, "errors": found.errors}
        return {
            "value": value,
            "stopped": "stop" if self.stop_seen is not None else "measured",
            "figures": figures,
        }

    def _asked(self, index: int) -> Iterator[aiperf_records.Asked]:
        path = self.folder / f"step-{index}" / ARTIFACTS / aiperf_records.RECORDS
        try:
            with path.open(encoding="utf-8") as file:
                yield from (found for line in file if (found := aiperf_records.read_line(line)) is not None)
        except OSError:
            return

    def _sum_up(
        self, watch: Watch, steps: list[dict[str, Any]], version: str, ran: list[tuple[str, ...]]
    ) -> None:
        zero = min((each.record.sent for each in self._asked(0)), default=0.0)
        for index, step in enumerate(steps):
            measured = [
                (each.record.sent, each.record.ended)
                for each in self._asked(index)
                if each.phase == aiperf_records.PROFILING
            ]
            begin = min((sent for sent, _ended in measured), default=zero) - zero
            end = max((ended for _sent, ended in measured), default=zero) - zero
            step |= {"begin": begin, "end": max(end, begin + 1e-3), "cdf": {}}
        seconds = aiperf_records.Seconds()
        self._keep_records(len(steps), zero, seconds)
        data = records.columns(records.read([self.folder / RECORDS.format(0)]))
        mode = self.scenario.load.metrics_mode
        for index, step in enumerate(steps):
            step["cdf"] = distributions(data.of_step(index), Window(step["begin"], step["end"]), mode)
        summary = {
            "steps": steps,
            "counts_from": "usage",
            # Seconds of the wall clock: its figures begin with its first request, which it takes a while to send.
            "began": zero,
            "seed": self.row.seed,
            "aiperf": {"version": version, "commands": [list(words) for words in ran]},
        }
        (self.folder / SUMMARY).write_text(json.dumps(summary, indent=1), encoding="utf-8")
        self._clear(len(steps))
        self._finish(
            watch,
            self.stop_seen is not None,
            summary=summary,
            series=thinned(seconds.points(steps[0]["begin"])),
        )

    def _keep_records(self, steps: int, zero: float, seconds: aiperf_records.Seconds) -> None:
        """Write every step's records as ours, and count them by the second."""
        with gzip.open(self.folder / RECORDS.format(0), "wb", compresslevel=1) as file:
            for index in range(steps):
                for row in aiperf_records.moved(self._asked(index), zero, index):
                    file.write(json.dumps(records.as_line(row)).encode() + b"\n")
                    seconds.add(row)

    def _clear(self, steps: int) -> None:
        """What stands in our files, or can be made again, goes; AIPerf's summary and its own log stay."""
        shutil.rmtree(self.folder / "work", ignore_errors=True)
        for index in range(steps):
            folder = self.folder / f"step-{index}"
            for path in (
                folder / PROMPTS,
                folder / ARTIFACTS / aiperf_records.RECORDS,
                folder / ARTIFACTS / "inputs.json",
            ):
                path.unlink(missing_ok=True)


class _Reader:
    """Hands AIPerf's lines to what it told; progress comes from the clock, since its lines are seldom."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def read(self, line: str) -> Seen | None:
        """See Milestones."""
        self._told.read(line, time.monotonic())
        return None
