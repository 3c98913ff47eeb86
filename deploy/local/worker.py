"""`make worker`: this host as one more node of an installation elsewhere. Joins with a token once, then just starts.

The token comes as INFLIGHT_JOIN_TOKEN, the installation's address as INFLIGHT_JOIN_URL (docs/several-hosts.md).
"""

from __future__ import annotations

import socket
from pathlib import Path

from deploy.local import environment, join_client, manage, packages, programs, serving_environment
from deploy.local.errors import Problem
from deploy.local.home import Home, write_atomically
from deploy.local.locks import exclusive
from deploy.local.programs import Plan
from deploy.local.progress import Step, Steps, duration
from deploy.local.serving_environment import ServingEnvironment
from deploy.local.supervision import Supervisor, child_environment
from deploy.local.up import check_machine, control_venv, read_slots, recover, redis_answers

TOKEN, URL, CA = "INFLIGHT_JOIN_TOKEN", "INFLIGHT_JOIN_URL", "INFLIGHT_JOIN_CA"
JOINED = "INFLIGHT_JOINED_TO"
# Where a host brings its own Triton these come from its environment, and nothing is installed for serving.
OWN_SERVING = (
    "INFLIGHT_SERVING_PYTHON",
    "INFLIGHT_SERVING_SITE_PACKAGES",
    "INFLIGHT_SERVING_PYTHONHOME",
    "INFLIGHT_TRITON_BIN",
    "INFLIGHT_TRITON_BACKENDS",
    "INFLIGHT_TRITON_LIBS",
)
# Kept for later starts, so that they need no more than `make worker`.
KEPT = (
    "INFLIGHT_DOOR_HOST",
    "INFLIGHT_DOOR_PORT",
    "INFLIGHT_DOOR_ADDRESS",
    "INFLIGHT_TOOLCHAINS",
    "INFLIGHT_TRTLLM_PYTHON",
)


def worker(home: Home, environ: dict[str, str]) -> bool:
    """Join where that was not done yet, and start this host's workers; False where they run already."""
    steps = Steps(6)
    with steps.step("This machine") as step:
        check_machine(home, step)
    home.create()
    with exclusive(home.run / "command.lock", "run make worker", 900):
        if Supervisor(home).identity() is not None:
            print(f"The workers of {home.root} run already.", flush=True)
            return False
        recover(home)
        given = dict(environ)
        with steps.step("Join") as step:
            joined, labels = _joined(home, given, step)
        # From here on nobody needs it, and every child would show it in its environment.
        given.pop(TOKEN, None)
        _start(home, given, steps, joined, labels)
        print(
            f"\nThis host is node {joined['INFLIGHT_NODE_ID']} of {joined[JOINED]}, ready after "
            f"{duration(steps.elapsed)}.\n  logs are in {home.logs}; make status and make down work as ever",
            flush=True,
        )
    return True


def _joined(home: Home, environ: dict[str, str], step: Step) -> tuple[dict[str, str], dict[str, str]]:
    """What the installation told: asked with the token, else as it was kept; and the node's labels."""
    token, url = environ.get(TOKEN, ""), environ.get(URL, "")
    kept = environment.read(home.environment)
    if not token and kept.get(JOINED):
        step.note(f"with {kept[JOINED]}, done before")
        return kept, {}
    if not token or not url:
        raise Problem(
            "This host has not joined an installation yet.",
            "Run the command that its page of the fleet makes, or set INFLIGHT_JOIN_URL and INFLIGHT_JOIN_TOKEN.",
        )
    node_id = environ.get("INFLIGHT_NODE_ID") or home.node_id()
    try:
        handed = join_client.exchange(url, token, node_id, socket.gethostname(), environ.get(CA, ""))
        values = join_client.keep(home.root, handed)
    except join_client.ExchangeFailed as failed:
        raise Problem(failed.what, failed.remedy) from failed
    values |= {"INFLIGHT_HOME": str(home.root), JOINED: url}
    # Written at once: the token is spent, and a later step may fail.
    environment.write(home.environment, values)
    step.note(f"node {node_id} of {url}")
    return values, handed["labels"]


def _start(
    home: Home, environ: dict[str, str], steps: Steps, joined: dict[str, str], labels: dict[str, str]
) -> None:
    venv = control_venv()
    with packages.environment_lock(), steps.step("Packages") as step:
        packages.ensure(venv, step, home.logs / "pip-base.log", home.cache)
    with steps.step("Serving environment: tritonserver and the llama.cpp engine") as step:
        facts = _serving(home, environ, step, venv.python)
    values = {**joined, **{key: environ[key] for key in KEPT if environ.get(key)}, **facts}
    environment.write(home.environment, values)
    children = child_environment(home, environ, venv.root)
    slots = home.run / "slots"
    with steps.step("This host in the fleet") as step:
        if not redis_answers(values["INFLIGHT_REDIS_URL"]):
            raise Problem(
                "Redis does not answer this host.",
                "See whether it may be reached from here (docs/several-hosts.md).",
            )
        found: list[str] = []
        manage.run(venv.python, ["list_worker_slots"], children, home.logs / "join.log", found.append)
        write_atomically(slots, "\n".join(found) + "\n")
        told = [word for key, value in sorted(labels.items()) for word in ("--label", f"{key}={value}")]
        manage.run(venv.python, ["join", *told], children, home.logs / "join.log", step.note)
    with steps.step("Processes") as step:
        plan = Plan(
            home,
            venv.python,
            values["INFLIGHT_NODE_ID"],
            0,
            read_slots(slots),
            None,
            several=True,
            worker=True,
        )
        _start_programs(plan, children, step)


def _serving(home: Home, environ: dict[str, str], step: Step, python: Path) -> dict[str, str]:
    own = {key: environ[key] for key in OWN_SERVING if environ.get(key)}
    if own.get("INFLIGHT_TRITON_BIN"):
        step.note(f"this host's own: {own['INFLIGHT_TRITON_BIN']}")
        return own
    serving = ServingEnvironment(home)
    serving_environment.ensure_serving(serving, step, python)
    return serving.facts()


def _start_programs(plan: Plan, children: dict[str, str], step: Step) -> None:
    home = plan.home
    home.create_sockets()
    write_atomically(home.supervisor_config, programs.supervisor_config(plan, home.sockets()), mode=0o600)
    supervisor = Supervisor(home)
    identity = supervisor.start(plan.python, children)
    names = [program.name for program in programs.programs(plan)]
    try:
        for name in names:
            supervisor.start_program(name)
    except Problem:
        supervisor.shut_down(identity, 40)
        raise
    step.note(f"{len(names)} processes, watched")
