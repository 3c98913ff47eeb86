"""Real child processes: gated, watched, and gone with all that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from apps.engines.attempts import Renewal
from apps.fleet.processes import ProcessIdentity, identify, ours
from tests.support.celery import CHECKOUT, wait_until
from workers import supervisor as supervisor_module
from workers.builders.base import Step
from workers.pumps import LogFile
from workers.supervisor import GATE, StepResult, Supervisor
from workers.watch import Duties, Watch

Run = Callable[..., StepResult]
# A step with a grandchild that ignores TERM and one that left the group; both keep the step's pipes open.
FAMILY = """
import subprocess, sys
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
for session in (False, True):
    subprocess.Popen([sys.executable, "-c", deaf], start_new_session=session)
"""


class Orders:
    """What the watch is told; set by tests."""

    def __init__(self) -> None:
        self.held, self.cancel, self.stop, self.broken = True, False, False, False
        self.renewals = 0

    def renew(self) -> Renewal:
        if self.broken:
            raise RuntimeError("the database does not answer")
        self.renewals += 1
        return Renewal(self.held, self.cancel)

    def cancelled(self) -> bool:
        if self.broken:
            raise RuntimeError("the database does not answer")
        return self.cancel

    def duties(self) -> Duties:
        return Duties(renew=self.renew, cancelled=self.cancelled, stopping=lambda: self.stop)


class Bench:
    """A supervisor with fakes around it."""

    def __init__(self, folder: Path, mark: str) -> None:
        self.folder, self.mark, self.orders = folder, mark, Orders()
        self.log = LogFile(folder / "log.txt")
        self.watch = Watch(self.orders.duties(), renew_every=0.2, give_up_after=1.0, poll_every=0.05)
        self.watch.start()
        self.children: list[ProcessIdentity] = []
        self.progress: list[tuple[float, float]] = []
        self.accept = True
        self.on_record: Callable[[ProcessIdentity], None] = lambda child: None

    def record(self, child: ProcessIdentity) -> bool:
        self.on_record(child)
        self.children.append(child)
        return self.accept

    def step(self, code: str, **fields: Any) -> Step:
        argv = (sys.executable, "-u", "-c", textwrap.dedent(code))
        env = {"PATH": os.defpath, "PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1"}
        return Step(name="try", title="Try", argv=argv, cwd=self.folder, env=env, **fields)

    def run(self, code: str, **fields: Any) -> StepResult:
        return Supervisor(
            mark=self.mark,
            log=self.log,
            watch=self.watch,
            record=self.record,
            progress=lambda done, total: self.progress.append((done, total)),
        ).run(self.step(code, **fields))

    def text(self) -> str:
        return self.log.path.read_text(encoding="utf-8", errors="replace")

    def soon(self, condition: Callable[[], Any], act: Callable[[], None]) -> threading.Thread:
        """Do something in another thread once a condition holds."""

        def wait() -> None:
            wait_until(condition, 20, "the moment to act")
            act()

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        return thread


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, f"n-test:build:{os.getpid()}:{tmp_path.name}")
    yield made
    made.watch.stop()
    made.log.close()
    assert ours(made.mark) == [], "nothing of a step may be left"


def test_a_step_that_ends_well(bench: Bench) -> None:
    result = bench.run(
        """
        import os
        from workers.builders.llamacpp_steps.events import Progress, send
        print("hello", os.environ["INFLIGHT_ATTEMPT"])
        progress = Progress(10)
        for _ in range(10):
            progress.add(1)
        send("note", text="One thing.")
        send("result", facts={"answer": 42})
        """
    )
    assert (result.ending, result.exit_code, result.failure) == ("exited", 0, None)
    assert result.result == {"answer": 42}
    assert result.notes == ["One thing."]
    assert result.progress == (10.0, 10.0)
    assert f"hello {bench.mark}" in bench.text()
    assert "Try: ended with exit code 0" in bench.text()


def test_the_child_does_not_run_before_its_identity_is_recorded(bench: Bench) -> None:
    flag = bench.folder / "ran"
    seen: list[tuple[bool, str]] = []

    def look(child: ProcessIdentity) -> None:
        time.sleep(0.3)
        seen.append((flag.exists(), " ".join(psutil.Process(child.pid).cmdline())))

    bench.on_record = look
    result = bench.run(f"open({str(flag)!r}, 'w').close()")
    assert result.exit_code == 0
    assert flag.exists()
    [(existed, command)] = seen
    assert not existed
    assert GATE.name in command
    [child] = bench.children
    assert child.group == child.pid, "a session and group of its own"


def test_a_child_that_is_not_accepted_never_runs(bench: Bench) -> None:
    bench.accept = False
    flag = bench.folder / "ran"
    result = bench.run(f"open({str(flag)!r}, 'w').close()")
    assert result.ending == "not_started"
    assert not flag.exists()
    assert identify(bench.children[0].pid) is None


@pytest.mark.parametrize("why", ["cancelled", "stopped", "lost"])
def test_an_order_ends_the_whole_tree_within_five_seconds(bench: Bench, why: str) -> None:
    def give() -> None:
        given.append(time.monotonic())
        match why:
            case "cancelled":
                bench.orders.cancel = True
            case "stopped":
                bench.orders.stop = True
            case _:
                bench.orders.held = False

    given: list[float] = []
    bench.soon(lambda: bench.text().count("up\n") == 2, give)
    result = bench.run(FAMILY + "\nimport time\ntime.sleep(600)")
    assert time.monotonic() - given[0] < 5
    assert result.ending == why
    assert result.survivors == []
    assert ours(bench.mark) == []


def test_a_lease_that_cannot_be_renewed_ends_the_tree(bench: Bench) -> None:
    """The database is silent: after the limit the work ends, although no answer ever said so."""

    def silence() -> None:
        bench.orders.broken = True

    bench.soon(lambda: bench.orders.renewals > 1, silence)
    began = time.monotonic()
    result = bench.run("import time; time.sleep(600)")
    assert result.ending == "lost"
    assert 1.0 < time.monotonic() - began < 8


def test_a_database_that_comes_back_in_time_changes_nothing(bench: Bench) -> None:
    def stutter() -> None:
        bench.orders.broken = True
        time.sleep(0.5)
        bench.orders.broken = False

    bench.soon(lambda: bench.orders.renewals > 1, stutter)
    result = bench.run("import time; time.sleep(1.6)")
    assert (result.ending, result.exit_code) == ("exited", 0)


def test_a_stuck_query_does_not_hold_the_judgement_up(tmp_path: Path) -> None:
    stuck = threading.Event()

    def renew() -> Renewal:
        stuck.wait(20)
        return Renewal(True, False)

    duties = Duties(renew=renew, cancelled=lambda: False, stopping=lambda: False)
    watch = Watch(duties, renew_every=0.05, give_up_after=0.3, poll_every=0.02)
    watch.start()
    try:
        assert watch.order() is None
        wait_until(lambda: watch.order() == "lost", 5, "judged by the caller's own clock")
    finally:
        stuck.set()
        watch.stop()


def test_the_deadline(bench: Bench) -> None:
    began = time.monotonic()
    result = bench.run("import time; time.sleep(600)", deadline_seconds=0.5)
    assert result.ending == "deadline"
    assert time.monotonic() - began < 5
    assert "deadline" in bench.text()


def test_what_a_step_leaves_running_is_ended_with_it(bench: Bench) -> None:
    """The step itself ends well; its grandchildren hold its pipes and would keep the log open for ever."""
    began = time.monotonic()
    result = bench.run(FAMILY)
    assert (result.ending, result.exit_code) == ("exited", 0)
    assert time.monotonic() - began < 6
    assert ours(bench.mark) == []


@pytest.mark.parametrize(
    ("code", "exit_code"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)]
)
def test_exit_codes(bench: Bench, code: str, exit_code: int) -> None:
    result = bench.run(code)
    assert (result.ending, result.exit_code) == ("exited", exit_code)


def test_a_child_that_is_gone_before_it_can_be_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "identify", lambda pid: None)
    result = bench.run("pass")
    assert result.ending == "exited"
    assert result.exit_code != 0, "a failure, not a success and not a lost lease"
    assert bench.children == []


def test_a_program_that_is_not_there(bench: Bench) -> None:
    step = bench.step("")
    missing = Step(name="x", title="X", argv=("/nothing/here",), cwd=step.cwd, env=step.env)
    result = Supervisor(bench.mark, bench.log, bench.watch, bench.record, lambda done, total: None).run(
        missing
    )
    assert result.exit_code == 127
    assert "/nothing/here cannot be started: No such file or directory" in bench.text()


def test_a_failure_that_the_step_names(bench: Bench) -> None:
    result = bench.run(
        """
        from workers.builders.llamacpp_steps.events import StepFailed, run
        def main():
            raise StepFailed("gguf_truncated", "It ends too early.", "Fetch it again.")
        run(main)
        """
    )
    assert result.exit_code == 1
    assert result.failure is not None
    assert result.failure["reason"] == "gguf_truncated"


def test_a_disk_that_fills_while_a_step_writes(bench: Bench) -> None:
    result = bench.run(
        """
        from workers.builders.llamacpp_steps.events import run
        def main():
            with open("/dev/full", "wb") as file:
                file.write(b"x" * 100_000)
        run(main)
        """
    )
    assert result.failure is not None
    assert result.failure["reason"] == "disk_full"
    assert result.failure["remedy"]


def test_events_that_are_none_are_passed_over(bench: Bench) -> None:
    result = bench.run(
        """
        import os
        fd = int(os.environ["INFLIGHT_EVENTS_FD"])
        os.write(fd, b'no json\\n[1]\\n{"event": 7}\\n{"event": "unheard of"}\\n')
        os.write(fd, b'{"event": "progress", "done": "x"}\\n')
        os.write(fd, b'{"event": "result", "facts": {"a": 1}}')
        """
    )
    assert result.result == {"a": 1}


def test_a_second_step_waits_for_its_own_end(bench: Bench) -> None:
    """The wake-up of the first step's end must not make the loop of the second spin."""
    bench.run("pass")
    before = time.process_time()
    bench.run("import time; time.sleep(1.5)")
    assert time.process_time() - before < 0.5


MIDDLE = """
import os, sys
from pathlib import Path
from tests.workers.test_supervisor import Bench
bench = Bench(Path(sys.argv[1]), sys.argv[2])
bench.run("import time; print('up', flush=True); time.sleep(600)")
"""


@pytest.mark.faults
def test_the_step_dies_with_a_killed_worker(tmp_path: Path) -> None:
    mark = f"n-test:build:{os.getpid()}:pdeathsig"
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    worker = subprocess.Popen(
        [sys.executable, "-c", "import django; django.setup()" + MIDDLE, str(tmp_path), mark],
        cwd=CHECKOUT,
        env=environ,
    )
    log = tmp_path / "log.txt"
    # The log shows the command line first, which holds the word too; and a step shows no mark while it execs.
    wait_until(lambda: log.exists() and "\nup\n" in log.read_text(), 60, "the step runs")
    wait_until(lambda: len(ours(mark)) == 1, 5, "the step carries its mark")
    worker.send_signal(signal.SIGKILL)
    worker.wait(timeout=10)
    wait_until(lambda: not ours(mark), 5, "the step is gone")


def test_only_the_supervisor_starts_processes() -> None:
    """Pool processes are daemonic: multiprocessing fails in them, and a shell is never used."""
    users = []
    for path in (CHECKOUT / "workers").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "multiprocessing" not in text, path
        assert "shell=True" not in text, path
        assert "os.system" not in text, path
        if "subprocess.Popen(" in text or "subprocess.run(" in text:
            users.append(path.relative_to(CHECKOUT / "workers").as_posix())
    # runtimes/ start servers, which outlive the worker; the probe runs in a toolchain, itself a supervised child.
    started = sorted(user for user in users if not user.startswith("runtimes/"))
    assert started == ["supervisor.py", "toolchain_probe.py"]
    assert supervisor_module.GRACE_SECONDS + 1.0 < 5
