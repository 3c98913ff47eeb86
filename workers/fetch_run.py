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

from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import DatabaseError, connections
from django.utils.translation import gettext as _

from apps.core.exceptions import InflightError
from apps.engines.attempts import Renewal
from apps.fleet.processes import ProcessIdentity, end_tree, mark_of
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
from workers.attempt_rows import Ended, refuse_order, write_row
from workers.builders.base import Step
from workers.fetching.common import TOKEN
from workers.pumps import LogFile
from workers.rates import Rate
from workers.stopping import stopping
from workers.supervisor import StepResult, Supervisor
from workers.watch import Duties, Watch

log = logging.getLogger(__name__)
CHECKOUT = Path(__file__).resolve().parents[1]
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
    Attempt(claim, worker).run()
    return True


class Attempt:
    """One claimed attempt."""

    def __init__(self, claim: Claim, worker: str) -> None:
        self.row, self.number, self.worker = claim.checkpoint, claim.attempt, worker
        self.previous = claim.previous
        self.before = _bytes_here(claim.checkpoint)
        self.source = claim.checkpoint.source
        self.folder = fetches_folder() / str(self.row.pk)
        self.rate = Rate()
        self.written_at = 0.0

    def run(self) -> None:
        """Work, then write how it ended. What was fetched in part stays."""
        watch = Watch(
            Duties(
                renew=lambda: Renewal(attempts.renew_fetch(self.row, self.number), False),
                cancelled=lambda: attempts.cancel_requested(self.row),
                stopping=stopping,
            )
        )
        watch.start()
        output: LogFile | None = None
        try:
            self._end_previous()
            output = LogFile(self.folder / f"log-{self.number}.txt")
            self._work(output, watch)
        except Ended as ended:
            self._write_end(watch, ended)
        except InflightError as error:
            self._write_end(
                watch, Ended(Failure(error.code, error.sentence, error.remedy, refused=error.status == 422))
            )
        except OSError as error:
            self._write_end(watch, Ended(_failure_of_os(error)))
        except SoftTimeLimitExceeded:
            self._write_end(watch, Ended(_deadline()))
        except Exception as error:
            # A fault of ours: the row says so at once instead of waiting for its lease to run out.
            log.exception("Fetching %s, attempt %d failed in the worker itself.", self.row.name, self.number)
            self._write_end(watch, Ended(_failure_of_ours(error)))
        finally:
            watch.stop()
            if output is not None:
                output.close()

    def _end_previous(self) -> None:
        """A new attempt first ends what the last one may have left running on this host."""
        if self.number > 1:
            previous = self.previous
            identity = ProcessIdentity(previous.pid, previous.created, previous.group) if previous else None
            end_tree(self._mark(self.number - 1), identity, 1.0)

    def _mark(self, attempt: int) -> str:
        return mark_of(settings.INFLIGHT_NODE_ID, self.row.kind, self.row.pk, attempt)

    def _work(self, output: LogFile, watch: Watch) -> None:
        supervisor = Supervisor(
            mark=self._mark(self.number),
            log=output,
            watch=watch,
            record=lambda child: self._record(watch, child),
            progress=self._progress,
        )
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
        """Bytes to the row, once a second. Progress may be lost; nothing depends on it."""
        now = time.monotonic()
        self.rate.seen(done, now)
        if not last and now - self.written_at < policy.PROGRESS_EVERY_SECONDS:
            return
        self.written_at = now
        columns = {
            "bytes_done": int(done),
            "bytes_total": int(total),
            "rate_bytes_per_second": self.rate.per_second,
            "eta_seconds": self.rate.seconds_for(total - done),
        }
        try:
            attempts.record_fetch(self.row, self.number, **columns)
        except DatabaseError as error:
            log.warning("Progress of %s was not written: %s", self.row.name, error)
            connections.close_all()

    def _keep(self, watch: Watch, **columns: Any) -> None:
        self._write(watch, lambda: attempts.record_fetch(self.row, self.number, **columns))

    def _record(self, watch: Watch, child: ProcessIdentity) -> bool:
        """Put a child's identity on the row; False where it may not run."""
        identity = Child(child.pid, child.created, child.group)
        try:
            self._write(watch, lambda: attempts.record_fetch_child(self.row, self.number, identity))
        except Ended:
            return False
        return True

    def _write(self, watch: Watch, write: Callable[[], bool]) -> None:
        """Write to the row; see attempt_rows."""
        write_row(self.row.name, watch, write)

    def _write_end(self, watch: Watch, ended: Ended) -> None:
        """Write how the attempt ended. Where the lease is lost nothing is ours to write any more."""
        row, number, worker = self.row, self.number, self.worker
        if ended.failure is not None:
            failure = ended.failure
            gained = _bytes_here(row) > self.before
            write = lambda: attempts.fail_fetch(row, number, failure, worker, progressed=gained)  # noqa: E731
        elif ended.order == "cancelled":
            write = lambda: attempts.end_cancelled_fetch(row, number, worker)  # noqa: E731
        elif ended.order == "stopped":
            why = Failure(
                "worker_stopped", _("The worker stopped; the next one goes on where it was."), retry_after=0.0
            )
            write = lambda: attempts.requeue_fetch(row, number, why, worker, retries=row.retries)  # noqa: E731
        else:
            log.warning("Fetching %s, attempt %d: the lease was lost.", row.name, number)
            return
        try:
            self._write(watch, write)
        except Ended:
            log.warning("Fetching %s, attempt %d: its end could not be written.", row.name, number)


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


def _failure_of_ours(error: Exception) -> Failure:
    return Failure(
        "internal_error",
        _("The worker itself failed: %(error)s.") % {"error": f"{type(error).__name__}: {error}"},
        _("Report it with the worker's log under logs/, then try again."),
    )


def _deadline() -> Failure:
    return Failure(
        "deadline",
        _("It ran longer than %(hours)d hours and was ended.") % {"hours": policy.DEADLINE_SECONDS / 3600},
        _("Try again: it goes on where it was. A mirror that is nearer may be faster."),
    )
