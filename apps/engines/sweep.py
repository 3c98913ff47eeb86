"""What keeps builds true without anybody pressing anything: sent again, reaped, missing files noticed."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from django.utils.translation import gettext as _

from apps.core import database_time
from apps.core.transitions import transition
from apps.engines import dispatch, paths, states
from apps.engines.attempts import Failure, child_of, fail_build
from apps.engines.models import Build, Engine
from apps.engines.stages import sweep_stages
from apps.fleet.containers import end_containers
from apps.fleet.models import Node
from apps.fleet.processes import end_tree, mark_of
from apps.fleet.selectors import local_node
from apps.fleet.toolchains import container_programs

# Long enough for a step to remove its files, short enough that a sweep stays quick.
KILL_GRACE_SECONDS = 1.0
# No copy between two disks takes this long without changing its folder.
LEFTOVER_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep did, in counts."""

    reaped: int
    sent: int
    missing: int


def sweep() -> Swept:
    """Reap builds whose lease ran out, send queued ones again, mark engines without files."""
    here = local_node()
    _remove_leftovers()
    sweep_stages()
    return Swept(reaped=_reap(here), sent=dispatch.resend(), missing=_look_for_files(here))


def _remove_leftovers() -> None:
    """Remove hidden folders of engines, left by a process killed while it copied, replaced or deleted them."""
    oldest = time.time() - LEFTOVER_SECONDS
    for folder in paths.engines_folder().glob(".*-*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)


def _reap(here: Node | None) -> int:
    """End what is left of a build whose worker fell silent, and queue it again (at most twice)."""
    expired = Build.objects.filter(state=states.RUNNING, lease_expires_at__lte=database_time.now())
    reaped = 0
    for build in expired.select_related("node", "gpu"):
        if here is not None and build.node_id == here.pk:
            mark = mark_of(here.node_id, build.kind, build.pk, build.attempt)
            end_containers(mark, container_programs(here))
            end_tree(mark, child_of(build), KILL_GRACE_SECONDS)
            shutil.rmtree(paths.build_folder(build.number, build.attempt) / "work", ignore_errors=True)
        failure = Failure(
            "worker_lost",
            _("The worker that built it fell silent and its lease ran out."),
            _("See whether the worker runs (make status) and why it ended (its log under logs/)."),
            retry=True,
        )
        reaped += fail_build(build, build.attempt, failure, "sweep")
    return reaped


def _look_for_files(here: Node | None) -> int:
    """Mark engines of this node whose folder is gone; one that came back whole is ready again."""
    if here is None:
        return 0
    missing = 0
    for engine in Engine.objects.filter(node=here, state__in=[states.READY, states.MISSING]):
        there = is_whole(engine)
        if engine.state == states.READY and not there:
            missing += transition(
                engine,
                states.MISSING,
                actor="sweep",
                reason="engine_missing",
                sentence=_("The folder %(path)s is gone or not whole.") % {"path": engine.path},
                remedy=_("Put it back, or build again: the same profile makes the same engine."),
            )
        elif engine.state == states.MISSING and there:
            transition(engine, states.READY, actor="sweep")
    return missing


def is_whole(engine: Engine) -> bool:
    """Whether the engine's manifest and all files that it names are there, at their sizes."""
    folder = Path(engine.path)
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        return manifest["fingerprint"] == engine.fingerprint and all(
            (folder / file["name"]).stat().st_size == file["size_bytes"] for file in manifest["files"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False
