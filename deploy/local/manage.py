"""Runs `manage.py` of the checkout with the environment of one home."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from deploy.local.errors import Problem
from deploy.local.home import CHECKOUT
from deploy.local.packages import ended_with_us


def run(
    python: Path, arguments: Sequence[str], environ: dict[str, str], log: Path, say: Callable[[str], None]
) -> None:
    """Run one management command; its lines go to `say` as they come and to `log`. A failure is a Problem.

    The Problem's sentence is the last line that the command wrote: Django's CommandError is one line, a traceback
    ends with its exception.
    """
    last = ""
    with log.open("a", encoding="utf-8") as output:
        output.write(f"$ manage.py {' '.join(arguments)}\n")
        child = subprocess.Popen(
            [str(python), "manage.py", *arguments],
            cwd=CHECKOUT,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert child.stdout is not None
        with ended_with_us(child):
            for line in child.stdout:
                output.write(line)
                output.flush()
                last = line.strip() or last
                say(line.rstrip())
            child.wait()
    if child.returncode != 0:
        raise Problem(
            f"manage.py {' '.join(arguments)} failed: {last or f'it ended with {child.returncode}'}",
            f"See {log}.",
        )
