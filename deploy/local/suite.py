"""`make test`, `make test-full` and `make lint`: every set-up step, then every check, within a time limit each.

A home of its own (`var/test`): an installation that runs in the same checkout is not disturbed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from deploy.local import packages, postgres, preflight, serving_environment
from deploy.local.errors import Problem
from deploy.local.home import CHECKOUT, Home
from deploy.local.locks import exclusive
from deploy.local.progress import Step, Steps, duration
from deploy.local.serving_environment import ServingEnvironment
from deploy.local.stages import Counts, Result, Stage, run_stage, run_together
from deploy.local.supervision import DROPPED_VARIABLES
from deploy.local.up import control_venv

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
KINDS = ("integration", "triton", "browser", "faults")
# Seconds after which a stage is ended: a guard against hanging, three times what it takes on two idle cores.
LIMITS = {
    "unit": 600,
    "database on PostgreSQL": 600,
    "integration": 600,
    "triton": 480,
    "browser": 720,
    "faults": 480,
}
FULL_FACTOR = 6
# What `make rolling`, `make chaos` and so on run, and how long they may take.
UPHEAVALS = {
    "rolling": "tests.chaos.rolling",
    "chaos": "tests.chaos.upheaval",
    "scaling": "tests.chaos.scaling",
    "rollback": "tests.chaos.rollback",
    "hosts": "tests.hosts.three",
}
UPHEAVAL_SECONDS = 3600
# These wait more than they compute, for processes and for a browser. Files stay whole, as their servers are shared.
# Browser tests keep their order: the journey with its whole stack comes first.
AT_ONCE = {
    "integration": ("-n", "4", "--dist", "loadfile"),
    "triton": ("-n", "2", "--dist", "loadfile"),
    "browser": ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"),
    "faults": ("-n", "3", "--dist", "loadfile"),
}
# Each process of a stage would else import all the test files, which takes longer than some stages do.
FEWER_FILES = ("-p", "tests.bringup.fewer_files")


@dataclass(frozen=True, slots=True)
class Suite:
    """A prepared place to run the checks in."""

    home: Home
    python: Path
    environ: dict[str, str]

    def tool(self, name: str) -> str:
        return str(self.python.with_name(name))


def test(environ: dict[str, str], full: bool) -> int:
    """Set up and run everything; 0 only when every stage went well."""
    began = time.monotonic()
    home = Home(CHECKOUT / "var/test")
    home.create()
    with exclusive(home.run / "command.lock", "run make test", 5):
        suite = _prepare(home, environ)
        results = _static_checks(suite, *_test_setup(suite))
        results += _unit(suite, full)
        for kind in KINDS:
            options = (*FEWER_FILES, "--kind", kind, *AT_ONCE.get(kind, ()))
            results.append(_pytest(suite, kind, marks_of(kind), full, *options))
    return _report(results, time.monotonic() - began)


def marks_of(kind: str) -> str:
    """The tests of a stage: a test of several kinds runs once, in the last of their stages."""
    later = KINDS[KINDS.index(kind) + 1 :]
    return f"{kind} and not ({' or '.join(later)})" if later else kind


def lint(environ: dict[str, str]) -> int:
    """The static checks alone."""
    home = Home(CHECKOUT / "var/test")
    home.create()
    steps = Steps(1)
    with packages.environment_lock(), steps.step("Packages with the development tools") as step:
        packages.ensure(control_venv("dev.lock"), step, home.logs / "pip-dev.log", home.cache)
    results = _static_checks(Suite(home, control_venv().python, _environment(home, environ, {})))
    for result in results:
        print(result.line())
    return int(any(result.why for result in results))


def upheaval(environ: dict[str, str], command: str) -> int:
    """Set up, then change or break a whole installation under running streams; see tests/chaos."""
    home = Home(CHECKOUT / "var/test")
    home.create()
    with exclusive(home.run / "command.lock", f"run make {command}", 5):
        suite = _prepare(home, environ)
        argv = [str(suite.python), "-m", UPHEAVALS[command]]
        for variable in ("UPDATES", "STREAMS", "TOKENS", "ONLY"):
            if environ.get(variable):
                argv += [f"--{variable.lower()}", environ[variable]]
        result = run_stage(command, argv, suite.environ, UPHEAVAL_SECONDS)
    print(result.line())
    return int(bool(result.why))


def _prepare(home: Home, environ: dict[str, str]) -> Suite:
    steps = Steps(6)
    serving, venv = ServingEnvironment(home), control_venv("dev.lock")
    with steps.step("This machine"):
        new = not packages.is_current(venv) or not packages.is_current(serving.venv)
        need = preflight.FIRST_START_BYTES if new else preflight.LATER_START_BYTES
        found = preflight.problems(preflight.look([home.root, CHECKOUT]), need)
        found += missing_system_packages(os.geteuid() == 0)
        if found:
            listed = "\n".join(f"  - {line}" for line in found)
            raise Problem(f"This machine lacks something:\n{listed}", "Nothing was downloaded.")
    with steps.step("Browser and PostgreSQL") as step:
        install_system_packages(step, home.logs / "apt.log")
    with packages.environment_lock(), steps.step("Packages with the development tools") as step:
        packages.ensure(venv, step, home.logs / "pip-dev.log", home.cache)
    with steps.step("Serving environment") as step:
        serving_environment.ensure_serving(serving, step, venv.python)
    with steps.step("Redis server") as step:
        redis = serving_environment.ensure_redis(home, step, venv.python)
    with steps.step("Demo checkpoint") as step:
        serving_environment.ensure_demo_checkpoint(home, step, venv.python)
    facts = serving.facts() | {
        "INFLIGHT_REDIS_SERVER": str(redis),
        "INFLIGHT_TEST_BROWSER": find_browser() or "",
    }
    return Suite(home, venv.python, _environment(home, environ, facts))


def _environment(home: Home, environ: dict[str, str], facts: dict[str, str]) -> dict[str, str]:
    """The caller's environment without what would point the tests at a running installation."""
    ours = ("INFLIGHT_", "DATABASE_URL", "DJANGO_SETTINGS_MODULE")
    found = {
        key: value
        for key, value in environ.items()
        if not key.startswith(ours) and key not in DROPPED_VARIABLES
    }
    return (
        found
        | facts
        | {
            "PYTHONUNBUFFERED": "1",
            "PYTHONPYCACHEPREFIX": str(home.cache / f"bytecode-{sys.implementation.cache_tag}"),
            "RUFF_CACHE_DIR": str(home.cache / "ruff"),
            "MYPY_CACHE_DIR": str(home.cache / "mypy"),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(home.cache / "hypothesis"),
        }
    )


def _static_checks(suite: Suite, *more: tuple[str, list[str]]) -> list[Result]:
    """Two at a time, as mypy keeps one core busy for long; `more` are names and commands of others beside them."""
    manage = [str(suite.python), "manage.py"]
    # Their own home: settings make a secret key where they find none.
    environ = suite.environ | {"INFLIGHT_HOME": str(suite.home.root)}
    commands = [
        ("ruff check", [suite.tool("ruff"), "check", "."]),
        ("ruff format", [suite.tool("ruff"), "format", "--check", "."]),
        ("mypy", [suite.tool("mypy")]),
        (
            "import-linter",
            [suite.tool("lint-imports"), "--cache-dir", str(suite.home.cache / "import-linter")],
        ),
        ("migrations", [*manage, "makemigrations", "--check", "--dry-run"]),
        *more,
    ]
    stages = [Stage(name, argv, environ, 300) for name, argv in commands]
    return run_together(stages, suite.home.root / "reports")


def _test_setup(suite: Suite) -> list[tuple[str, list[str]]]:
    """What every process of the tests would else do for itself: read all files, and migrate a database."""
    python, cache = str(suite.python), str(suite.home.cache / "pytest")
    read = [python, "-m", "pytest", "-q", *FEWER_FILES, "--only-read", "-o", f"cache_dir={cache}"]
    return [("test database", [python, "-m", "tests.support.database", cache]), ("tests are read", read)]


def _unit(suite: Suite, full: bool) -> list[Result]:
    """Quick tests on SQLite, then those of them that touch the database on PostgreSQL.

    Three at a time: some wait for processes and files.
    """
    marks = f"not ({' or '.join(KINDS)})"
    with_rows = suite.home.root / "reports/database-files.txt"
    with_rows.parent.mkdir(exist_ok=True)
    with_rows.unlink(missing_ok=True)
    options: tuple[str, ...] = ("-n", "3", *FEWER_FILES)
    results = [_pytest(suite, "unit", marks, full, *options, f"--note-database-files={with_rows}")]
    if with_rows.is_file():
        options += (f"--database-files={with_rows}",)
    with postgres.server(suite.home.logs / "postgres.log") as url:
        on_postgres = Suite(suite.home, suite.python, suite.environ | {"DATABASE_URL": url})
        options += ("-p", "tests.bringup.database_only")
        results.append(_pytest(on_postgres, "database on PostgreSQL", marks, full, *options))
    return results


def _pytest(suite: Suite, name: str, marks: str, full: bool, *options: str) -> Result:
    report = suite.home.root / "reports" / f"{name.replace(' ', '-')}.xml"
    report.parent.mkdir(exist_ok=True)
    chosen = marks if full else f"({marks}) and not slow"
    argv = [str(suite.python), "-m", "pytest", "-q", "-m", chosen, f"--junitxml={report}", *options]
    argv += ["-o", f"cache_dir={suite.home.cache / 'pytest'}"]
    return run_stage(name, argv, suite.environ, LIMITS[name] * (FULL_FACTOR if full else 1), report)


def _report(results: list[Result], seconds: float) -> int:
    print(f"\n== All stages, {duration(seconds)}", flush=True)
    total = Counts()
    for result in results:
        print(result.line())
        total += result.counts or Counts()
    bad = [result.name for result in results if result.why]
    print(f"Failed: {', '.join(bad)}" if bad else "Every stage went well.")
    # A stage that failed without a failed test (lint, a time limit) counts as one.
    failed = total.failed + sum(
        1 for result in results if result.why and not (result.counts and result.counts.failed)
    )
    print(f"{total.passed} passed, {failed} failed", flush=True)
    return int(bool(bad))


def find_browser() -> str | None:
    """A Chromium that playwright can drive, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def missing_system_packages(root: bool) -> list[str]:
    """A line for each system package that the tests need and that cannot be installed here."""
    if root and shutil.which("apt-get"):
        return []
    found = []
    if find_browser() is None:
        found.append("There is no Chromium for the browser tests. Install: sudo apt-get install -y chromium")
    if postgres.find_programs() is None:
        found.append("PostgreSQL's server is missing. Install: sudo apt-get install -y postgresql")
    return found


def install_system_packages(step: Step, log: Path) -> None:
    """Install Chromium and PostgreSQL through apt where they are missing (as root; asked before)."""
    wanted = ["chromium"] if find_browser() is None else []
    wanted += ["postgresql"] if postgres.find_programs() is None else []
    if not wanted:
        step.note("already in place")
        return
    environ = dict(os.environ) | {"DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "--no-install-recommends", *wanted]
    for argv in (["apt-get", "update"], install):
        with log.open("ab") as output:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environ
            )
            with packages.ended_with_us(child):
                while child.poll() is None:
                    step.update(None, " ".join(argv[:2]))
                    time.sleep(0.2)
        if child.returncode != 0:
            raise Problem(
                f"{' '.join(argv)} failed.", f"See {log}, or install {' and '.join(wanted)} yourself."
            )
    step.note(f"installed {' and '.join(wanted)}")
