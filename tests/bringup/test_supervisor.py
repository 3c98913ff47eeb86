"""A real supervisord with two small programs: started, restarted when killed, recovered after a crash, stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.local import processes, up
from deploy.local.down import clear_shared_memory, down
from deploy.local.errors import Problem
from deploy.local.home import CHECKOUT, Home
from deploy.local.status import line, status
from deploy.local.supervision import Supervisor, child_environment

pytestmark = pytest.mark.integration
CONFIG = """\
[unix_http_server]
file={sockets}/supervisor.sock
[supervisord]
nodaemon=true
logfile={home}/logs/supervisord.log
pidfile={home}/run/supervisord.pid
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[group:inflight]
programs=redis,web
[program:redis]
command={python} -S -c "import time; time.sleep(300)"
startsecs=0
[program:web]
command={python} -S -c "import time; time.sleep(300)"
autostart=false
autorestart=true
startsecs=0
"""


def eventually(holds: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "h")
    made.create()
    sockets = made.create_sockets()
    made.supervisor_config.write_text(CONFIG.format(home=made.root, sockets=sockets, python=sys.executable))
    made.environment.write_text("INFLIGHT_WEB_URL=http://127.0.0.1:1\nINFLIGHT_WEB_PORT=1\n")
    yield made
    processes.end(processes.marked(made.root), 5)
    made.remove_sockets()


def start(home: Home) -> Supervisor:
    supervisor = Supervisor(home)
    environ = child_environment(home, dict(os.environ), Path(sys.executable).parents[1])
    supervisor.start(Path(sys.executable), environ)
    supervisor.start_program("web")
    supervisor.start_program("web")
    return supervisor


def pid_of(supervisor: Supervisor, name: str) -> int:
    return next(state.pid for state in supervisor.states() if state.name == name)


def test_killed_program_is_started_again(home: Home) -> None:
    supervisor = start(home)
    eventually(lambda: pid_of(supervisor, "web") > 0)
    first = pid_of(supervisor, "web")
    os.kill(first, signal.SIGKILL)
    eventually(lambda: pid_of(supervisor, "web") not in {0, first})


def test_running_installation_is_recognised(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert up.already_running(home) is None
    assert not status(home)
    start(home)
    running = up.already_running(home)
    assert running is not None
    assert running.url == "http://127.0.0.1:1"
    # Its web process is no web server, so the state is not well.
    assert not status(home)
    assert "does not answer" in capsys.readouterr().out


def test_down_ends_everything_and_is_idempotent(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    supervisor = start(home)
    identity = supervisor.identity()
    home.environment.unlink()
    assert down(home, dict(os.environ), keep_serving=False)
    assert identity is not None
    assert not identity.alive()
    assert processes.marked(home.root) == []
    assert "no process of this home is left" in capsys.readouterr().out
    assert not down(home, dict(os.environ), keep_serving=False)
    assert "not running" in capsys.readouterr().out


def test_crashed_run_is_recovered(home: Home) -> None:
    supervisor = start(home)
    identity = supervisor.identity()
    assert identity is not None
    # Between fork and exec a program does not wear the home's mark yet.
    eventually(lambda: len([one for one in processes.marked(home.root) if one.pid != identity.pid]) == 2)
    identity.send(signal.SIGKILL)
    eventually(lambda: not identity.alive())
    assert len(processes.marked(home.root)) == 2
    assert up.already_running(home) is None
    up.recover(home)
    assert processes.marked(home.root) == []
    assert not home.supervisor_record.exists()
    assert not (home.sockets() / "supervisor.sock").exists()
    assert start(home).answers()


@pytest.fixture
def watching(home: Home) -> Iterator[subprocess.Popen[str]]:
    """The foreground of make up over a running supervisord."""
    start(home)
    script = (
        "import sys\nfrom pathlib import Path\nfrom deploy.local import watch\n"
        "from deploy.local.errors import Problem\nfrom deploy.local.home import Home\n"
        "try:\n    with watch.ending_signals():\n        watch.watch(Home(Path(sys.argv[1])))\n"
        "except (watch.Ended, Problem) as end:\n    print(type(end).__name__, end, flush=True)\n"
    )
    argv = [sys.executable, "-B", "-c", script, str(home.root)]
    child = subprocess.Popen(argv, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline().startswith("Ctrl-C ends it.")
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def test_foreground_tells_of_a_restart_and_ends_with_an_interrupt(
    home: Home, watching: subprocess.Popen[str]
) -> None:
    supervisor = Supervisor(home)
    os.kill(pid_of(supervisor, "web"), signal.SIGKILL)
    assert watching.stdout is not None
    assert " web " in watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    assert watching.communicate(timeout=30)[0].splitlines()[-1] == "Ended SIGINT"


def test_foreground_ends_when_it_is_stopped_from_elsewhere(
    home: Home, watching: subprocess.Popen[str]
) -> None:
    home.environment.unlink()
    down(home, dict(os.environ), keep_serving=False)
    assert watching.communicate(timeout=60)[0].splitlines()[-1] == "Inflight was stopped from elsewhere."


def test_foreground_clears_up_after_a_supervisord_that_died(
    home: Home, watching: subprocess.Popen[str]
) -> None:
    identity = Supervisor(home).identity()
    assert identity is not None
    identity.send(signal.SIGKILL)
    assert "Problem supervisord died" in watching.communicate(timeout=60)[0]
    assert processes.marked(home.root) == []


def test_supervisor_that_lost_its_socket_is_replaced(home: Home) -> None:
    supervisor = start(home)
    identity = supervisor.identity()
    (home.sockets() / "supervisor.sock").unlink()
    assert up.already_running(home) is None
    up.recover(home)
    assert identity is not None
    assert not identity.alive()
    assert processes.marked(home.root) == []


def test_broken_configuration_is_a_sentence(home: Home) -> None:
    home.supervisor_config.write_text("[supervisord]\nlogfile=/nonexistent/folder/log\n")
    with pytest.raises(Problem, match="supervisord did not start"):
        start(home)


def test_down_without_a_home_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not down(Home(tmp_path / "none"), {}, keep_serving=False)
    assert "no such home" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_shared_memory_of_this_home_is_cleared_and_nothing_else(tmp_path: Path) -> None:
    home, shared = Home(tmp_path / "h"), tmp_path / "shm"
    home.create()
    shared.mkdir()
    (home.root / "instances" / "i-abc").mkdir()
    for name in ("i-abc_1", "i-abc_uuid", "i-abcd_1", "somebody"):
        (shared / name).write_text("")
    assert len(clear_shared_memory(home, shared)) == 2
    assert {path.name for path in shared.iterdir()} == {"i-abcd_1", "somebody"}


def test_status_line_of_a_running_and_of_a_failing_process(home: Home) -> None:
    start(home)
    first = Supervisor(home).states()[0]
    assert f"pid {first.pid}" in line(first, time.time())


def test_redis_is_asked_for_an_answer(tmp_path: Path) -> None:
    assert not up.redis_answers(f"unix://{tmp_path}/none.sock")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert not up.redis_answers(f"redis://127.0.0.1:{port}")
        server.listen()
        assert up.redis_answers(f"redis://127.0.0.1:{port}")
