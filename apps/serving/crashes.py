"""What is kept of every server that ended on its own: longer than its row, its folder and its deployment."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from apps.core import clock
from apps.serving.models import CrashReport, Instance

# For each deployment; the newest ones stay for ever. A loop at its slowest ends 288 times a day.
KEPT_REPORTS = 200


def reports() -> QuerySet[CrashReport]:
    """All of them, newest first."""
    return CrashReport.objects.all()


def keep(row: Instance, was: str, gpus: list[dict[str, Any]] | None) -> CrashReport:
    """Write the report of an instance that has just been given up; `was` is its state before."""
    told = row.diagnosis or {}
    served = None
    if row.serving_since is not None:
        served = max(0.0, ((row.failed_at or clock.now()) - row.serving_since).total_seconds())
    report = CrashReport.objects.create(
        deployment=row.deployment,
        deployment_name=row.deployment.name,
        uid=row.uid,
        revision=row.revision.number,
        replica=row.replica,
        attempt=row.attempt,
        restarts=row.restarts,
        node=row.node.hostname if row.node else "",
        slot=f"{row.gpu.device}{row.gpu.index}" if row.gpu else "",
        server_version=row.server_version,
        was=was,
        served_seconds=served,
        reason=row.reason,
        sentence=row.sentence,
        remedy=row.remedy,
        exit_code=row.exit_code,
        log=str(told.get("log") or ""),
        gpus=gpus,
        diagnosis=told.get("diagnosis"),
    )
    older = CrashReport.objects.filter(deployment_name=row.deployment.name).order_by("-id")
    kept = list(older.values_list("pk", flat=True)[:KEPT_REPORTS])
    older.exclude(pk__in=kept).delete()
    return report


def report_dict(report: CrashReport) -> dict[str, Any]:
    """One report as plain values."""
    return {
        "id": report.pk,
        "at": report.at.isoformat(),
        "deployment": report.deployment_name,
        "uid": report.uid,
        "revision": report.revision,
        "replica": report.replica,
        "attempt": report.attempt,
        "restarts": report.restarts,
        "node": report.node or None,
        "slot": report.slot or None,
        "server_version": report.server_version or None,
        "was": report.was,
        "served_seconds": report.served_seconds,
        "reason": report.reason,
        "sentence": report.sentence,
        "remedy": report.remedy or None,
        "exit_code": report.exit_code,
        "log": report.log,
        "gpus": report.gpus,
        "diagnosis": report.diagnosis,
    }
