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
from workers.attempt_rows import Ended
from workers.builders.base import Step
from workers.builders.llamacpp import PASSED_ON, serving_python
from workers.child_attempt import CHECKOUT
from workers.loadgen.plan import Address, addresses_of
from workers.pumps import LogFile
from workers.quality import answers
from workers.quality.rows import PLAN, ROWS
from workers.run_attempt import RunAttempt
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


class QualityAttempt(RunAttempt):
    """One claimed attempt."""

    row: QualityRun
    # What an attempt before wrote is used again.
    keeps_folder = True
    died = "comparison_died"

    def __init__(self, claim: Claim, worker: str) -> None:
        folder = claim.run.folder or selectors.quality_folder() / str(claim.run.number)
        super().__init__(claim, worker, Path(folder))
        self.began = time.monotonic()
        self.first: float | None = None

    def _what(self) -> str:
        return _("The comparison")

    def _work(self, output: LogFile, watch: Watch) -> None:
        step = self._of_deployments() if self.row.deployment is not None else self._of_files()
        self._keep(watch, folder=str(self.folder), log_path=str(output.path))
        self._judge(self._supervisor(output, watch).run(step), watch)
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
