"""The whole of Inflight as `make up` starts it, in a home of its own: for tests, benchmarks and fault commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from controlplane.settings.env import parse_environment
from tests.support.ports import free_port
from tests.support.triton import CHECKOUT, find_gguf, find_installation

UP_SECONDS, DOWN_SECONDS = 150, 60


@dataclass(frozen=True, slots=True)
class Stack:
    """A running installation of its own."""

    home: Path
    environ: dict[str, str]

    @property
    def url(self) -> str:
        """Address of the pages."""
        text = (self.home / "run/environment").read_text(encoding="utf-8")
        return parse_environment(text, "environment")["INFLIGHT_WEB_URL"]

    def make(self, target: str, seconds: float, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run one make target on this home."""
        return subprocess.run(
            ["make", target],
            cwd=CHECKOUT,
            env=self.environ | variables,
            timeout=seconds,
            capture_output=True,
            text=True,
            check=False,
        )

    def manage(self, *arguments: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run one management command on this home."""
        return subprocess.run(
            [str(CHECKOUT / ".venv/bin/python"), "manage.py", *arguments],
            cwd=CHECKOUT,
            env=self.environ,
            timeout=seconds,
            capture_output=True,
            text=True,
            check=False,
        )

    def processes(self) -> list[int]:
        """Processes that carry this home in their environment or command line."""
        mark = str(self.home).encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            try:
                text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark in text:
                found.append(int(entry.name))
        return found


def _environment(home: Path) -> dict[str, str]:
    """The caller's environment without what points the tests elsewhere."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("INFLIGHT_", "PYTEST_", "DJANGO_", "DATABASE_URL", "MAKE", "MFLAGS"))
    }
    # Two installations of one host must not share the gateway's port either: the kernel would spread over both.
    ports = {"PORT": str(free_port()), "INFLIGHT_GATEWAY_PORT": str(free_port())}
    return kept | ports | {"INFLIGHT_HOME": str(home)}


def _share(home: Path) -> None:
    """Take the serving environment and the checkpoint that this checkout has, in place of a second download."""
    binary = find_installation().binary
    serving = next(folder for folder in binary.parents if folder.name == "serving")
    (home / "serving").symlink_to(serving)
    # Else each of its dozen processes, started at once, compiles all that it imports.
    if bytecode := os.environ.get("PYTHONPYCACHEPREFIX"):
        (home / "cache").mkdir()
        (home / "cache" / f"bytecode-{sys.implementation.cache_tag}").symlink_to(bytecode)
    checkpoint = home / "checkpoints/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf"
    checkpoint.parent.mkdir(parents=True)
    shutil.copyfile(find_gguf(), checkpoint)


@contextmanager
def running_stack(**variables: str) -> Iterator[Stack]:
    """The same for a block of code. `variables` of its environment, as DATABASE_URL."""
    home = Path(tempfile.mkdtemp(prefix="inflight-j-"))
    _share(home)
    running = Stack(home, _environment(home) | variables)
    try:
        up = running.make("up", UP_SECONDS, DETACH="1")
        assert up.returncode == 0, up.stdout + up.stderr
        yield running
    finally:
        running.make("down", DOWN_SECONDS)
        shutil.rmtree(home, ignore_errors=True)
