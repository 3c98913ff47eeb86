"""`make status`: what runs, since when, and where the pages are."""

from __future__ import annotations

import time

from deploy.local import environment, processes
from deploy.local.home import Home
from deploy.local.progress import duration
from deploy.local.supervision import NO_ANSWER, ProcessState, Supervisor
from deploy.local.up import web_answers


def status(home: Home) -> bool:
    """Print the state; True when every process runs and the web answers."""
    supervisor = Supervisor(home)
    identity = supervisor.identity()
    servers = [entry for entry in processes.marked(home.root) if _serves(entry.pid)]
    if identity is None:
        pids = ", ".join(str(server.pid) for server in servers)
        kept = f", but tritonserver goes on serving (pid {pids})" if servers else ""
        print(f"Inflight is not running in {home.root}{kept}. Start it: make up")
        return False
    known = environment.read(home.environment)
    try:
        states = supervisor.states()
    except NO_ANSWER:
        print(
            f"supervisord (pid {identity.pid}) runs but does not answer. Start anew: make down, then make up"
        )
        return False
    if known.get("INFLIGHT_JOINED_TO"):
        return _worker(home, known, states)
    answers = web_answers(int(known.get("INFLIGHT_WEB_PORT") or 0))
    print(f"Inflight {known.get('INFLIGHT_WEB_URL', '')} ({'answers' if answers else 'does not answer'})")
    print(f"OpenAI-compatible API {known.get('INFLIGHT_GATEWAY_URL', '')}/v1")
    print(f"home {home.root}, node {known.get('INFLIGHT_NODE_ID', '')}")
    for state in states:
        print(line(state, time.time()))
    for server in servers:
        print(f"  {'tritonserver':<14} running     pid {server.pid}")
    return answers and all(state.state == "RUNNING" for state in states)


def _worker(home: Home, known: dict[str, str], states: list[ProcessState]) -> bool:
    """A host that joined an installation elsewhere has no pages of its own."""
    print(
        f"Workers of {known['INFLIGHT_JOINED_TO']}, home {home.root}, node {known.get('INFLIGHT_NODE_ID', '')}"
    )
    for state in states:
        print(line(state, time.time()))
    return all(state.state == "RUNNING" for state in states)


def line(state: ProcessState, now: float) -> str:
    """One process in one line."""
    words = f"  {state.name:<14} {state.state.lower():<11}"
    if state.state == "RUNNING":
        return f"{words} pid {state.pid}, since {duration(max(now - state.since, 0))}"
    return f"{words} {state.why}"


def _serves(pid: int) -> bool:
    return processes.command_of(pid).split(" ", 1)[0].endswith("/tritonserver")
