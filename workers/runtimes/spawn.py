"""Starting a process that outlives us, and that never runs unrecorded."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from workers.runtimes.base import Identity, Launch
from workers.runtimes.processes import UID_VARIABLE, create_time, reap

GATE = Path(__file__).with_name("gate.py")
# By these a process of this home is known, before and after it became the server.
MARKS = ("INFLIGHT_HOME", "INFLIGHT_SUPERVISED")
# Popen objects of servers that are our children: without them Python would reap the exit code itself.
_children: dict[int, subprocess.Popen[bytes]] = {}


def spawn(uid: str, launch: Launch, record: Callable[[Identity], bool]) -> bool:
    """Start `launch` in a session of its own once `record` has accepted its identity.

    The child waits on a pipe meanwhile. A crash of this process, or False from `record`, closes the pipe and the
    child ends without having started anything. No PDEATHSIG: the server goes on when this process dies.
    """
    marks = {key: launch.env[key] for key in MARKS if key in launch.env}
    reading, writing = os.pipe()
    try:
        launch.log.parent.mkdir(parents=True, exist_ok=True)
        with launch.log.open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GATE), str(reading)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={UID_VARIABLE: uid, "PATH": os.defpath, **marks},
                cwd="/",
                pass_fds=(reading,),
                start_new_session=True,
            )
        os.close(reading)
        reading = -1
        _children[child.pid] = child
        created = create_time(child.pid)
        accepted = created is not None and record(Identity(child.pid, created, uid))
        if accepted:
            command = {"argv": list(launch.argv), "env": launch.env, "cwd": launch.cwd}
            _write_all(writing, json.dumps(command).encode())
        return accepted
    finally:
        if reading >= 0:
            os.close(reading)
        os.close(writing)


def exit_code(pid: int, patience: float = 0.0) -> int | None:
    """Exit code of a server that was our child and ended; null where it runs or is nobody of ours.

    `patience` in seconds: a process shows as a zombie before its last thread is gone, and can be waited for only
    then.
    """
    child = _children.get(pid)
    if child is None:
        return reap(pid)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(patience)
    if child.returncode is not None:
        del _children[pid]
    return child.returncode


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
