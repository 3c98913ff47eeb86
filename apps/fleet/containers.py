"""Containers of an attempt: found by the label that each of them carries, and ended."""

from __future__ import annotations

import logging
import os
import subprocess

from apps.fleet.domain.toolchain_argv import LABEL

log = logging.getLogger(__name__)
ANSWER_SECONDS = 5.0


def end_containers(mark: str, programs: list[str]) -> int:
    """Remove every container of the attempt with this mark, by each container program; returns how many were named.

    A program that does not answer is logged and passed over: the attempt's processes are ended by their mark too.
    """
    ended = 0
    for program in programs:
        found = ask([program, "ps", "--all", "--quiet", "--filter", f"label={LABEL}={mark}"])
        ids = [word for word in found.split() if word.isalnum()]
        if ids:
            ask([program, "rm", "--force", *ids])
            ended += len(ids)
    return ended


def ask(argv: list[str], seconds: float = ANSWER_SECONDS) -> str:
    """Output of a container program; empty where it fails or does not answer in time."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
            env=client_environment(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("%s does not answer: %s", argv[0], error)
        return ""
    if done.returncode != 0:
        log.warning("%s: %s", " ".join(argv[:2]), done.stderr.decode("utf-8", "replace").strip()[:300])
        return ""
    return done.stdout.decode("utf-8", "replace")


def client_environment() -> dict[str, str]:
    """What a container program needs of the worker's environment to reach its daemon or its own store."""
    names = ("HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONFIG", "CONTAINER_HOST", "TMPDIR")
    return {"PATH": os.defpath, **{name: os.environ[name] for name in names if name in os.environ}}
