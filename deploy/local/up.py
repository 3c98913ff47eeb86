"""`make up`: from a bare checkout to a running Inflight, and again in seconds when it was set up before."""

from __future__ import annotations

import hashlib
import http.client
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from deploy.local import (
    environment,
    manage,
    packages,
    ports,
    preflight,
    processes,
    programs,
    serving_environment,
)
from deploy.local.errors import Problem
from deploy.local.home import CHECKOUT, Home, write_atomically
from deploy.local.locks import exclusive
from deploy.local.packages import REQUIREMENTS, Venv
from deploy.local.programs import Plan
from deploy.local.progress import Step, Steps, duration
from deploy.local.serving_environment import ServingEnvironment
from deploy.local.supervision import NO_ANSWER, Supervisor, child_environment, orphans

DEMO = "examples/demo.yaml"
# A minute and a half on two idle cores: build 30 s, verification, tritonserver's start.
DEMO_SECONDS = 900
# Long enough for a machine that is busy with other things.
WEB_SECONDS = 240
REDIS_SECONDS = 60
EARLY = ("web", "worker-ctl")
# What several hosts share (docs/several-hosts.md): kept, so that a command in a plain shell knows it, too.
SHARED = (
    "DATABASE_URL",
    "INFLIGHT_REDIS_CA",
    "INFLIGHT_REDIS_CERT",
    "INFLIGHT_REDIS_KEY",
    "INFLIGHT_JOIN_DATABASE_URL",
    "INFLIGHT_JOIN_REDIS_URL",
    "INFLIGHT_DOOR_HOST",
    "INFLIGHT_DOOR_PORT",
    "INFLIGHT_DOOR_ADDRESS",
    "INFLIGHT_STORE",
    "INFLIGHT_STORE_ENDPOINT",
    "INFLIGHT_STORE_REGION",
    "INFLIGHT_STORE_KEY_ID",
    "INFLIGHT_STORE_SECRET",
)


@dataclass(frozen=True, slots=True)
class Running:
    """What is up and where. `ours`: this command started it; `lacks`: what is up but for this."""

    home: Home
    url: str
    ours: bool = False
    lacks: Problem | None = None


def control_venv(lock: str = "base.lock") -> Venv:
    """The control plane's environment. dev.lock holds all of base.lock, so it serves both commands."""
    implied = (REQUIREMENTS / "base.lock",) if lock == "dev.lock" else ()
    return Venv(CHECKOUT / ".venv", (REQUIREMENTS / lock,), implied)


def check_machine(home: Home, step: Step) -> None:
    """Preflight; every missing thing in one Problem."""
    new = not packages.is_current(control_venv()) or not packages.is_current(ServingEnvironment(home).venv)
    machine = preflight.look([home.root, CHECKOUT])
    found = preflight.problems(machine, preflight.FIRST_START_BYTES if new else preflight.LATER_START_BYTES)
    if found:
        step.note("")
        listed = "\n".join(f"  - {line}" for line in found)
        raise Problem(f"This machine lacks something:\n{listed}", "Nothing was downloaded.")
    glibc = ".".join(map(str, machine.glibc or ()))
    step.note(f"Python {'.'.join(map(str, machine.python))}, glibc {glibc}")


def up(home: Home, environ: dict[str, str], wait_for_demo: bool) -> Running:
    """Bring everything up and return when it is; when it runs already, say so."""
    steps = Steps(9)
    with steps.step("This machine") as step:
        check_machine(home, step)
    home.create()
    with exclusive(home.run / "command.lock", "run make up", 900):
        running = already_running(home)
        if running is not None:
            print(f"Inflight is already running: {running.url} (home {home.root})", flush=True)
            return running
        return _bring_up(home, environ, steps, wait_for_demo)


def already_running(home: Home) -> Running | None:
    """The running installation of this home, or None."""
    supervisor = Supervisor(home)
    if supervisor.identity() is None:
        return None
    known = environment.read(home.environment)
    try:
        states = {state.name: state.state for state in supervisor.states()}
    except NO_ANSWER:
        return None
    if states.get("web") not in {"RUNNING", "STARTING", "BACKOFF"}:
        return None
    return Running(home, known.get("INFLIGHT_WEB_URL", ""))


def _bring_up(home: Home, environ: dict[str, str], steps: Steps, wait_for_demo: bool) -> Running:
    recover(home)
    venv, serving = control_venv(), ServingEnvironment(home)
    with packages.environment_lock(), steps.step("Packages of the control plane") as step:
        packages.ensure(venv, step, home.logs / "pip-base.log", home.cache)
    with steps.step("Serving environment: tritonserver and the llama.cpp engine") as step:
        serving_environment.ensure_serving(serving, step, venv.python)
    with steps.step("Redis server") as step:
        redis = ensure_redis(home, environ, step, venv.python)
    with steps.step("Demo checkpoint: SmolLM2-135M") as step:
        serving_environment.ensure_demo_checkpoint(home, step, venv.python)
    with steps.step("Database, static files, admin account") as step:
        port = write_environment(home, environ, serving, redis)
        children = child_environment(home, environ, venv.root)
        prepare(home, venv.python, children, step)
        node_id = environment.read(home.environment)["INFLIGHT_NODE_ID"]
        plan = Plan(
            home,
            venv.python,
            node_id,
            port,
            read_slots(home.run / "slots"),
            redis,
            int(environment.read(home.environment)["INFLIGHT_GATEWAY_PORT"]),
            gateway_processes(environ),
            several=bool(environ.get("DATABASE_URL")),
        )
    with steps.step("Processes") as step:
        start_processes(plan, children, step)
    lacks = None
    try:
        _demo(home, venv.python, children, steps, wait_for_demo)
    except Problem as problem:
        lacks = problem
    return _report(plan, steps, lacks)


def prepare(home: Home, python: Path, children: dict[str, str], step: Step) -> None:
    """Migrate, collect static files and create the first account, unless all that they read is as it was."""
    stamp, slots = home.run / "prepared", home.run / "slots"
    sources = preparation_sources(home, children)
    if sources and slots.is_file() and stamp.is_file() and stamp.read_text(encoding="ascii") == sources:
        step.note("up to date")
        return
    stamp.unlink(missing_ok=True)
    arguments = ["prepare", "--slots-file", str(slots)]
    manage.run(python, arguments, children, home.logs / "prepare.log", step.say)
    write_atomically(stamp, preparation_sources(home, children))


def preparation_sources(home: Home, children: dict[str, str]) -> str:
    """SHA-256 over what `manage.py prepare` reads, by name, size and time; empty where that cannot be known.

    A database elsewhere may have changed without us; one in the home is known by its inode, and a restored one has
    another. The device files stand for the GPUs.
    """
    database = home.root / "db.sqlite3"
    if children.get("DATABASE_URL") or not database.is_file() or not (home.root / "static").is_dir():
        return ""
    digest = hashlib.sha256(f"{database.stat().st_ino} {CHECKOUT}".encode())
    patterns = (
        "apps/**/*.py",
        "apps/*/static/**/*",
        "static/**/*",
        "controlplane/**/*.py",
        "requirements/base.lock",
    )
    sources = [path for pattern in patterns for path in CHECKOUT.glob(pattern)]
    for path in sorted((*sources, *Path("/dev").glob("nvidia*"))):
        if not path.is_dir():
            found = path.stat()
            digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _demo(home: Home, python: Path, children: dict[str, str], steps: Steps, wait: bool) -> None:
    """Apply the demo's documents once for each version of them: what people change or delete stays so."""
    applied, documents = home.root / "demo-applied", packages.sha256_of(CHECKOUT / DEMO)
    fresh = not applied.is_file() or applied.read_text(encoding="ascii").strip() != documents
    with steps.step(f"Demo configuration: {DEMO}") as step:
        if fresh:
            manage.run(python, ["apply", "-f", DEMO], children, home.logs / "apply.log", step.say)
            write_atomically(applied, documents + "\n")
        else:
            step.note("applied before")
    with steps.step("Demo deployment") as step:
        if not wait:
            step.note("not waited for")
            return
        arguments = ["wait_for", "--deployment", "demo", "--if-wanted", "--timeout", str(DEMO_SECONDS)]

        def show(line: str) -> None:
            step.note(line)
            step.update(None, line)

        manage.run(python, arguments, children, home.logs / "demo.log", show)


def ensure_redis(home: Home, environ: dict[str, str], step: Step, python: Path) -> Path | None:
    """The redis-server to run, or None where INFLIGHT_REDIS_URL names one that runs already."""
    url = environ.get("INFLIGHT_REDIS_URL", "")
    if not url:
        return serving_environment.ensure_redis(home, step, python)
    if not redis_answers(url):
        raise Problem(
            "Nothing answers at INFLIGHT_REDIS_URL.",
            "Start that server, or unset it to use the embedded one.",
        )
    step.note("the one that INFLIGHT_REDIS_URL names")
    return None


def recover(home: Home) -> None:
    """Clear what a run that crashed left: its processes, sockets and records. Servers are adopted, not ended."""
    supervisor = Supervisor(home)
    identity = supervisor.identity()
    if identity is not None:
        supervisor.shut_down(identity, 40)
    left = orphans(home)
    if left:
        print(f"An earlier run left {len(left)} processes of this home: ending them.", flush=True)
        processes.end(left, 15)
    for path in (home.supervisor_record, home.run / "supervisord.pid"):
        path.unlink(missing_ok=True)
    folder = home.sockets()
    for name in ("supervisor.sock", "redis.sock"):
        (folder / name).unlink(missing_ok=True)


def write_environment(
    home: Home, environ: dict[str, str], serving: ServingEnvironment, redis: Path | None
) -> int:
    """Choose the port, and leave the facts of this installation where every process looks for them."""
    sockets = home.create_sockets()
    wanted = ports.wanted(environ)
    port = ports.choose(wanted)
    if port != wanted:
        print(f"      Port {wanted} is taken: the pages will be on {port}.", flush=True)
    wanted_gateway = ports.wanted_gateway(environ)
    gateway = ports.choose(wanted_gateway, lambda number: number != port and ports.is_free(number))
    if gateway != wanted_gateway:
        print(f"      Port {wanted_gateway} is taken: the API will be on {gateway}.", flush=True)
    node_id = environ.get("INFLIGHT_NODE_ID") or home.node_id()
    values = {
        "INFLIGHT_HOME": str(home.root),
        "INFLIGHT_NODE_ID": node_id,
        "INFLIGHT_REDIS_URL": environ.get("INFLIGHT_REDIS_URL") or f"unix://{sockets / 'redis.sock'}",
        "INFLIGHT_REDIS_SERVER": str(redis or ""),
        "INFLIGHT_WEB_PORT": str(port),
        "INFLIGHT_WEB_URL": environ.get("INFLIGHT_WEB_URL") or f"http://127.0.0.1:{port}",
        "INFLIGHT_GATEWAY_PORT": str(gateway),
        "INFLIGHT_GATEWAY_URL": environ.get("INFLIGHT_GATEWAY_URL") or f"http://127.0.0.1:{gateway}",
        **serving.facts(),
    }
    if environ.get("INFLIGHT_TRITON_BIN"):
        values["INFLIGHT_TRITON_BIN"] = environ["INFLIGHT_TRITON_BIN"]
    values |= {name: environ[name] for name in SHARED if environ.get(name)}
    environment.write(home.environment, values)
    return port


def gateway_processes(environ: dict[str, str]) -> int:
    """How many processes the gateway has: INFLIGHT_GATEWAY_PROCESSES, else one."""
    given = environ.get("INFLIGHT_GATEWAY_PROCESSES") or "1"
    if not given.isdecimal() or not 1 <= int(given) <= 64:
        raise Problem(
            f"INFLIGHT_GATEWAY_PROCESSES={given} is no number of processes.", "Choose one from 1 to 64."
        )
    return int(given)


def read_slots(path: Path) -> tuple[int, ...]:
    """Slot indices, one a line; what is no list of numbers is a Problem."""
    words = path.read_text(encoding="utf-8").split()
    if not words or not all(word.isdecimal() for word in words):
        raise Problem(
            f"manage.py list_worker_slots gave {words!r}, not slot numbers.", "Run it by hand: it says why."
        )
    return tuple(int(word) for word in words)


def start_processes(plan: Plan, children: dict[str, str], step: Step) -> None:
    """Write supervisord's configuration, start it, then the programs: redis first, the rest when it answers."""
    home = plan.home
    if plan.redis_server is not None:
        write_atomically(home.run / "redis.conf", programs.redis_config(home), mode=0o600)
    write_atomically(home.supervisor_config, programs.supervisor_config(plan, home.sockets()), mode=0o600)
    supervisor = Supervisor(home)
    identity = supervisor.start(plan.python, children)
    names = [program.name for program in programs.programs(plan)]
    try:
        _wait_redis(environment.read(home.environment)["INFLIGHT_REDIS_URL"], home)
        # Started all at once on two cores, each is slow: first what people and the demo wait for.
        for name in EARLY:
            supervisor.start_program(name)
        _wait_web(supervisor, plan, step)
        for name in names:
            supervisor.start_program(name)
    except Problem:
        supervisor.shut_down(identity, 40)
        raise
    step.note(f"{len(names)} processes, watched")


def _wait_redis(url: str, home: Home) -> None:
    deadline = time.monotonic() + REDIS_SECONDS
    while not redis_answers(url):
        if time.monotonic() > deadline:
            where = home.logs / "redis.log" if url.startswith("unix:") else url
            raise Problem("Redis does not answer.", f"See {where}.")
        time.sleep(0.05)


def redis_answers(url: str) -> bool:
    """Whether something listens at the address of a redis URL."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "unix":
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.settimeout(2)
                client.connect(parts.path)
                client.sendall(b"PING\r\n")
                # LOADING is an answer too, but not one to build on.
                return client.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        with socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 6379), 2):
            return True
    except OSError:
        return False


def _wait_web(supervisor: Supervisor, plan: Plan, step: Step) -> None:
    deadline = time.monotonic() + WEB_SECONDS
    while not web_answers(plan.port):
        state = next(entry for entry in supervisor.states() if entry.name == "web")
        if state.state in {"FATAL", "EXITED"} or time.monotonic() > deadline:
            raise Problem(
                f"The web process does not answer on port {plan.port}: {state.state.lower()}, {state.why}.",
                f"See {plan.home.logs / 'web.log'}.",
            )
        step.update(None, "waiting for the web process")
        time.sleep(0.1)


def web_answers(port: int) -> bool:
    """Whether the web process says that it is up."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _report(plan: Plan, steps: Steps, lacks: Problem | None) -> Running:
    known = environment.read(plan.home.environment)
    url = known["INFLIGHT_WEB_URL"]
    kept = plan.home.admin_password
    password = f"; the password is in {kept}" if kept.is_file() else ""
    state = "is ready" if lacks is None else "runs, but the demo is not ready,"
    print(
        f"\nInflight {state} after {duration(steps.elapsed)}: {url}\n"
        f"  sign in as admin{password}\n"
        f"  OpenAI-compatible API: {known['INFLIGHT_GATEWAY_URL']}/v1 (keys are made in the pages)\n"
        f"  logs are in {plan.home.logs}",
        flush=True,
    )
    return Running(plan.home, url, ours=True, lacks=lacks)
