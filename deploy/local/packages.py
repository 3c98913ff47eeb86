"""Virtual environments out of the lock files, with a stamp so that a later start has nothing to do."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local.errors import Problem
from deploy.local.home import CHECKOUT, write_atomically
from deploy.local.pip_progress import PipProgress, names_in, partial_bytes
from deploy.local.progress import Step

STAMP = ".inflight-locks.json"
REQUIREMENTS = CHECKOUT / "requirements"
PIP_OPTIONS = ("--require-hashes", "--no-deps", "--only-binary=:all:", "--progress-bar=off", "--no-input")


@dataclass(frozen=True, slots=True)
class Venv:
    """A virtual environment and the lock files it must hold. `implied` locks are subsets of those installed.

    `compiled`: with bytecode beside the sources, for programs that may not write any.
    """

    root: Path
    locks: tuple[Path, ...]
    implied: tuple[Path, ...] = ()
    compiled: bool = False

    @property
    def python(self) -> Path:
        return self.root / "bin/python"

    @property
    def site_packages(self) -> Path:
        return self.root / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_current(venv: Venv) -> bool:
    """Whether the environment was made by this Python and holds these very locks."""
    try:
        stamp = json.loads((venv.root / STAMP).read_text(encoding="utf-8"))
        known, python = dict(stamp["locks"]), stamp["python"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if python != sys.version or not venv.python.exists():
        return False
    return all(known.get(lock.name) == sha256_of(lock) for lock in venv.locks)


def _write_stamp(venv: Venv) -> None:
    locks = {lock.name: sha256_of(lock) for lock in (*venv.locks, *venv.implied)}
    write_atomically(venv.root / STAMP, json.dumps({"python": sys.version, "locks": locks}, indent=1) + "\n")


def _same_python(venv: Venv) -> bool:
    """Whether what lies there is an environment of this Python, with or without our stamp."""
    if not venv.python.exists() or not venv.site_packages.is_dir():
        return False
    try:
        lines = (venv.root / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    values = dict(line.split(" = ", 1) for line in lines if " = " in line)
    return values.get("version") == ".".join(map(str, sys.version_info[:3]))


def ensure(venv: Venv, step: Step, log: Path, scratch: Path, pip: Path | None = None) -> bool:
    """Bring the environment to its locks; False when it was there already.

    `pip` is a Python whose pip installs into an environment that has none of its own. The stamp is removed first
    and written last, so a run that was broken off is done again.
    """
    if is_current(venv):
        step.note("already in place")
        return False
    (venv.root / STAMP).unlink(missing_ok=True)
    if not _same_python(venv):
        if venv.root.exists():
            shutil.rmtree(venv.root)
        make = [sys.executable, "-m", "venv", *(["--without-pip"] if pip else []), str(venv.root)]
        made = subprocess.run(make, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if made.returncode != 0:
            said = (made.stderr or made.stdout).strip().splitlines()
            raise Problem(
                f"The virtual environment {venv.root} could not be made: {said[-1] if said else 'no reason given'}.",
                "Check that Python's venv module is whole (Debian: python3-venv).",
            )
    compiling = "--compile" if venv.compiled else "--no-compile"
    for lock in venv.locks:
        argv = [str(pip or venv.python), "-m", "pip"]
        argv += ["--python", str(venv.python)] if pip else []
        run_pip([*argv, "install", compiling, *PIP_OPTIONS, "-r", str(lock)], lock, step, log, scratch, venv)
    _write_stamp(venv)
    return True


def run_pip(
    argv: Sequence[str], lock: Path, step: Step, log: Path, scratch: Path, venv: Venv | None = None
) -> None:
    """Run pip with its output in `log`, showing how far it is; a failure is a Problem with pip's own reason."""
    log.parent.mkdir(parents=True, exist_ok=True)
    progress = PipProgress(expected=len(names_in(lock.read_text(encoding="utf-8"))))
    before = _installed(venv)
    with temporary_folder(scratch) as folder, log.open("a", encoding="utf-8") as output:
        output.write(f"$ {' '.join(argv)}\n")
        output.flush()
        environ = os.environ | {
            "TMPDIR": str(folder),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONUNBUFFERED": "1",
        }
        environ |= {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        for name in ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX"):
            environ.pop(name, None)
        with log.open(encoding="utf-8", errors="replace") as reader:
            reader.seek(0, os.SEEK_END)
            child = subprocess.Popen(
                argv, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environ
            )
            with ended_with_us(child):
                while child.poll() is None:
                    time.sleep(0.1)
                    progress.feed(reader.readlines())
                    progress.installed = _installed(venv) - before
                    partial = partial_bytes(folder)
                    step.update(progress.share(partial), progress.detail(partial))
            progress.feed(reader.readlines())
    if child.returncode != 0:
        reason = progress.errors[0] if progress.errors else f"pip ended with {child.returncode}"
        raise Problem(
            f"The packages of requirements/{lock.name} could not be installed: {reason.rstrip('.')}.",
            f"pip's own words are in {log}. If the package index was out of reach, try again.",
        )


def _installed(venv: Venv | None) -> int:
    return len(list(venv.site_packages.glob("*.dist-info"))) if venv else 0


@contextlib.contextmanager
def ended_with_us(child: subprocess.Popen[str] | subprocess.Popen[bytes]) -> Iterator[None]:
    """End the child when this block is left early, e.g. by Ctrl-C."""
    try:
        yield
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


@contextlib.contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """A folder of our own under the home: pip's downloads are measured there, and nothing is left in /tmp."""
    folder = parent / f"tmp-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def environment_lock(step: Step | None = None) -> Iterator[None]:
    """One installer at a time in this checkout: two homes may share one `.venv`."""
    handle = os.open(REQUIREMENTS, os.O_RDONLY)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if step is not None:
                    step.update(None, "waiting for another installation in this checkout")
                time.sleep(0.2)
        yield
    finally:
        os.close(handle)
