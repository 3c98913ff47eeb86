"""What the page of one build shows beside its row: commands, remedies, history, whether it fits each node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import F, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l
from django.utils.translation import ngettext

from apps.dashboard import formats
from apps.dashboard.flag_help import flags_of
from apps.engines.compatibility import engine_hosts
from apps.engines.domain.build_comparison import Comparison
from apps.engines.domain.compatibility import Verdict
from apps.engines.models import Build, Engine
from apps.fleet.models import Node

HISTORY = 8
TONES: dict[Verdict, str] = {"ok": "ok", "warn": "warn", "refuse": "bad"}
SECTIONS = {
    "specification": _l("What was asked for"),
    "versions": _l("Versions"),
    "host": _l("Where it was built"),
    "command": _l("Commands"),
    "result": _l("What came of it"),
}


@dataclass(frozen=True, slots=True)
class Command:
    """One stage's command with what its flags do."""

    title: str
    argv: tuple[str, ...]
    flags: dict[str, str]


@dataclass(frozen=True, slots=True)
class Fit:
    """A node and whether an engine runs there; `told` is the reason, `rebuild` whether a build would help."""

    node: Node
    verdict: Verdict
    tone: str
    told: str
    rebuild: bool


def commands(row: Build) -> list[Command]:
    """The exact commands of the last attempt, in their order."""
    found = []
    for stage in row.stages:
        argv = tuple(str(part) for part in stage.get("argv") or ())
        if argv:
            found.append(Command(str(stage.get("title") or stage.get("name", "")), argv, flags_of(argv)))
    return found


def history(row: Build) -> QuerySet[Build]:
    """The newest builds of the same profile, this one among them."""
    rows = Build.objects.filter(profile=row.profile).select_related("engine").defer("spec", "diagnosis")
    return rows.annotate(bytes=F("engine__size_bytes")).order_by("-number")[:HISTORY]


def fits(engine: Engine) -> list[Fit]:
    """Whether the engine runs on each node that takes work."""
    nodes = Node.objects.prefetch_related("toolchains", "gpus").filter(cordoned=False)
    found = []
    for node, answer in engine_hosts(engine, nodes):
        first = answer.first
        told = first.message if first is not None else _("It runs here.")
        found.append(Fit(node, answer.verdict, TONES[answer.verdict], told, answer.verdict != "ok"))
    return found


def unfit(engine: Engine) -> list[Fit]:
    """The nodes on which the engine does not run, or on which nobody can tell."""
    return [fit for fit in fits(engine) if fit.rebuild]


def newest_build(engine: Engine) -> int | None:
    """Number of the newest build that gave this engine; None for an import without one."""
    return engine.builds.order_by("-number").values_list("number", flat=True).first()


def verdict(found: Comparison) -> str:
    """The first sentence of the comparison."""
    asked = sum(each.section != "result" for each in found.differences)
    if not asked:
        return _("Both were asked for the same, with the same versions.")
    return ngettext(
        "One thing differs in what was asked for, versions and commands.",
        "%(n)s things differ in what was asked for, versions and commands.",
        asked,
    ) % {"n": asked}


def sections(found: Comparison) -> list[dict[str, Any]]:
    """Differences by section, sizes and times as people read them."""
    groups = []
    for name, title in SECTIONS.items():
        rows = [
            {"name": each.name, "left": _shown(each.name, each.left), "right": _shown(each.name, each.right)}
            for each in found.differences
            if each.section == name
        ]
        if rows:
            groups.append({"name": name, "title": str(title), "rows": rows})
    return groups


def _shown(name: str, value: Any) -> str:
    if value is None:
        return formats.ABSENT
    if name == "size_bytes":
        return str(formats.filesize(value))
    if name == "seconds":
        return formats.duration(value)
    if value is True:
        return _("given")
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def diagnosis_of(row: Build) -> Mapping[str, Any]:
    """The diagnosis of the row, whatever wrote it; empty where there is none."""
    found = row.diagnosis or {}
    return found.get("diagnosis", found) or {}
