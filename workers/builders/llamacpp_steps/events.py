"""What a step tells its supervisor, and how it ends."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from apps.core.exceptions import InflightError

# Progress is sent at most this often.
EVERY_SECONDS = 0.2
FAILED = 1
_DISK = {errno.ENOSPC, errno.EDQUOT}


class StepFailed(Exception):
    """Ends the step with a stable reason, a sentence and a remedy."""

    def __init__(self, reason: str, sentence: str, remedy: str = "") -> None:
        super().__init__(sentence)
        self.reason, self.sentence, self.remedy = reason, sentence, remedy


def send(event: str, **values: Any) -> None:
    """Send one event; without a supervisor it is printed, so that a step can be run by hand."""
    line = json.dumps({"event": event, **values}, ensure_ascii=True) + "\n"
    descriptor = os.environ.get("INFLIGHT_EVENTS_FD")
    if descriptor is None:
        print(line, end="", flush=True)  # noqa: T201 - the command line of a step run by hand
        return
    data = line.encode()
    while data:
        data = data[os.write(int(descriptor), data) :]


def say(text: str) -> None:
    """One line of the build's log."""
    print(text, flush=True)  # noqa: T201 - the log is this program's output


class Progress:
    """Bytes done of a total, sent a few times a second and at the end."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._sent_at = max(1, total), 0, 0.0

    def add(self, count: int) -> None:
        """Count bytes as done."""
        self._done += count
        now = time.monotonic()
        if now - self._sent_at >= EVERY_SECONDS or self._done >= self._total:
            self._sent_at = now
            send("progress", done=self._done, total=self._total, unit="bytes")


def run(main: Callable[[], None]) -> None:
    """Run a step's main function; every failure leaves as an event with reason, sentence and remedy."""
    # Under PYTHONPATH and -m an orphaned import would be a fault of ours; it shows in the log with its traceback.
    try:
        main()
    except StepFailed as error:
        _fail(error.reason, error.sentence, error.remedy)
    except InflightError as error:
        _fail(error.code, error.sentence, error.remedy)
    except MemoryError:
        _fail(
            "host_out_of_memory",
            "The host ran out of memory.",
            "Stop something else on that host, or give it more memory.",
        )
    except OSError as error:
        if error.errno not in _DISK:
            where = f"{error.filename}: " if error.filename else ""
            say(f"{where}{error.strerror}")
            raise
        fail_disk_full(error.filename)


def fail_disk_full(where: object = None, needed: int | None = None, free: int | None = None) -> None:
    """End the step because the disk is full, or would be."""
    figures = (
        f": {needed / 1e9:.2f} GB are needed, {free / 1e9:.2f} GB are free"
        if needed and free is not None
        else ""
    )
    place = f" at {where}" if where else ""
    _fail(
        "disk_full",
        f"The disk is full{place}{figures}.",
        "Delete engines that are no longer needed, or free space on that disk, then try again.",
    )


def _fail(reason: str, sentence: str, remedy: str) -> None:
    say(f"{reason}: {sentence}")
    send("failure", reason=reason, sentence=sentence, remedy=remedy)
    sys.exit(FAILED)
