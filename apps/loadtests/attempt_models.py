"""Columns of a row that the load worker works on by attempts: number, who asked, lease, child, progress."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.core.models import StatusModel


class AttemptedRun(StatusModel):
    """A run of the load queue. `attempt` fences as in Build; `folder` has plan, log and what was measured."""

    number = models.PositiveIntegerField(_("number"), unique=True)
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    node_id = models.CharField(_("node"), max_length=40, blank=True)
    folder = models.CharField(_("folder"), max_length=1000, blank=True)
    log_path = models.CharField(_("log"), max_length=1000, blank=True)
    attempt = models.PositiveIntegerField(_("attempt"), default=0)
    retries = models.PositiveIntegerField(_("retries"), default=0)
    lease_expires_at = models.DateTimeField(_("lease expires"), null=True, blank=True)
    dispatched_at = models.DateTimeField(_("sent to a worker"), null=True, blank=True)
    cancel_requested_at = models.DateTimeField(_("stop requested"), null=True, blank=True)
    child_pid = models.PositiveIntegerField(_("process"), null=True, blank=True)
    child_created = models.FloatField(_("process create time"), null=True, blank=True)
    child_group = models.PositiveIntegerField(_("process group"), null=True, blank=True)
    progress = models.FloatField(_("progress"), null=True, blank=True)
    eta_seconds = models.FloatField(_("seconds left"), null=True, blank=True)
    started_at = models.DateTimeField(_("started"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)

    class Meta:
        abstract = True
        ordering = ["-number"]
