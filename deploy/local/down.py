"""`make down`: ends what this home started, by identity and never by name, and clears what it left."""

from __future__ import annotations

from pathlib import Path

from deploy.local import manage, processes
from deploy.local.errors import Problem
from deploy.local.home import Home
from deploy.local.locks import exclusive
from deploy.local.processes import Identity
from deploy.local.supervision import NO_ANSWER, Supervisor, child_environment, orphans
from deploy.local.up import control_venv

SHARED_MEMORY = Path("/dev/shm")
STOP_SECONDS = 30


def down(home: Home, environ: dict[str, str], keep_serving: bool) -> bool:
    """Stop the processes, then (unless they are kept) the servers; False when nothing ran."""
    if not home.run.is_dir():
        print(f"Inflight is not running in {home.root}: there is no such home.", flush=True)
        return False
    with exclusive(home.run / "command.lock", "run make down", 900):
        supervisor = Supervisor(home)
        identity = supervisor.identity()
        if identity is not None:
            print(f"Stopping the processes of {home.root}.", flush=True)
            _stop_programs(supervisor)
        if not keep_serving:
            _stop_instances(home, environ)
        if identity is not None:
            supervisor.shut_down(identity, STOP_SECONDS)
        ended = processes.end(orphans(home), 10)
        ran = identity is not None or bool(ended)
        if not keep_serving:
            ran = _end_leftovers(home) or ran
            clear_shared_memory(home)
        home.supervisor_record.unlink(missing_ok=True)
        (home.run / "supervisord.pid").unlink(missing_ok=True)
        home.remove_sockets()
    if not ran:
        print(f"Inflight is not running in {home.root}.", flush=True)
    elif keep_serving:
        print("Stopped. Servers go on serving; make up adopts them again, make down ends them.", flush=True)
    else:
        print("Stopped; no process of this home is left.", flush=True)
    return ran


def _stop_programs(supervisor: Supervisor) -> None:
    """All but redis, which the stopping of servers may still ask; workers first would restart nothing."""
    try:
        names = [state.name for state in supervisor.states() if state.name != "redis"]
        for name in reversed(names):
            supervisor.stop_program(name)
        supervisor.wait_stopped(set(names), STOP_SECONDS)
    except NO_ANSWER:
        print("supervisord does not answer: it is ended with all that it started.", flush=True)


def _stop_instances(home: Home, environ: dict[str, str]) -> None:
    venv = control_venv()
    if not venv.python.exists() or not home.environment.exists():
        return
    children = child_environment(home, environ, venv.root)
    try:
        manage.run(venv.python, ["stop_instances"], children, home.logs / "down.log", print)
    except Problem as problem:
        print(f"{problem.what} What still serves is ended below. {problem.remedy}", flush=True)


def _end_leftovers(home: Home) -> bool:
    """End whatever else carries this home's mark: a server that could not be stopped in order, a build's child."""
    left: list[Identity] = processes.marked(home.root)
    for identity in left:
        print(f"Ending pid {identity.pid}: {processes.command_of(identity.pid)[:100]}", flush=True)
    processes.end(left, 10)
    return bool(left)


def clear_shared_memory(home: Home, folder: Path = SHARED_MEMORY) -> list[Path]:
    """Remove shared memory of this home's servers: its names begin with their instance's id. Returns what it was."""
    removed = []
    instances = home.root / "instances"
    for instance in sorted(instances.iterdir()) if instances.is_dir() else []:
        for region in folder.glob(f"{instance.name}_*"):
            region.unlink(missing_ok=True)
            removed.append(region)
    return removed
