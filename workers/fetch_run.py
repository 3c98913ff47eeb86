"""One attempt to bring a checkpoint here: claim, child processes, inspection, or the reason why not."""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from apps.core.exceptions import InflightError
from apps.fleet.processes import ProcessIdentity
from apps.registry import inspection
from apps.registry.domain.sources import archive_file, locate_path, refuse_pickles
from apps.registry.hub import attempts, policy
from apps.registry.hub.access import access
from apps.registry.hub.attempts import Child, Claim, Failure
from apps.registry.hub.folders import partial_of
from apps.registry.models import Checkpoint
from apps.registry.selectors import (
    allowed_roots,
    archive_roots,
    checkpoints_folder,
    fetches_folder,
    uploads_folder,
)
from workers.attempt_rows import Ended, refuse_order
from workers.builders.base import Step
from workers.child_attempt import CHECKOUT, ChildAttempt
from workers.fetching.common import TOKEN
from workers.pumps import LogFile
from workers.rates import Rate
from workers.supervisor import StepResult, Supervisor
from workers.watch import Watch

log = logging.getLogger(__name__)
# Network and machine are to blame; what is here stays, and another try goes on from it.
RETRIED = frozenset(
    {"no_network", "network_interrupted", "hub_error", "rate_limited", "fetched_elsewhere", "killed"}
)
# The source itself is not to be used as it is; nothing is gained by trying again.
REFUSED = frozenset(
    {"pickle_refused", "no_weights", "no_config", "choose_files", "files_not_found", "gguf_sharded"}
    | {"hub_unsafe_name", "too_many_files", "file_too_large", "repo_invalid", "url_not_allowed"}
)
# What of the environment a child may see besides what we set: proxies and certificates of the machine.
PASSED_ON = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


def run_fetch(checkpoint_id: int, worker: str) -> bool:
    """Claim a checkpoint and fetch it to its end. False where there was nothing to claim."""
    claim = attempts.claim_fetch(checkpoint_id, worker, settings.INFLIGHT_NODE_ID)
    if claim is None:
        log.info("Checkpoint %d is not to be fetched (any more).", checkpoint_id)
        return False
    FetchAttempt(claim, worker).run()
    return True


class FetchAttempt(ChildAttempt):
    """One claimed attempt. What was fetched in part stays."""

    row: Checkpoint
    keeps_folder = True
    progress_every = policy.PROGRESS_EVERY_SECONDS

    def __init__(self, claim: Claim, worker: str) -> None:
        row, previous = claim.checkpoint, claim.previous
        identity = ProcessIdentity(previous.pid, previous.created, previous.group) if previous else None
        super().__init__(row, claim.attempt, worker, identity, fetches_folder() / str(row.pk))
        self.before = _bytes_here(row)
        self.source = row.source
        self.rate = Rate()

    def _log_path(self) -> Path:
        return self.folder / f"log-{self.number}.txt"

    def _renew(self) -> bool:
        return attempts.renew_fetch(self.row, self.number)

    def _must_end(self) -> bool:
        return attempts.cancel_requested(self.row)

    def _amend(self, **columns: Any) -> bool:
        return attempts.record_fetch(self.row, self.number, **columns)

    def _amend_child(self, child: ProcessIdentity) -> bool:
        return attempts.record_fetch_child(
            self.row, self.number, Child(child.pid, child.created, child.group)
        )

    def _failure(self, reason: str, sentence: str, remedy: str) -> Failure:
        return Failure(reason, sentence, remedy)

    def _explained(self, error: Exception) -> Failure | None:
        if isinstance(error, InflightError):
            return Failure(error.code, error.sentence, error.remedy, refused=error.status == 422)
        return _failure_of_os(error) if isinstance(error, OSError) else None

    def _overdue(self) -> Failure:
        return _deadline()

    def _work(self, output: LogFile, watch: Watch) -> None:
        supervisor = self._supervisor(output, watch)
        self._keep(watch, log_path=str(output.path))
        if "archive" in self.source:
            folder, sha256 = self._unpack(supervisor)
        else:
            folder, sha256 = self._download(supervisor)
        self._inspect(watch, Path(folder), sha256)
        self._clear()

    def _download(self, supervisor: Supervisor) -> tuple[str, str]:
        """Resolve and fetch; returns the folder and, for a single file of weights, its SHA-256."""
        hub, allowed = self.source["huggingface"], access()
        plan: dict[str, Any] = {
            "repo": hub["repo"],
            "revision": hub.get("revision", "main"),
            "commit": self.row.commit,
            "files": hub.get("files", []),
            "pickle": bool(self.source.get("pickle")),
            "endpoint": allowed.endpoint,
            "allow": list(settings.INFLIGHT_OUTBOUND_ALLOW),
            "checkpoints": str(checkpoints_folder()),
            "margin_bytes": policy.DISK_MARGIN_BYTES,
            "parallel": policy.PARALLEL_FILES,
        }
        env = self._hub_environment(allowed.token)
        found = self._step(supervisor, "resolve", _("Ask the hub"), "hub_resolve", plan, env)
        self._keep(
            supervisor.watch, commit=found["commit"], folder=found["folder"], bytes_total=found["total"]
        )
        chosen = {"commit": found["commit"], "folder": found["folder"], "chosen": found["files"]}
        self._step(supervisor, "fetch", _("Fetch the files"), "hub_fetch", {**plan, **chosen}, env)
        single = found["files"][0]["sha256"] if found["form"] == "gguf" else ""
        return str(found["folder"]), str(single)

    def _unpack(self, supervisor: Supervisor) -> tuple[str, str]:
        archive = archive_file(self.source["archive"], archive_roots())
        self._keep(supervisor.watch, bytes_total=2 * archive.stat().st_size, bytes_done=0)
        plan = {
            "archive": str(archive),
            "checkpoints": str(checkpoints_folder()),
            "margin_bytes": policy.DISK_MARGIN_BYTES,
            "max_entries": policy.MAX_ENTRIES,
            "max_bytes": policy.MAX_UNPACKED_BYTES,
            "max_ratio": policy.MAX_RATIO,
            "ratio_free_bytes": policy.RATIO_FREE_BYTES,
            "memory_bytes": policy.UNPACK_MEMORY_BYTES,
        }
        found = self._step(
            supervisor, "unpack", _("Unpack the archive"), "archive_unpack", plan, _environment()
        )
        self._keep(supervisor.watch, folder=found["folder"])
        return str(found["folder"]), ""

    def _step(
        self,
        supervisor: Supervisor,
        name: str,
        title: str,
        program: str,
        plan: dict[str, Any],
        env: dict[str, str],
    ) -> dict[str, Any]:
        """Run one program to its end; returns what it found. Raises Ended unless it ended well."""
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(plan, indent=2), encoding="utf-8")
        checkpoints_folder().mkdir(parents=True, exist_ok=True)
        result = supervisor.run(
            Step(
                name=name,
                title=title,
                argv=(sys.executable, "-m", f"workers.fetching.{program}", str(path)),
                cwd=CHECKOUT,
                env=env,
                deadline_seconds=policy.DEADLINE_SECONDS,
            )
        )
        if result.progress is not None:
            self._progress(*result.progress, last=True)
        self._judge(title, result, supervisor)
        return result.result

    def _judge(self, title: str, result: StepResult, supervisor: Supervisor) -> None:
        refuse_order(result, supervisor.watch)
        if result.ending == "deadline":
            raise Ended(_deadline())
        if result.failure is not None:
            raise Ended(_failure_of_event(result.failure, result.result))
        if result.exit_code != 0:
            raise Ended(_failure_of_exit(title, result.exit_code, supervisor.log))

    def _inspect(self, watch: Watch, folder: Path, sha256: str) -> None:
        """Read the headers of what was published, as registering does for files that were here."""
        located = locate_path(folder, allowed_roots())
        self._write(
            watch, lambda: attempts.begin_inspection(self.row, self.number, str(located.path), self.worker)
        )
        refuse_pickles(located, bool(self.source.get("pickle")))
        found = inspection.inspect(located)
        if sha256 and not found.sha256:
            found = inspection.Inspected(
                found.form, found.size_bytes, sha256, found.facts, found.chat_template
            )
        self._write(watch, lambda: attempts.finish_fetch(self.row, self.number, found, self.worker))

    def _clear(self) -> None:
        """An upload is of no use once it is unpacked; nobody else names it."""
        archive = Path(self.source.get("archive", "/"))
        if archive.parent == uploads_folder():
            archive.unlink(missing_ok=True)

    def _hub_environment(self, token: str | None) -> dict[str, str]:
        home = self.folder / "hub-home"
        home.mkdir(parents=True, exist_ok=True)
        switches = {
            # A mode of transfer of its own, which no mirror speaks and no cut-off goes on from.
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
            "HF_HUB_DOWNLOAD_TIMEOUT": "30",
            "HF_HUB_VERBOSITY": "error",
            "HF_HOME": str(home),
            "HOME": str(home),
        }
        return {**_environment(), **switches, **({TOKEN: token} if token else {})}

    # ------------------------------------------------------------------ the row

    def _progress(self, done: float, total: float, last: bool = False) -> None:
        # The rate is smoothed over every word of the child, also those that are not written.
        self.rate.seen(done, time.monotonic())
        super()._progress(done, total, last)

    def _columns(self, done: float, total: float) -> dict[str, Any]:
        return {
            "bytes_done": int(done),
            "bytes_total": int(total),
            "rate_bytes_per_second": self.rate.per_second,
            "eta_seconds": self.rate.seconds_for(total - done),
        }

    def _ending(self, ended: Ended) -> Callable[[], bool] | None:
        row, number, worker = self.row, self.number, self.worker
        if ended.failure is not None:
            failure = ended.failure
            gained = _bytes_here(row) > self.before
            return lambda: attempts.fail_fetch(row, number, failure, worker, progressed=gained)
        if ended.order == "cancelled":
            return lambda: attempts.end_cancelled_fetch(row, number, worker)
        if ended.order == "stopped":
            why = Failure(
                "worker_stopped", _("The worker stopped; the next one goes on where it was."), retry_after=0.0
            )
            return lambda: attempts.requeue_fetch(row, number, why, worker, retries=row.retries)
        return None


def _bytes_here(row: Checkpoint) -> int:
    """Bytes in the hidden folder of a fetch: they tell what an attempt gained that could not tell it any more."""
    if not row.folder:
        return 0
    files = (path for path in partial_of(Path(row.folder)).rglob("*") if path.is_file())
    return sum(path.stat().st_size for path in files)


def _environment() -> dict[str, str]:
    passed = {
        name: os.environ[name] for upper in PASSED_ON for name in (upper, upper.lower()) if name in os.environ
    }
    local = ",".join(filter(None, [passed.get("NO_PROXY") or passed.get("no_proxy"), "127.0.0.1,localhost"]))
    proxied = {"NO_PROXY": local, "no_proxy": local} if passed else {}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1", **passed, **proxied}


def _failure_of_event(event: dict[str, Any], result: dict[str, Any]) -> Failure:
    reason = str(event.get("reason", "step_failed"))
    wait = result.get("retry_after_seconds")
    return Failure(
        reason,
        str(event.get("sentence", "")),
        str(event.get("remedy", "")),
        retry=reason in RETRIED,
        refused=reason in REFUSED or reason.startswith("archive_"),
        retry_after=float(wait) if isinstance(wait, int | float) else None,
        offered=tuple(result.get("offered", ())),
    )


def _failure_of_exit(title: str, exit_code: int | None, output: LogFile) -> Failure:
    if exit_code is not None and exit_code < 0:
        return Failure(
            "killed",
            _("%(stage)s was ended by signal %(signal)d.") % {"stage": title, "signal": -exit_code},
            _("See whether this machine ran out of memory; it goes on where it was."),
            retry=True,
        )
    lines = [
        line for line in output.tail().splitlines() if line.strip() and not line.startswith("[inflight]")
    ]
    return Failure(
        "step_failed",
        _("%(stage)s ended with exit code %(code)s. Its last line: %(line)s")
        % {"stage": title, "code": exit_code, "line": lines[-1][:300] if lines else "-"},
        _("See the log; then try again."),
    )


def _failure_of_os(error: OSError) -> Failure:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Failure(
            "disk_full",
            _("The disk is full at %(path)s.") % {"path": error.filename or settings.INFLIGHT_HOME},
            _("Free space on that disk, then try again: it goes on where it was."),
        )
    return Failure(
        "worker_cannot_work",
        _("The worker cannot work on it: %(why)s (%(path)s).")
        % {"why": error.strerror or error, "path": error.filename or "-"},
        _("See the worker's log; check the rights and limits of the user that runs it."),
    )


def _deadline() -> Failure:
    return Failure(
        "deadline",
        _("It ran longer than %(hours)d hours and was ended.") % {"hours": policy.DEADLINE_SECONDS / 3600},
        _("Try again: it goes on where it was. A mirror that is nearer may be faster."),
    )
