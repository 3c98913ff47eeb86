"""The program as an archive, so that a joining host runs what this installation runs."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from django.conf import settings

# What a worker needs of a checkout; nothing of a home, no tests, no history.
PARTS = (
    "apps",
    "controlplane",
    "deploy",
    "examples",
    "requirements",
    "static",
    "templates",
    "workers",
    "Makefile",
    "manage.py",
    "pyproject.toml",
)
_LEFT_OUT = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


def archive() -> io.BytesIO:
    """A gzipped tar of the checkout's program below `inflight/`; owners and times that tell of nobody."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz", compresslevel=1) as tar:
        for part in PARTS:
            path = Path(settings.BASE_DIR) / part
            if path.exists():
                tar.add(path, arcname=f"inflight/{part}", filter=_plain)
    held.seek(0)
    return held


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if Path(member.name).name in _LEFT_OUT or not (member.isfile() or member.isdir()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member
