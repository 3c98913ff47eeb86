"""Why an attempt at a build failed: from what a step said, from its log, from the machine."""

from __future__ import annotations

import errno
import signal
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from apps.core.exceptions import Finding
from apps.diagnosis.domain.circumstances import Circumstances
from apps.diagnosis.domain.rules import diagnose
from apps.engines.attempts import Failure
from workers.builders.base import Step
from workers.pumps import LogFile
from workers.supervisor import StepResult

# The cause is the earliest error, and what follows it may be long; a second of work at most.
LOG_TAIL_BYTES = 4 * 1024 * 1024
# Causes that lie with the machine and may be gone at the next try.
RETRIED = frozenset({"killed"})
# SIGKILL of a step, and as a container program or a shell tells it of its own child.
KILLED = frozenset({-int(signal.SIGKILL), 128 + int(signal.SIGKILL)})


def failure_of_step(step: Step, result: StepResult, output: LogFile) -> Failure | None:
    """Why a step that was left to itself failed; None where it ended well."""
    if result.ending == "deadline":
        return _failure_of_deadline(step)
    if result.ending == "disk_low":
        return _failure_of_disk(step, result)
    if result.failure is not None:
        return _failure_of_event(result.failure)
    if result.exit_code != 0:
        return _failure_of_log(step, result, output)
    missing = next((path for path in step.outputs if not path.exists()), None)
    findings = step.accept() if step.accept is not None else []
    if findings:
        return _failure_of_findings(step, findings)
    if missing is None:
        return None
    return Failure(
        "output_missing",
        _("%(stage)s ended well but left no %(file)s.") % {"stage": step.title, "file": missing.name},
        _("Try again; look for something else that removes files under builds/."),
        retry=True,
    )


def _failure_of_deadline(step: Step) -> Failure:
    sentence = _("%(stage)s ran longer than %(hours)s hours and was ended.")
    hours = f"{step.deadline_seconds / 3600:.1f}"
    return Failure(
        "deadline",
        sentence % {"stage": step.title, "hours": hours},
        _("See the log for what it waited for; then try again."),
    )


def _failure_of_disk(step: Step, result: StepResult) -> Failure:
    left = (result.usage.disk_left_bytes or 0) / 1e6
    sentence = _("%(stage)s was ended because only %(left)s MB are left on the disk of %(folder)s.")
    return Failure(
        "disk_full",
        sentence % {"stage": step.title, "left": f"{left:.0f}", "folder": step.cwd},
        _("Delete engines and stages that are no longer needed, or free space on that disk, then try again."),
    )


def _failure_of_findings(step: Step, findings: list[Finding]) -> Failure:
    """Exit code 0, but what was left is not what was asked for."""
    sentence = _("%(stage)s ended with exit code 0, but: %(finding)s")
    return Failure(
        findings[0].id,
        sentence % {"stage": step.title, "finding": findings[0].message},
        findings[0].remedy,
    )


def out_of_time() -> Failure:
    """The task's own limit."""
    return Failure(
        "deadline",
        _("The build ran longer than a day and was ended."),
        _("See the log for what it waited for; then try again."),
    )


def failure_of_ours(error: Exception) -> Failure:
    """A fault of this program."""
    return Failure(
        "internal_error",
        _("The worker itself failed: %(error)s.") % {"error": f"{type(error).__name__}: {error}"},
        _("Report it with the worker's log under logs/, then try again."),
    )


def _failure_of_event(event: dict[str, Any]) -> Failure:
    reason = str(event.get("reason", "step_failed"))
    return Failure(
        reason, str(event.get("sentence", "")), str(event.get("remedy", "")), retry=reason in RETRIED
    )


def _failure_of_log(step: Step, result: StepResult, output: LogFile) -> Failure:
    """A step that said nothing: its log's cause, else what the host looked like, else its last line."""
    before, text = output.numbered_tail(LOG_TAIL_BYTES)
    exit_code = result.exit_code
    known = Circumstances(command=step.words)
    found = diagnose(text, "build", exit_code, known, before=before).diagnosis
    if exit_code in KILLED and result.usage.memory_was_low and (found is None or found.id in RETRIED):
        return Failure(
            "host_out_of_memory",
            _("%(stage)s was killed while the host had next to no memory left.") % {"stage": step.title},
            _("Use fewer workers, stop something else on that host, or give it more memory."),
            diagnosis=found.as_dict() if found is not None else None,
        )
    if found is not None:
        evidence = f" {found.evidence[0].text}" if found.evidence else ""
        return Failure(
            found.id,
            f"{found.title}{evidence}",
            found.remedies[0],
            retry=found.id in RETRIED,
            diagnosis=found.as_dict(),
        )
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    return Failure(
        "step_failed",
        _("%(stage)s ended with exit code %(code)s. Its last line: %(line)s")
        % {"stage": step.title, "code": exit_code, "line": last[:300]},
        _("See the log; then try again or change the profile."),
    )


def failure_of_os(error: OSError) -> Failure:
    """The operating system refuses something."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Failure(
            "disk_full",
            _("The disk is full at %(path)s.") % {"path": error.filename or settings.INFLIGHT_HOME},
            _("Delete engines that are no longer needed, or free space on that disk, then try again."),
        )
    transient = error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
    return Failure(
        "worker_cannot_work",
        _("The worker cannot work on it: %(why)s (%(path)s).")
        % {"why": error.strerror or error, "path": error.filename or "-"},
        _("See the worker's log; check the rights and limits of the user that runs it."),
        retry=transient,
    )
