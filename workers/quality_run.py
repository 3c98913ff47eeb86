"""One attempt at a quality run: claim, plan, the comparison as a supervised child, its summary, or why not."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from apps.core.exceptions import NotPossibleNow
from apps.loadtests import attempts, quality, selectors
from apps.loadtests.attempts import Claim, Failure
from apps.loadtests.domain.quality import UnreadableRows, read_rows, summary
from apps.loadtests.models import QualityRun
from apps.loadtests.policy import QUALITY_SECONDS
from apps.registry.models import Checkpoint
from apps.serving import selectors as serving
from apps.serving.models import Deployment
from apps.streaming import prompts
from apps.streaming.domain.chat_template import TemplateFailure
from workers.attempt_rows import Ended, refuse_order
from workers.builders.base import Step
from workers.builders.llamacpp import PASSED_ON, serving_python
from workers.load_run import CHECKOUT, Attempt
from workers.loadgen.plan import Address, addresses_of
from workers.pumps import LogFile
from workers.quality import answers
from workers.quality.rows import PLAN, ROWS
from workers.supervisor import StepResult, Supervisor
from workers.watch import Watch

log = logging.getLogger(__name__)
DATA = CHECKOUT / "apps" / "loadtests" / "data"
TEXT, PROMPTS = DATA / "quality_text.txt", DATA / "quality_prompts.json"


def run_quality(run_id: int, worker: str) -> bool:
    """Claim a queued quality run and make it. False where there was nothing to claim."""
    claim = attempts.claim_run(run_id, worker, settings.INFLIGHT_NODE_ID, QualityRun)
    if claim is None:
        log.info("Quality run %d is not to be made (any more).", run_id)
        return False
    QualityAttempt(claim, worker).run()
    return True


class QualityAttempt(Attempt):
    """One claimed attempt; leases, stops, failures and how it ends are those of a load run."""

    row: QualityRun
    # What an attempt before wrote is used again.
    keeps_folder = True

    def __init__(self, claim: Claim, worker: str) -> None:
        super().__init__(claim, worker)
        self.folder = Path(self.row.folder or selectors.quality_folder() / str(self.row.number))
        self.began = time.monotonic()
        self.first: float | None = None

    def _work(self, output: LogFile, watch: Watch) -> None:
        step = self._of_deployments() if self.row.deployment is not None else self._of_files()
        self._keep(watch, folder=str(self.folder), log_path=str(output.path))
        supervisor = Supervisor(
            mark=self._mark(self.number),
            log=output,
            watch=watch,
            record=lambda child: self._record(watch, child),
            progress=self._progress,
        )
        self._judge(supervisor.run(step), watch)
        self._finish(watch)

    def _of_files(self) -> Step:
        row = self.row
        if row.engine is None:
            raise NotPossibleNow("gone", _("The engine is gone."), remedy=_("Start another run."))
        source = (
            quality.file_of(row.baseline) if row.baseline is not None else Path(row.engine.checkpoint.path)
        )
        plan = {
            "source": str(source),
            "build": str(quality.file_of(row.engine)),
            "text": TEXT.read_text(encoding="utf-8"),
            "prompts": _read_by(row.engine.checkpoint),
            "windows": row.settings["windows"],
            "answer_tokens": row.settings["answer_tokens"],
            "threads": os.cpu_count() or 1,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / PLAN
        path.write_text(json.dumps(plan), encoding="utf-8")
        return self._step("workers.quality.logits", str(serving_python()), path, ("-P",))

    def _of_deployments(self) -> Step:
        row = self.row
        sides: dict[str, Deployment] = {}
        for side, deployment in (("build", row.deployment), ("source", row.baseline_deployment)):
            if deployment is None or not serving.endpoints(deployment):
                raise NotPossibleNow(
                    "nothing_serving",
                    _("The deployment of the %(side)s does not serve (any more).") % {"side": side},
                    remedy=_("Deploy it, then start the run again."),
                )
            sides[side] = deployment
        plan = answers.Plan(
            source=_addresses(sides["source"]),
            build=_addresses(sides["build"]),
            prompts=[
                [
                    name,
                    shown,
                    _rendered(_checkpoint(sides["source"]), shown),
                    _rendered(_checkpoint(sides["build"]), shown),
                ]
                for name, shown in _golden()
            ],
            answer_tokens=row.settings["answer_tokens"],
            subject="/".join(f"{each.name}:{each.active_revision_id}" for each in sides.values()),
        )
        return self._step("workers.quality.answers", sys.executable, plan.write(self.folder))

    def _step(self, module: str, python: str, plan: Path, options: Sequence[str] = ()) -> Step:
        passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        return Step(
            name="quality",
            title=_("Compare the build with its source"),
            argv=(python, *options, "-m", module, str(plan)),
            cwd=CHECKOUT,
            env={
                **passed,
                "PATH": os.defpath,
                "HOME": str(self.folder),
                "PYTHONPATH": str(CHECKOUT),
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONUNBUFFERED": "1",
            },
            deadline_seconds=QUALITY_SECONDS,
        )

    def _judge(self, result: StepResult, watch: Watch) -> None:
        refuse_order(result, watch)
        if result.failure is not None:
            told = result.failure
            raise Ended(
                Failure(str(told.get("reason")), str(told.get("sentence")), str(told.get("remedy") or ""))
            )
        if result.ending == "deadline":
            raise Ended(Failure("deadline", _("It ran for hours and was ended."), _("See the run's log.")))
        if result.exit_code != 0:
            raise Ended(
                Failure(
                    "comparison_died",
                    _("The comparison ended with exit code %(code)s.") % {"code": result.exit_code},
                    _("See the run's log."),
                    retry=True,
                )
            )

    def _finish(self, watch: Watch) -> None:
        try:
            windows, found = read_rows((self.folder / ROWS).read_text(encoding="utf-8"))
        except (OSError, UnreadableRows) as error:
            raise Ended(
                Failure(
                    "rows_unreadable", _("What it wrote cannot be read: %(why)s") % {"why": error}, retry=True
                )
            ) from error
        if not windows and not found:
            raise Ended(
                Failure(
                    "nothing_measured",
                    _("The bundled text has no whole window for this model, and nothing was answered."),
                    _("See the run's log."),
                )
            )
        result = summary(windows, found)
        self._write(watch, lambda: attempts.finish_run(self.row, self.number, self.worker, result=result))

    def _stop_is_overdue(self) -> bool:
        return attempts.stop_requested(self.row)

    def _columns(self, done: float, total: float) -> dict[str, Any]:
        # Rows of an attempt before are counted at once, so only what came since then tells the speed.
        if self.first is None:
            self.first, self.began = done, time.monotonic()
        gained, spent = done - self.first, time.monotonic() - self.began
        return {
            "progress": min(1.0, done / total) if total else None,
            "eta_seconds": spent * (total - done) / gained if gained > 0 else None,
        }


def _addresses(deployment: Deployment) -> list[Address]:
    found = serving.endpoints(deployment)
    return list(addresses_of([(each.http_url, each.grpc_url, each.model) for each in found]))


def _golden() -> list[tuple[str, str]]:
    rows: list[dict[str, str]] = json.loads(PROMPTS.read_text(encoding="utf-8"))
    return [(row["name"], row["prompt"]) for row in rows]


def _read_by(checkpoint: Checkpoint) -> list[list[str]]:
    return [[name, shown, _rendered(checkpoint, shown)] for name, shown in _golden()]


def _checkpoint(deployment: Deployment) -> Checkpoint | None:
    revision = deployment.active_revision
    return revision.engine.checkpoint if revision is not None and revision.engine is not None else None


def _rendered(checkpoint: Checkpoint | None, question: str) -> str:
    """The question in the checkpoint's chat template; as it is where there is none."""
    if checkpoint is None:
        return question
    try:
        return prompts.render(checkpoint, prompts.conversation(question)).text
    except TemplateFailure:
        return question
