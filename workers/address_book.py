"""Where each deployment serves now, as a file that clients on this node read: run/endpoints/<deployment>.json.

Written by each tick where something changed, atomically, so that a client that calls Triton directly and reads it
before each request or connection follows every roll-out, also while the pages, Redis or the database are away. No
process stands in the data path; the gateway is the address that never changes.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from django.conf import settings

from apps.serving import selectors
from apps.serving.models import Deployment

log = logging.getLogger(__name__)


def folder() -> Path:
    """Where the files lie."""
    return Path(settings.INFLIGHT_HOME) / "run" / "endpoints"


def signature() -> object:
    """What the files are made of; equal as long as they need no look."""
    return (
        tuple(selectors.routable_instances().order_by("pk").values_list("pk", "revision_id")),
        tuple(Deployment.objects.order_by("pk").values_list("pk", "version", "active_revision_id")),
    )


def write(deployments: Iterable[Deployment]) -> int:
    """Bring the files up to date; returns how many changed. What cannot be written is logged: serving goes on."""
    changed = 0
    known = set()
    try:
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        for row in deployments:
            known.add(f"{row.name}.json")
            changed += _write_one(row)
        for path in folder().iterdir():
            if path.name not in known:
                path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("The addresses for clients on this node could not be written: %s", error)
    return changed


def _write_one(row: Deployment) -> bool:
    path = folder() / f"{row.name}.json"
    servers = [
        {
            "uid": found.uid,
            "revision": found.revision,
            "model": found.model,
            "http": found.http_url,
            "grpc": found.grpc_url,
            "weight": round(weight, 3),
        }
        for found, weight in selectors.weighted_endpoints(row)
    ]
    text = json.dumps({"deployment": row.name, "servers": servers}, indent=1, sort_keys=True)
    try:
        if path.read_text(encoding="utf-8") == text:
            return False
    except FileNotFoundError:
        pass
    temporary = path.with_suffix(f".{os.getpid()}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    return True
