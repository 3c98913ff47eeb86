"""Programs that a host may have besides what Inflight brings, found without running them."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

# What a host's versions say of a program whose version is not to be seen from outside.
UNKNOWN = "?"
_NAME = re.compile(r"^aiperf-(\d[\w.+!]*)\.dist-info$")


@dataclass(frozen=True, slots=True)
class Program:
    """A program that is there: its path and its version, UNKNOWN where its installation does not tell."""

    path: Path
    version: str


def aiperf() -> Program | None:
    """AIPerf as INFLIGHT_AIPERF_BIN names it, else the one on PATH; None where there is none that can be run.

    Its version is that of the distribution in its own virtual environment: importing it takes seconds.
    """
    name = settings.INFLIGHT_AIPERF_BIN or shutil.which("aiperf") or ""
    path = Path(name)
    if not name or not path.is_file() or not os.access(path, os.X_OK):
        return None
    return Program(path, _version_beside(path))


def _version_beside(path: Path) -> str:
    """The version of the distribution in the environment that the program lies in."""
    for prefix in dict.fromkeys((path.parent.parent, path.resolve().parent.parent)):
        for found in sorted(prefix.glob("lib/python3*/site-packages/aiperf-*.dist-info")):
            named = _NAME.match(found.name)
            if named is not None:
                return named.group(1)
    return UNKNOWN
