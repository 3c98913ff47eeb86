"""Clean-up of engines, kept stages and logs: what there is, a dry run, and the clean-up itself."""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import DatabaseError, transaction
from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apps.accounts.roles import Action, require
from apps.core import audit, clock
from apps.core.exceptions import InflightError, InvalidInput, NotFound
from apps.engines import paths, stages, states
from apps.engines.artefacts import delete_engine, users_of
from apps.engines.domain.retention import KINDS, Decision, Item, Kind, Policy, decide
from apps.engines.models import Build, Engine
from apps.engines.retention_models import RetentionPolicy

log = logging.getLogger(__name__)
ACTOR = "sweep"
EVERY = timedelta(days=1)
_ATTEMPT = re.compile(r"(?P<number>\d{1,9})-(?P<attempt>\d{1,6})")


class PolicyFields(BaseModel):
    """A retention policy as forms, API and YAML give it; null days: never."""

    model_config = ConfigDict(extra="forbid", strict=True)

    enabled: bool = Field(False, description="Clean up once a day.")
    engines_days: int | None = Field(30, ge=1, le=3650, description="Days without use; null: never.")
    stages_days: int | None = Field(7, ge=1, le=3650, description="Days without use; null: never.")
    logs_days: int | None = Field(90, ge=1, le=3650, description="Days since the build ended; null: never.")
    keep_newest: int = Field(1, ge=0, le=100, description="Newest engines kept of each profile.")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a clean-up removed, and what could not be removed with the reason."""

    removed: tuple[Decision, ...]
    failed: tuple[tuple[Decision, str], ...]

    @property
    def bytes(self) -> int:
        """Room that was made."""
        return sum(each.item.size_bytes for each in self.removed)

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "removed": [each.as_dict() for each in self.removed],
            "failed": [{**each.as_dict(), "error": why} for each, why in self.failed],
            "bytes": self.bytes,
        }


def policy_row() -> RetentionPolicy:
    """The one policy; the defaults, unsaved, while nobody has saved one."""
    return RetentionPolicy.objects.order_by("pk").first() or RetentionPolicy(pk=1)


def policy_of(row: RetentionPolicy) -> Policy:
    """The row as the rules want it."""
    return Policy(row.engines_days, row.stages_days, row.logs_days, row.keep_newest)


def policy_dict(row: RetentionPolicy) -> dict[str, Any]:
    """JSON form, with when it last cleaned up (null: never)."""
    values = {name: getattr(row, name) for name in PolicyFields.model_fields}
    return {**values, "last_run_at": row.last_run_at.isoformat() if row.last_run_at else None}


def save_retention_policy(actor: audit.Actor, data: Mapping[str, Any]) -> RetentionPolicy:
    """Change the policy; what is left out keeps its value. Raises InvalidInput naming the field."""
    require(actor, Action.CONFIGURE)
    row = policy_row()
    now = {name: getattr(row, name) for name in PolicyFields.model_fields}
    try:
        fields = PolicyFields.model_validate({**now, **data})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(
            "retention_policy_invalid",
            _("%(field)s: %(why)s.") % {"field": where or "policy", "why": first["msg"]},
            field=where,
            remedy=_("Give whole days from 1 to 3650, or nothing for never."),
        ) from error
    for name, value in fields.model_dump().items():
        setattr(row, name, value)
    with transaction.atomic():
        row.save()
        audit.record(actor, "retentionpolicy.changed", row, detail=fields.model_dump())
    return row


def plan_clean_up(policy: Policy | None = None, kinds: Iterable[Kind] = KINDS) -> list[Decision]:
    """The dry run: every engine, stage and log with what would become of it. Changes nothing."""
    return decide(_inventory(tuple(kinds)), policy or policy_of(policy_row()), clock.now())


def clean_up(
    actor: audit.Actor, wanted: Iterable[str] | None = None, policy: Policy | None = None
) -> Cleaned:
    """Remove what a new dry run says goes: all of it, or of that only what `wanted` names (`engine:<fingerprint>`).

    What came into use since the person looked is kept, because everything is decided again.
    """
    require(actor, Action.OPERATE)
    chosen = None if wanted is None else set(wanted)
    removed, failed = [], []
    for decision in plan_clean_up(policy):
        if not decision.remove or (chosen is not None and decision.id not in chosen):
            continue
        try:
            _remove(actor, decision.item)
            removed.append(decision)
        except (InflightError, OSError) as error:
            failed.append((decision, getattr(error, "sentence", "") or str(error)))
    cleaned = Cleaned(tuple(removed), tuple(failed))
    if removed or failed:
        detail = {"removed": [each.id for each in removed], "bytes": cleaned.bytes, "failed": len(failed)}
        audit.record(actor, "retention.cleaned", policy_row(), detail=detail)
    return cleaned


def set_pinned(actor: audit.Actor, kind: str, key: str, pinned: bool) -> None:
    """Keep an engine, a stage or a build's log from every clean-up, or let it go again. Raises NotFound."""
    require(actor, Action.OPERATE)
    verb = "pinned" if pinned else "unpinned"
    if kind == "engine":
        engine = Engine.objects.exclude(state=states.DELETED).filter(fingerprint=key).first()
        if engine is None:
            raise _unknown(kind, key)
        Engine.objects.filter(pk=engine.pk).update(pinned=pinned)
        audit.record(actor, f"engine.{verb}", engine)
    elif kind == "log":
        build = Build.objects.filter(number=_number(key)).first()
        if build is None:
            raise _unknown(kind, key)
        Build.objects.filter(pk=build.pk).update(pinned=pinned)
        audit.record(actor, f"build.log_{verb}", build)
    else:
        stage = stages.find_stage(key) if kind == "stage" and re.fullmatch(r"[0-9a-f]{64}", key) else None
        if stage is None:
            raise _unknown(kind, key)
        stages.set_pinned(key, pinned)
        audit.record(actor, f"stage.{verb}", policy_row(), detail={"stage": key})


def mark_used(engine: Engine) -> None:
    """A server has loaded the engine just now. May be lost: it only makes a clean-up think it older."""
    try:
        Engine.objects.filter(pk=engine.pk).update(last_used_at=clock.now())
    except DatabaseError as error:
        log.warning("That %s was used could not be written: %s", engine, error)


def run_scheduled() -> Cleaned | None:
    """Once a day, where the policy says so; None where nothing was due."""
    row = policy_row()
    now = clock.now()
    if not row.enabled or (row.last_run_at is not None and now - row.last_run_at < EVERY):
        return None
    due = RetentionPolicy.objects.filter(pk=row.pk, last_run_at=row.last_run_at)
    if not due.update(last_run_at=now):
        return None
    return clean_up(ACTOR)


def _inventory(kinds: tuple[Kind, ...]) -> list[Item]:
    found: list[Item] = []
    if "engine" in kinds:
        found += _engines()
    if "stage" in kinds:
        found += _stages()
    if "log" in kinds:
        found += _logs()
    return found


def _engines() -> list[Item]:
    rows = Engine.objects.exclude(state=states.DELETED).select_related("checkpoint")
    groups: dict[int, str] = {}
    of_profile = Build.objects.filter(engine__in=rows, profile__isnull=False)
    for engine_id, name in of_profile.order_by("number").values_list("engine_id", "profile__name"):
        groups[engine_id] = name
    active = set(Build.objects.filter(state__in=states.BUILD.active).values_list("fingerprint", flat=True))
    return [
        Item(
            kind="engine",
            key=row.fingerprint,
            title=f"{row.checkpoint.name} {row.quantization}",
            path=row.path,
            size_bytes=row.size_bytes,
            last_used_at=row.last_used_at or row.created_at,
            used_by=tuple(users_of(row)) + ((_("a build"),) if row.fingerprint in active else ()),
            pinned=row.pinned,
            group=groups.get(row.pk, ""),
        )
        for row in rows
    ]


def _stages() -> list[Item]:
    active = set(Build.objects.filter(state__in=states.BUILD.active).values_list("number", flat=True))
    # Which stage a running build will read is known to its worker alone, so while one runs all are in use.
    used = tuple(_("build #%(number)s") % {"number": number} for number in sorted(active))
    return [
        Item(
            kind="stage",
            key=stage.key,
            title=_("%(stage)s of build #%(number)s") % {"stage": stage.name, "number": stage.build or "?"},
            path=str(stage.path),
            size_bytes=stage.size_bytes,
            last_used_at=datetime.fromtimestamp(stage.used_at, UTC),
            used_by=used,
            pinned=stage.pinned,
        )
        for stage in stages.kept_stages()
    ]


def _logs() -> list[Item]:
    root = Path(settings.INFLIGHT_HOME) / "builds"
    found = [
        (folder, match)
        for folder in (root.iterdir() if root.is_dir() else ())
        if (match := _ATTEMPT.fullmatch(folder.name)) is not None and folder.is_dir()
    ]
    numbers = {int(match["number"]) for _folder, match in found}
    rows = {row.number: row for row in Build.objects.filter(number__in=numbers).only(*_LOG_COLUMNS)}
    return [_log(folder, rows.get(int(match["number"]))) for folder, match in found]


_LOG_COLUMNS = ("number", "state", "finished_at", "pinned")


def _log(folder: Path, row: Build | None) -> Item:
    size, newest = _measured(folder)
    used = row is not None and row.state in states.BUILD.active
    last = row.finished_at if row is not None and row.finished_at is not None else None
    return Item(
        kind="log",
        key=folder.name,
        title=_("log of build #%(build)s") % {"build": folder.name.replace("-", _(", attempt "))},
        path=str(folder),
        size_bytes=size,
        last_used_at=last or datetime.fromtimestamp(newest, UTC),
        used_by=(_("the running build"),) if used else (),
        pinned=row is not None and row.pinned,
    )


def _measured(folder: Path) -> tuple[int, float]:
    """Bytes of all files, and when the newest was written."""
    size, newest = 0, 0.0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            size += status.st_size if path.is_file() and not path.is_symlink() else 0
            newest = max(newest, status.st_mtime)
    with contextlib.suppress(OSError):
        newest = newest or folder.stat().st_mtime
    return size, newest


def _remove(actor: audit.Actor, item: Item) -> None:
    if item.kind == "engine":
        delete_engine(actor, Engine.objects.exclude(state=states.DELETED).get(fingerprint=item.key))
        return
    if item.kind == "stage":
        stages.remove_stage(item.key)
    else:
        shutil.rmtree(paths.build_folder(*_attempt(item.key)))
        Build.objects.filter(log_path__startswith=f"{item.path}/").update(log_path="")


def _attempt(key: str) -> tuple[int, int]:
    match = _ATTEMPT.fullmatch(key)
    if match is None:
        raise _unknown("log", key)
    return int(match["number"]), int(match["attempt"])


def _number(key: str) -> int:
    """Number of a build by itself or as one of its attempts."""
    return int(key) if re.fullmatch(r"\d{1,9}", key) else _attempt(key)[0]


def _unknown(kind: str, key: str) -> NotFound:
    return NotFound(
        "nothing_to_keep",
        _("There is no %(kind)s %(key)s.") % {"kind": kind, "key": key},
        remedy=_("See the clean-up page for what there is."),
    )
