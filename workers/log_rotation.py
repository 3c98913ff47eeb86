"""Servers' logs stay bounded while the server writes on: the file is copied aside and cut to nothing in place.

A server holds its log open for appending and never opens it anew, so the file itself must stay. Lines written between
the copy and the cut are lost, which is a page of text at most; builds bound their logs while they write (pumps.py).
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path

from django.conf import settings

from workers.failures import LOAD_MARK
from workers.pumps import MAX_LOG_BYTES

log = logging.getLogger(__name__)
OLD = ".1"


def rotate_server_logs(limit: int = MAX_LOG_BYTES) -> int:
    """Rotate every server's log that is over the limit (bytes), keeping one old one. Returns how many were."""
    rotated = 0
    for path in (Path(settings.INFLIGHT_HOME) / "instances").glob("*/*.log"):
        try:
            if path.stat().st_size > limit:
                _rotate(path)
                rotated += 1
        except OSError as error:
            log.warning("%s cannot be rotated: %s", path, error)
    return rotated


def _rotate(path: Path) -> None:
    incoming = path.with_name(f".{path.name}{OLD}-{os.getpid()}")
    shutil.copyfile(path, incoming)
    incoming.replace(path.with_name(path.name + OLD))
    os.truncate(path, 0)
    mark = path.with_name(LOAD_MARK)
    if mark.exists():
        # What is read "since the load began" begins with what the file holds now.
        mark.write_text(json.dumps({"log_offset": 0}), encoding="ascii")
