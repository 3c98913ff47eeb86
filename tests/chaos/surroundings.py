"""Faults of what an installation stands on: disk, wall clock, network, and the readers of its streams."""

from __future__ import annotations

import contextlib
import errno
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.installation import Installation, gone
from tests.chaos.outcome import CannotBeShown, Outcome
from tests.chaos.servers import same_server, serving
from tests.chaos.streams import Streams

JUMP_SECONDS = 3 * 3600
# Long enough for ticks, a beat and a sweep.
JUMPED_SECONDS = 6.0
# A partition goes on for so long after it was noticed.
CUT_SECONDS = 3.0
SPARE_BYTES = 1024 * 1024


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    """A file system of its own with all that lies in a folder, mounted over it and full to the last byte."""
    used = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    made = Path(tempfile.mkdtemp(prefix="inflight-disk-"))
    mounted: list[Path] = []

    def mount(*arguments: str, at: Path) -> None:
        done = subprocess.run(["mount", *arguments, str(at)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CannotBeShown(f"this user may not mount a file system: {done.stderr.strip()[-200:]}")
        mounted.append(at)

    try:
        mount("-t", "tmpfs", "-o", f"size={used + SPARE_BYTES},mode=700", "inflight-disk", at=made)
        shutil.copytree(folder, made, symlinks=True, dirs_exist_ok=True)
        mount("--bind", str(made), at=folder)
        ballast = made / ".ballast"
        with ballast.open("wb", buffering=0) as filling:
            try:
                while filling.write(b"\0" * 4096):
                    continue
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        yield
    finally:
        for at in reversed(mounted):
            subprocess.run(["umount", "--lazy", str(at)], check=False)
        made.rmdir()


def full_disk(installation: Installation) -> Outcome:
    """A change is deployed while the disk of instances/ is full: the old revision goes on; then it passes."""
    before = serving(installation)
    began = time.monotonic()
    with _small_disk(installation.stack.home / "instances"):
        installation.change(installation.profile("chaos-disk", max_batch_size=16))
        installation.until(
            lambda: installation.show()["reason"] == "rollout_failed", 60, "the roll-out is given up"
        )
        seen = time.monotonic() - began
        same_server(installation, before)
    installation.change(installation.show()["batching"])
    installation.until(lambda: serving(installation)["uid"] != before["uid"], 60, "the new revision serves")
    installation.ready()
    return Outcome(seen, time.monotonic() - began)


def move_clock(installation: Installation) -> Outcome:
    """The wall clock of the control plane and of Redis jumps three hours ahead, then back to three hours behind."""
    assert installation.clock is not None
    before = serving(installation)
    began = time.monotonic()
    try:
        for seconds in (JUMP_SECONDS, -JUMP_SECONDS):
            installation.clock.move(seconds)
            time.sleep(JUMPED_SECONDS)
            installation.until_echo(10)
            installation.until_swept(15)
            same_server(installation, before)
    finally:
        installation.clock.move(0)
    installation.until_echo(10)
    installation.ready()
    same_server(installation, before)
    return Outcome(None, time.monotonic() - began)


def slow_readers(installation: Installation) -> Outcome:
    """Four callers take a token each quarter of a second, out of small buffers: they get all, nobody waits."""
    began = time.monotonic()
    slow = Streams(
        installation.gateway_url,
        installation.gateway_key(),
        count=4,
        tokens=32,
        slow=0.25,
        receive_bytes=2048,
    ).start()
    slow.until(lambda: len(slow.answers) >= 4, 30)
    slow.stop(120)
    return Outcome(None, time.monotonic() - began, streams=len(slow.answers), lost=len(slow.lost()))


def join_second_host(installation: Installation) -> None:
    """A second host joins and the demo moves there, if that was not done yet."""
    assert installation.far is not None
    installation.far.join(installation)


def cut_off_node(installation: Installation) -> Outcome:
    """Between the host that serves and database and Redis nothing passes until it is given up."""
    assert installation.far is not None
    far, before = installation.far, serving(installation)
    assert before["node_id"] == far.node_id, "the demo serves on the second host"
    began = time.monotonic()
    far.cut()
    try:
        installation.until(lambda: far.state(installation) == "lost", 60, "the node is lost")
        seen = time.monotonic() - began
        time.sleep(CUT_SECONDS)
        assert not gone(int(before["pid"])), "its server goes on"
    finally:
        far.heal()
    healed = time.monotonic()
    installation.until(
        lambda: far.state(installation) == "ready" and installation.instances("serving"),
        60,
        "the node is back and its server looked after",
    )
    adopted = time.monotonic() - healed
    installation.ready()
    same_server(installation, before)
    return Outcome(seen, time.monotonic() - began, adopted)
