"""Commands of the launcher. Choices come as make variables, which make passes on in the environment."""

from __future__ import annotations

import argparse
import os
import signal
import sys

from deploy.local.errors import Problem
from deploy.local.home import Home, find_home

YES, NO = {"1", "yes", "true", "on"}, {"", "0", "no", "false", "off"}


def main(argv: list[str]) -> int:
    """Run one command; 0 when it went well, 1 with a sentence and a remedy, 130 after an interrupt."""
    parser = argparse.ArgumentParser(prog="deploy.local", description=__doc__)
    commands = [
        "up",
        "status",
        "down",
        "test",
        "test-full",
        "rolling",
        "chaos",
        "scaling",
        "rollback",
        "lint",
        "lock",
    ]
    commands += ["worker", "hosts"]
    parser.add_argument("command", choices=commands)
    command: str = parser.parse_args(argv).command
    try:
        return _run(command, dict(os.environ))
    except Problem as problem:
        print(f"{problem.what}\n{problem.remedy}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr, flush=True)
        return 128 + signal.SIGINT


def chosen(name: str, environ: dict[str, str]) -> bool:
    """A yes-or-no make variable."""
    value = environ.get(name, "").lower()
    if value in YES or value in NO:
        return value in YES
    raise Problem(f"{name}={value} is neither yes nor no.", f"Use {name}=1 or leave it out.")


def _run(command: str, environ: dict[str, str]) -> int:
    if command == "up":
        return _up(find_home(environ), environ)
    if command == "down":
        from deploy.local.down import down

        down(find_home(environ), environ, chosen("KEEP_SERVING", environ))
        return 0
    if command == "status":
        from deploy.local.status import status

        return 0 if status(find_home(environ)) else 1
    if command == "worker":
        from deploy.local.worker import worker

        worker(find_home(environ), environ)
        return 0
    if command == "lock":
        from deploy.local.lock import lock

        return lock(environ)
    return _checks(command, environ)


def _checks(command: str, environ: dict[str, str]) -> int:
    from deploy.local import suite, watch

    try:
        with watch.ending_signals():
            if command in suite.UPHEAVALS:
                return suite.upheaval(environ, command)
            return (
                suite.lint(environ) if command == "lint" else suite.test(environ, full=command == "test-full")
            )
    except watch.Ended:
        print("\nInterrupted.", file=sys.stderr, flush=True)
        return 128 + signal.SIGINT


def _up(home: Home, environ: dict[str, str]) -> int:
    # Imported late: the preflight in there must run on a Python that lacks what the rest imports.
    from deploy.local import watch
    from deploy.local.down import down
    from deploy.local.up import up

    detach, keep = chosen("DETACH", environ), chosen("KEEP_SERVING", environ)
    wait = environ.get("WAIT", "demo")
    if wait not in {"demo", "web"}:
        raise Problem(f"WAIT={wait} is unknown.", "Use WAIT=demo (default) or WAIT=web.")
    ready = False
    try:
        with watch.ending_signals():
            running = up(home, environ, wait_for_demo=wait == "demo")
            if running.lacks is not None:
                print(f"\n{running.lacks.what}\n{running.lacks.remedy}", file=sys.stderr, flush=True)
            if detach or not running.ours:
                return 0 if running.lacks is None else 1
            ready = True
            watch.watch(home)
            return 0
    except watch.Ended:
        print("\nEnding.", flush=True)
        with watch.ignoring_signals():
            down(home, environ, keep)
        return 0 if ready else 128 + signal.SIGINT
