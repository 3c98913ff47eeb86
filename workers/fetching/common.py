"""What the fetching programs share: the plan, counted bytes, and publishing by one rename."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apps.registry.hub.folders import MANIFEST
from workers.builders.llamacpp_steps.events import EVERY_SECONDS, StepFailed, fail_disk_full, send

# Environment variable in which a child gets the hub's token: not on its command line, not in its plan.
TOKEN = "INFLIGHT_HUB_TOKEN"  # noqa: S105 - the name of a variable
LOCK = ".inflight.lock"
CHUNK = 4 * 1024 * 1024


def read_plan(about: str | None) -> dict[str, Any]:
    """The plan that the one argument names."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("plan", type=Path)
    plan: dict[str, Any] = json.loads(parser.parse_args().plan.read_text(encoding="utf-8"))
    return plan


class Meter:
    """Bytes that are here, of a total. Threads share it; inside `with` what changed is sent a few times a second."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._sent = max(1, total), 0, -1
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._teller = threading.Thread(target=self._tell, name="meter", daemon=True)

    def __enter__(self) -> Meter:
        self._teller.start()
        return self

    def __exit__(self, *why: object) -> None:
        self._ended.set()
        self._teller.join()

    def add(self, count: int) -> None:
        """Count bytes as here; a negative count takes them back."""
        with self._lock:
            self._done += count

    def _tell(self) -> None:
        # A thread of its own, so that a line that stands still leaves the last figure told, not the one before.
        ended = False
        while not ended:
            ended = self._ended.wait(EVERY_SECONDS)
            done = self._done
            if done != self._sent:
                self._sent = done
                send("progress", done=done, total=self._total, unit="bytes")


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; a second process that fetches the same ends at once and is tried again later."""
    with (folder / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StepFailed(
                "fetched_elsewhere",
                "Another process fetches the same files.",
                "It is tried again by itself.",
            ) from error
        yield


def require_room(folder: Path, needed: int, margin: int) -> None:
    """End the step unless the disk has room for what is still to come, and the margin beside it."""
    free = shutil.disk_usage(folder).free
    if free < needed + margin:
        fail_disk_full(folder, needed + margin, free)


def whole(place: Path, files: list[tuple[str, int]]) -> bool:
    """Whether a published folder holds these files at their sizes."""
    try:
        return (place / MANIFEST).is_file() and all(
            (place / name).stat().st_size == size for name, size in files
        )
    except OSError:
        return False


def publish(partial: Path, place: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest, sync every file and folder, and make the whole visible by one rename."""
    (partial / MANIFEST).write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    with contextlib.suppress(FileNotFoundError):
        (partial / LOCK).unlink()
    for folder, _folders, names in os.walk(partial, topdown=False):
        for name in names:
            _sync(Path(folder) / name)
        _sync(Path(folder))
    if place.exists():
        # What lies there is not whole, else it had been used.
        broken = place.with_name(f".{place.name}.broken")
        shutil.rmtree(broken, ignore_errors=True)
        place.rename(broken)
        shutil.rmtree(broken, ignore_errors=True)
    partial.rename(place)
    _sync(place.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
