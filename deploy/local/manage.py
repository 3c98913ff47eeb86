"""Runs `manage.py` of the checkout with the environment of one home."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from deploy.local.errors import Problem
from deploy.local.home import CHECKOUT
from deploy.local.packages import ended_with_us

TRACEBACK = "Traceback (most recent call last):"


def run(
    python: Path, arguments: Sequence[str], environ: dict[str, str], log: Path, say: Callable[[str], None]
) -> None:
    """Run one management command; its lines go to `say` as they come and to `log`. A failure is a Problem.

    A traceback is for the log alone; its exception is the Problem's sentence, else the last line that was written.
    """
    lines: list[str] = []
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
                lines.append(line.rstrip())
                if TRACEBACK not in lines:
                    say(lines[-1])
            child.wait()
    if child.returncode != 0:
        why = reason(lines) or f"it ended with {child.returncode}"
        raise Problem(f"manage.py {arguments[0]} failed: {why}", f"See {log}.")


def reason(lines: list[str]) -> str:
    """The one line that says why a command failed: the last traceback's exception, else the last line."""
    begins = [number for number, line in enumerate(lines) if line == TRACEBACK]
    after = lines[begins[-1] + 1 :] if begins else []
    exceptions = [line for line in after if line and not line.startswith((" ", "\t"))]
    written = [line.strip() for line in lines if line.strip()]
    return exceptions[0] if exceptions else (written[-1] if written else "")
