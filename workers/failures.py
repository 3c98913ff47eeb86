"""Why a server did not start, load or go on: reasons, sentences and remedies, and the slice of its log."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from django.utils.translation import gettext as _

from apps.core.exceptions import InflightError
from apps.diagnosis.domain.rules import Diagnosis, diagnose
from workers import server_circumstances
from workers.runtimes.base import Failure, ServerFailure, ServerSpec

log = logging.getLogger(__name__)

# What is read of a log's end, and what of it the row keeps.
READ_BYTES = 256 * 1024
KEPT_CHARACTERS = 12_000
LOAD_MARK = "load.json"
POLL_FAILED = re.compile(r'"Poll failed for model directory \'[^\']*\': (?P<reason>.*)"\s*$', re.MULTILINE)
PARSE_ERROR = re.compile(r"Error parsing text-format \S+: (?P<reason>.*)$", re.MULTILINE)
# Failures whose own sentence says little: the log's diagnosis is added to it.
_VAGUE = frozenset({"crashed", "start_failed", "not_answering", "model_process_died", "start_timeout"})


@dataclass(frozen=True, slots=True)
class Explained:
    """A failure with what the log adds. `diagnosis` is the instance's column of that name."""

    failure: Failure
    diagnosis: dict[str, Any]


def explain(failure: Failure, spec: ServerSpec, exit_code: int | None) -> Explained:
    """Add the log's slice (since the load began, else its end) and what it says about the cause."""
    text = log_since_load(spec)
    found = _cause(text, spec, exit_code) if text else None
    sentence = failure.sentence
    if failure.reason == "load_failed" and "failed to poll" in sentence:
        sentence = _poll_reason(text) or sentence
    if found is not None and failure.reason in _VAGUE:
        sentence = f"{sentence} {found.title}".strip()
    remedy = found.remedies[0] if found is not None and found.remedies else failure.remedy
    return Explained(
        replace(failure, sentence=sentence, remedy=remedy),
        {"log": text[-KEPT_CHARACTERS:], "diagnosis": _as_dict(found)},
    )


def _cause(text: str, spec: ServerSpec, exit_code: int | None) -> Diagnosis | None:
    """What the log says, with what is known of the server besides. Never fails: the instance must be given up."""
    try:
        return diagnose(text, "server", exit_code or None, server_circumstances.of(spec)).diagnosis
    except Exception:
        log.exception("The log of %s could not be diagnosed", spec.uid)
        return None


def _as_dict(found: Diagnosis | None) -> dict[str, Any] | None:
    return found.as_dict() if found is not None else None


def _poll_reason(text: str) -> str | None:
    match = PARSE_ERROR.search(text) or POLL_FAILED.search(text)
    if match is None:
        return None
    return _("Triton could not read the model's configuration: %(detail)s") % {"detail": match["reason"]}


# ---------------------------------------------------------------------- the log


def log_tail(log: Path, start: int = 0) -> str:
    """The end of a log, from `start` on at the earliest; empty where there is none."""
    try:
        with log.open("rb") as handle:
            size = handle.seek(0, 2)
            handle.seek(max(start, size - READ_BYTES))
            # PostgreSQL keeps no NUL, and a row that cannot be written is never given up.
            return handle.read().decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    except OSError:
        return ""


def mark_load(folder: Path, log: Path, gpu_bytes: int | None = None) -> None:
    """Remember where log and GPU memory stood when the load was asked for; survives a restart of the worker."""
    size = log.stat().st_size if log.exists() else 0
    mark = {"log_offset": size, "gpu_bytes": gpu_bytes}
    (folder / LOAD_MARK).write_text(json.dumps(mark), encoding="ascii")


def gpu_bytes_before_load(folder: Path) -> int | None:
    """Memory that the server had on its GPU before the load; null where nobody told."""
    try:
        found = json.loads((folder / LOAD_MARK).read_text(encoding="ascii")).get("gpu_bytes")
    except (OSError, ValueError, AttributeError):
        return None
    return int(found) if found is not None else None


def log_since_load(spec: ServerSpec) -> str:
    """The log since the load began, or its end where none did."""
    try:
        start = int(json.loads((spec.folder / LOAD_MARK).read_text(encoding="ascii"))["log_offset"])
    except (OSError, ValueError, KeyError, TypeError):
        start = 0
    return log_tail(spec.log, start)


def set_log_aside(log: Path) -> None:
    """Begin a new log for a new try, so that the last one's words are not read as this one's."""
    if log.exists():
        log.replace(log.with_name(log.name + ".1"))


def port_taken(text: str) -> bool:
    """Whether the server ended because another program had one of its ports."""
    return "already in use" in text


# ---------------------------------------------------------------------- causes


def of_start(error: Exception) -> Failure:
    """What an exception of preparing a start means."""
    if isinstance(error, ServerFailure):
        return error.failure
    if isinstance(error, InflightError):
        return Failure("config_refused", error.sentence, error.remedy)
    if not isinstance(error, OSError):
        return Failure(
            "prepare_failed",
            _("The start could not be prepared: %(detail)s") % {"detail": repr(error)},
            _("This is a fault in Inflight: report it with the log of the control worker."),
        )
    return Failure(
        "folder_not_writable",
        _("The server's files could not be written: %(detail)s.") % {"detail": error},
        _("Free some space under the home, or correct its permissions."),
    )


def of_fetch(error: Exception) -> Failure:
    """Why another host's engine could not be fetched; each of these may go away, so it is tried again."""
    if isinstance(error, InflightError):
        return Failure(error.code, error.sentence, error.remedy)
    return Failure(
        "engine_not_kept",
        _("The engine could not be fetched: %(why)s.") % {"why": error},
        _("Make room under the node's home."),
    )


def engine_missing(folder: str) -> Failure:
    """The engine's file is gone."""
    return Failure(
        "engine_missing",
        _("The engine's file is missing in %(folder)s.") % {"folder": folder},
        _("Build the engine again, then deploy."),
    )


def templates_missing(release: str) -> Failure:
    """The node has no python files of NVIDIA's templates."""
    return Failure(
        "templates_missing",
        _("This node has no template folder of TensorRT-LLM %(release)s, whose python files the models need.")
        % {"release": release},
        _("Copy the folder all_models of that release's container to the node and set INFLIGHT_TRTLLM_TEMPLATES to "
          "it, then deploy again."),
    )  # fmt: skip


def repository_changed() -> Failure:
    """The files of an imported repository are not those that the revision was made of."""
    return Failure(
        "repository_changed",
        _("The files of the model repository have changed since this revision was made."),
        _("Check the repository again, then deploy."),
    )


def prepare_timeout() -> Failure:
    """The files could not be written in time."""
    return Failure(
        "prepare_timeout",
        _("Writing the server's files took more than a minute."),
        _("See whether the disk of the home is overloaded."),
    )


def start_timeout(seconds: float) -> Failure:
    """The server never answered."""
    return Failure(
        "start_timeout",
        _("Triton did not answer within %(seconds)d s of its start.") % {"seconds": seconds},
        _("Read the log of this server; see whether the machine is overloaded."),
    )


def ports_taken(tries: int) -> Failure:
    """Another program was quicker each time."""
    return Failure(
        "ports_taken",
        _("Other programs took the server's ports in %(tries)d tries.") % {"tries": tries},
        _("Deploy again; free local ports if there are few left."),
    )


def at_start(code: int | None, text: str) -> Failure:
    """The process ended before it answered. An exit code of its own is final, a signal is tried again."""
    if code is None or code < 0:
        return crashed(code)
    last = text.strip().splitlines()[-1][:300] if text.strip() else _("it wrote nothing")
    return Failure(
        "start_failed",
        _("Triton ended at its start with code %(code)d: %(line)s") % {"code": code, "line": last},
        _("Read the log of this server below."),
    )


def crashed(code: int | None) -> Failure:
    """The process is gone."""
    if code is None:
        how = _("The server's process is gone.")
    elif code < 0:
        how = _("The server was ended by signal %(signal)d.") % {"signal": -code}
    else:
        how = _("The server ended by itself with code %(code)d.") % {"code": code}
    return Failure("crashed", how, _("It is started again; read its log if this repeats."))


def load_refused(reason: str) -> Failure:
    """The index says that the model is unavailable."""
    first = (
        reason.removeprefix("Internal: ").strip().splitlines()[0] if reason.strip() else _("no reason given")
    )
    return Failure(
        "load_failed",
        _("Triton could not load the model: %(detail)s") % {"detail": first},
        _("Read the log of this server below; correct what it names, then deploy again."),
    )


def load_timeout(seconds: float) -> Failure:
    """Loading went on too long."""
    return Failure(
        "load_timeout",
        _("The model was not loaded within %(minutes)d minutes.") % {"minutes": seconds / 60},
        _("Read the log of this server; a slow disk or too little memory are the usual causes."),
    )


def not_answering(seconds: float) -> Failure:
    """The process lives and says nothing."""
    return Failure(
        "not_answering",
        _("The server did not answer for %(seconds)d s.") % {"seconds": seconds},
        _("It is ended and started again; read its log if this repeats."),
    )


def stopped(seconds: float) -> Failure:
    """The server or its model was stopped by a signal and nobody let it go on."""
    return Failure(
        "stopped",
        _("The server's process was stopped by a signal and stood still for %(seconds)d s.")
        % {"seconds": seconds},
        _("It is ended and started again; look for who sends SIGSTOP on this host."),
    )


def hung(probes: int) -> Failure:
    """The model says that it is ready and computes nothing."""
    return Failure(
        "hung",
        _("The model computed nothing and left %(probes)d probes in a row unanswered.") % {"probes": probes},
        _("It is ended and started again; read its log if this repeats."),
    )


def leaked(mib: float) -> str:
    """What a failed load left on the GPU."""
    return _("It left %(mib)d MiB on the GPU; ending the server gives them back.") % {"mib": mib}


def model_process_died() -> Failure:
    """The python backend's stub is gone, the server still says ready."""
    return Failure(
        "model_process_died",
        _("The model's own process died."),
        _("The server is started again; read its log if this repeats."),
    )


def model_not_ready(reason: str) -> Failure:
    """The model was unloaded or became unavailable behind our back."""
    return Failure(
        "model_not_ready",
        _("The model is not ready any more. %(detail)s").strip() % {"detail": reason},
        _("The server is started again."),
    )
