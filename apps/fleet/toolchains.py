"""Toolchains of nodes: asked for by people, probed and written by the node's own control worker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db import transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit, clock
from apps.core.exceptions import NotFound
from apps.core.transitions import amend
from apps.fleet.domain.toolchain_argv import Place
from apps.fleet.domain.toolchain_file import GIB, Offer
from apps.fleet.domain.toolchain_report import Judgement, Report
from apps.fleet.models import Node, Toolchain


@dataclass(frozen=True, slots=True)
class Probed:
    """What a probe found out about one offer. `report` is None where it said nothing usable."""

    offer: Offer
    program: str
    report: Report | None
    judgement: Judgement
    log_path: str = ""


def probe_toolchains(actor: audit.Actor, node: Node) -> Node:
    """Ask the node to look at its toolchains again; its control worker does within seconds. Needs operate."""
    require(actor, Action.OPERATE)
    with transaction.atomic():
        if amend(node, probe_asked_at=clock.now()):
            audit.record(actor, "node.probe", node)
    return node


def record_toolchains(node: Node, found: Iterable[Probed], problem: str = "") -> None:
    """Write what the probes said; toolchains that the node offers no more are forgotten.

    `problem`: the node's file cannot be read; its toolchains as last known then stay.
    """
    with transaction.atomic():
        names = []
        for probed in found:
            names.append(probed.offer.name)
            _write(node, probed)
        if not problem:
            node.toolchains.exclude(name__in=names).delete()
        amend(node, probed_at=clock.now(), toolchains_problem=problem)


def toolchain(node_id: str, name: str) -> Toolchain:
    """One toolchain of a node. Raises NotFound."""
    found = Toolchain.objects.select_related("node").filter(node__node_id=node_id, name=name).first()
    if found is None:
        raise NotFound(
            "toolchain_unknown",
            _("Node %(node)s has no toolchain %(name)s.") % {"node": node_id, "name": name},
            field="toolchain",
            remedy=_("Choose one of those on the node's page, or probe it again."),
        )
    return found


def place_of(row: Toolchain, user: str = "") -> Place:
    """The toolchain as its commands are wrapped. `user` is uid:gid of the worker."""
    native = row.how == Toolchain.Kind.NATIVE
    return Place(
        kind=row.how,  # type: ignore[arg-type]
        python=row.location if native else "",
        image="" if native else row.location,
        program=row.program,
        shared_memory_bytes=row.shared_memory_bytes,
        user=user,
    )


def container_programs(node: Node | None) -> list[str]:
    """Container programs that the node's toolchains use."""
    if node is None:
        return []
    return sorted(set(node.toolchains.exclude(program="").values_list("program", flat=True)))


def _write(node: Node, probed: Probed) -> None:
    offer, report = probed.offer, probed.report
    Toolchain.objects.update_or_create(
        node=node,
        name=offer.name,
        defaults={
            "how": offer.kind,
            "location": offer.location,
            "program": probed.program,
            "examples": offer.examples,
            "shared_memory_bytes": offer.shared_memory_gib * GIB,
            "versions": report.versions if report else {},
            "recipes": list(probed.judgement.recipes),
            "gpus": [gpu.model_dump(mode="json") for gpu in report.gpus] if report else [],
            "problem": probed.judgement.problem,
            "remedy": probed.judgement.remedy,
            "log_path": probed.log_path,
            "probed_at": clock.now(),
        },
    )
