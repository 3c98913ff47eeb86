"""Who a process is, and what a crashed supervisord leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from deploy.local import processes, supervision
from deploy.local.home import Home
from deploy.local.processes import MARKER, Identity
from deploy.local.supervision import ProcessState, Supervisor, child_environment
from deploy.local.watch import changes

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
# A leader that starts a child in its session, tells its pid and waits: supervisord in small.
LEADER = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'])\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(60)\n"
)


@contextmanager
def running(argv: list[str], **options: object) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(argv, text=True, start_new_session=True, **options)  # type: ignore[call-overload]
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def test_identity_is_alive_until_the_process_ends() -> None:
    with running(SLEEP) as child:
        identity = processes.identify(child.pid)
        assert identity is not None
        assert identity.alive()
        assert processes.end([identity], 5) == []
        child.wait()
        assert not identity.alive()
        assert not identity.send(signal.SIGTERM)


def test_pid_that_belongs_to_another_process_by_now_is_not_touched() -> None:
    with running(SLEEP) as child:
        real = processes.identify(child.pid)
        assert real is not None
        for stale in (
            Identity(real.pid, real.started - 1, real.boot),
            Identity(real.pid, real.started, "old boot"),
        ):
            assert not stale.alive()
            assert not stale.send(signal.SIGKILL)
        assert child.poll() is None


def test_process_that_ignores_terminate_is_killed() -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    script = f"{deaf}; print(1, flush=True); time.sleep(60)"
    with running([sys.executable, "-S", "-c", script], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        identity = processes.identify(child.pid)
        assert identity is not None
        assert processes.end([identity], 0.2) == [identity]
        assert child.wait(5) == -signal.SIGKILL


def test_zombie_is_no_running_process() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", "pass"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.identify(child.pid) is None
    child.wait()


def test_name_with_parentheses_does_not_confuse_the_reader() -> None:
    script = (
        "import ctypes, time; ctypes.CDLL(None).prctl(15, b') R 1 (x'); print(1, flush=True); time.sleep(60)"
    )
    with running([sys.executable, "-c", script], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert processes.session_of(child.pid) == child.pid


def test_marked_processes_are_those_of_this_home_only(tmp_path: Path) -> None:
    environ = child_environment(Home(tmp_path), dict(os.environ), tmp_path / "venv")
    with running(SLEEP, env=environ) as ours, running(SLEEP, env=environ | {MARKER: "/other"}):
        assert [identity.pid for identity in processes.marked(tmp_path)] == [ours.pid]


def record(home: Home, pid: int) -> Identity:
    identity = processes.identify(pid)
    assert identity is not None
    home.create()
    known = {"pid": identity.pid, "started": identity.started, "boot": identity.boot}
    home.supervisor_record.write_text(json.dumps(known))
    return identity


def test_orphans_of_a_killed_supervisor_are_found_and_a_server_of_its_own_session_is_not(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    with (
        running([sys.executable, "-S", "-c", LEADER], stdout=subprocess.PIPE) as leader,
        running(SLEEP) as server,
    ):
        assert leader.stdout is not None
        orphan = int(leader.stdout.readline())
        identity = record(home, leader.pid)
        assert supervision.orphans(home) == []
        identity.send(signal.SIGKILL)
        leader.wait()
        assert [found.pid for found in supervision.orphans(home)] == [orphan]
        processes.end(supervision.orphans(home), 5)
        assert supervision.orphans(home) == []
        assert server.poll() is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"pid": "x", "started": 1, "boot": "b"}', "null"])
def test_broken_record_means_that_nothing_runs(tmp_path: Path, text: str) -> None:
    home = Home(tmp_path)
    home.create()
    home.supervisor_record.write_text(text)
    assert Supervisor(home).identity() is None
    assert supervision.orphans(home) == []


def test_record_of_an_earlier_boot_means_that_nothing_runs(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    known = {"pid": os.getpid(), "started": 1, "boot": "before"}
    home.supervisor_record.write_text(json.dumps(known))
    assert Supervisor(home).identity() is None
    assert supervision.orphans(home) == []


def test_children_get_no_variables_of_make_or_of_another_python(tmp_path: Path) -> None:
    given = {
        "MAKEFLAGS": "-j",
        "PORT": "1",
        "PYTHONPATH": "/x",
        "VIRTUAL_ENV": "/y",
        "PATH": "/bin",
        "DATABASE_URL": "d",
    }
    found = child_environment(Home(tmp_path), given, tmp_path / "venv")
    assert not {"MAKEFLAGS", "PORT", "PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"} & set(found)
    assert found["PATH"] == f"{tmp_path / 'venv' / 'bin'}:/bin"
    assert found["DATABASE_URL"] == "d"
    assert found["PYTHONPYCACHEPREFIX"].startswith(str(tmp_path))


def state(name: str, word: str, pid: int = 0, why: str = "") -> ProcessState:
    return ProcessState(name, word, pid, 0, why)


def test_changes_are_told_in_one_line_each() -> None:
    before = {entry.name: entry for entry in (state("web", "RUNNING", 1), state("beat", "RUNNING", 2))}
    assert changes(before, list(before.values())) == []
    after = [state("web", "BACKOFF", 0, "Exited too quickly"), state("beat", "RUNNING", 3)]
    assert changes(before, after) == [
        "web failed to start, tries again (Exited too quickly)",
        "beat died and was started again (pid 3)",
    ]
