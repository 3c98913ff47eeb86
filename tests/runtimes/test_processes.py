"""Who a server process is, how it is started behind its gate, and what is left when it is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from workers.runtimes import memory_files, ports, processes, spawn
from workers.runtimes.base import Identity, Launch, Ports
from workers.runtimes.deaths import DeathWatch
from workers.runtimes.jobs import Jobs

SLEEPER = "import signal; print('up', flush=True); signal.pause()"


@pytest.fixture
def started() -> Iterator[list[Identity]]:
    """Processes that a test started; ended after it."""
    found: list[Identity] = []
    yield found
    for identity in found:
        processes.kill_group(identity)
        eventually(lambda identity=identity: not processes.group_members(identity))  # type: ignore[misc]
        spawn.exit_code(identity.pid)


def launch(tmp_path: Path, uid: str, code: str = SLEEPER) -> Launch:
    argv = (sys.executable, "-c", code)
    env = {"PATH": os.defpath, "INFLIGHT_INSTANCE_UID": uid, "MARK": str(tmp_path)}
    return Launch(argv, argv, env, str(tmp_path), tmp_path / "log", Ports(1, 2, 3))


def start(tmp_path: Path, started: list[Identity], uid: str = "i-test", code: str = SLEEPER) -> Identity:
    def record(identity: Identity) -> bool:
        started.append(identity)
        return True

    assert spawn.spawn(uid, launch(tmp_path, uid, code), record)
    eventually(lambda: "up" in (tmp_path / "log").read_text())
    return started[-1]


def test_the_identity_that_was_recorded_before_the_start_is_that_of_the_server(
    tmp_path: Path, started: list[Identity]
) -> None:
    identity = start(tmp_path, started)
    assert processes.is_alive(identity)
    assert processes.group_members(identity) == [identity.pid]
    assert os.getsid(identity.pid) == identity.pid
    assert processes.marked({"MARK": str(tmp_path)}) == {identity.pid: "i-test"}


def test_each_part_of_the_identity_counts(tmp_path: Path, started: list[Identity]) -> None:
    identity = start(tmp_path, started)
    assert not processes.is_alive(replace(identity, created=identity.created + 0.01))
    assert not processes.is_alive(replace(identity, uid="i-other"))
    assert not processes.is_alive(replace(identity, pid=os.getpid()))
    processes.kill_group(replace(identity, uid="i-other"))
    processes.terminate(replace(identity, created=1.0))
    assert processes.is_alive(identity)


def test_nothing_starts_where_the_row_was_not_written(tmp_path: Path) -> None:
    seen: list[Identity] = []

    def record(identity: Identity) -> bool:
        seen.append(identity)
        return False

    assert not spawn.spawn("i-test", launch(tmp_path, "i-test"), record)
    eventually(lambda: spawn.exit_code(seen[0].pid) == 75)
    assert (tmp_path / "log").read_text() == ""


def test_a_worker_killed_before_it_recorded_leaves_no_process(tmp_path: Path) -> None:
    """The gate's pipe closes with its writer, whatever ended that."""
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from workers.runtimes import spawn\n"
        "from workers.runtimes.base import Launch, Ports\n"
        f"argv = ({sys.executable!r}, '-c', {SLEEPER!r})\n"
        f"launch = Launch(argv, argv, {{}}, '/', Path({str(tmp_path / 'log')!r}), Ports(1, 2, 3))\n"
        "def record(identity):\n"
        "    print(identity.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "spawn.spawn('i-test', launch, record)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)
    eventually(lambda: processes.create_time(pid) is None)
    assert (tmp_path / "log").read_text() == ""


def test_a_server_outlives_the_process_that_started_it(tmp_path: Path, started: list[Identity]) -> None:
    script = (
        "import json, os, signal, sys\n"
        "from pathlib import Path\n"
        "from workers.runtimes import spawn\n"
        "from workers.runtimes.base import Launch, Ports\n"
        f"argv = ({sys.executable!r}, '-c', {SLEEPER!r})\n"
        "env = {'INFLIGHT_INSTANCE_UID': 'i-test'}\n"
        f"launch = Launch(argv, argv, env, '/', Path({str(tmp_path / 'log')!r}), Ports(1, 2, 3))\n"
        "def record(identity):\n"
        "    print(json.dumps([identity.pid, identity.created]), flush=True)\n"
        "    return True\n"
        "spawn.spawn('i-test', launch, record)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )
    pid, created = __import__("json").loads(done.stdout)
    identity = Identity(pid, created, "i-test")
    started.append(identity)
    eventually(lambda: "up" in (tmp_path / "log").read_text())
    assert processes.is_alive(identity)


def test_a_zombie_is_no_server_and_its_exit_code_is_known_once(
    tmp_path: Path, started: list[Identity]
) -> None:
    identity = start(tmp_path, started)
    os.kill(identity.pid, signal.SIGKILL)
    eventually(lambda: not processes.is_alive(identity))
    assert processes.group_members(identity) == []
    assert eventually(lambda: spawn.exit_code(identity.pid)) == -9
    assert spawn.exit_code(identity.pid) is None


def test_a_program_that_cannot_be_started_says_so_in_the_log(tmp_path: Path) -> None:
    seen: list[Identity] = []
    wanted = replace(launch(tmp_path, "i-test"), argv=("/nowhere/tritonserver",))
    assert spawn.spawn("i-test", wanted, lambda identity: seen.append(identity) is None)
    eventually(lambda: spawn.exit_code(seen[0].pid) == 127)
    assert "/nowhere/tritonserver cannot be started: No such file" in (tmp_path / "log").read_text()


def test_what_a_server_started_is_found_and_killed_with_it(tmp_path: Path, started: list[Identity]) -> None:
    code = (
        "import subprocess, sys, signal\n"
        f"child = subprocess.Popen([sys.executable, '-c', {SLEEPER!r}])\n"
        "signal.pause()\n"
    )
    identity = start(tmp_path, started, code=code)
    assert len(processes.group_members(identity)) == 2
    [(child, _name, runs)] = processes.children_of(identity.pid)
    assert runs
    os.kill(identity.pid, signal.SIGKILL)
    eventually(lambda: processes.group_members(identity) == [child])
    processes.kill_group(identity)
    eventually(lambda: processes.group_members(identity) == [])


def test_a_death_is_noticed_at_once(tmp_path: Path, started: list[Identity]) -> None:
    woken = threading.Event()
    watch = DeathWatch(woken.set)
    identity = start(tmp_path, started)
    watch.watch([identity])
    watch.watch([identity])
    os.kill(identity.pid, signal.SIGKILL)
    assert woken.wait(5)


def test_a_process_that_is_not_watched_any_more_wakes_nobody(tmp_path: Path, started: list[Identity]) -> None:
    woken = threading.Event()
    watch = DeathWatch(woken.set)
    first = start(tmp_path, started)
    watch.watch([first])
    watch.watch([])
    os.kill(first.pid, signal.SIGKILL)
    eventually(lambda: not processes.is_alive(first))
    assert not woken.wait(0.2)


def test_shared_memory_that_a_process_maps_stays(tmp_path: Path) -> None:
    mapped, free = tmp_path / "i-1_mapped", tmp_path / "i-1_free"
    other = tmp_path / "i-2_free"
    for path in (mapped, free, other):
        path.write_bytes(b"\0" * 4096)
    code = (
        "import mmap, sys\n"
        "handle = open(sys.argv[1], 'r+b')\n"
        "held = mmap.mmap(handle.fileno(), 4096)\n"
        "handle.close()\n"
        "print('up', flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(mapped)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "up\n"
        assert memory_files.remove_unmapped("i-1_", tmp_path) == [mapped]
        assert memory_files.regions("i-", tmp_path) == [mapped, other]
    finally:
        holder.communicate("")
    assert memory_files.remove_unmapped("i-1_", tmp_path) == []
    assert memory_files.regions("i-", tmp_path) == [other]


def test_three_different_free_ports() -> None:
    found = ports.allocate()
    assert len({found.http, found.grpc, found.metrics}) == 3


def test_jobs_run_once_each_and_hold_nobody_up() -> None:
    jobs = Jobs()
    gate = threading.Event()
    calls: list[int] = []

    def work() -> str:
        calls.append(1)
        gate.wait(10)
        return "done"

    jobs.start("a", work)
    jobs.start("a", work)
    began = time.monotonic()
    jobs.wait(["a", "unknown"], 0.05)
    assert time.monotonic() - began < 5
    assert jobs.take("a") is None
    assert jobs.knows("a")
    gate.set()
    jobs.wait(["a"], 5)
    assert jobs.take("a") == "done"
    assert not jobs.knows("a")
    assert calls == [1]


def test_a_jobs_exception_is_raised_where_it_is_read() -> None:
    jobs = Jobs()
    jobs.start("a", lambda: 1 / 0)
    jobs.wait(["a"], 5)
    with pytest.raises(ZeroDivisionError):
        jobs.take("a")
    jobs.start("b", lambda: 1)
    jobs.forget(lambda key: key == "b")
    assert not jobs.knows("b")
