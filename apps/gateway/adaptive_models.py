"""What adaptive batching moves for a deployment, and where its levers stand."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.serving.models import Deployment


class AdaptiveAdmission(models.Model):
    """Settings and state of one deployment's adaptive admission; without a row it is off.

    `settings` is adaptive.AdaptiveFields. `admitted` bounds the requests that each server computes at once,
    `queue` those that wait for it in the gateway; null: not bounded by this. `memory` is what the controller
    remembers between two looks. Each move is an audit row of the deployment (`deployment.adapted`).
    """

    kind = "adaptiveadmission"

    deployment = models.OneToOneField(Deployment, on_delete=models.CASCADE, related_name="adaptive")
    enabled = models.BooleanField(_("on"), default=False)
    settings = models.JSONField(_("settings"), default=dict)
    admitted = models.PositiveIntegerField(_("requests at once, a server"), null=True, blank=True)
    queue = models.PositiveIntegerField(_("requests that may wait"), null=True, blank=True)
    memory = models.JSONField(default=dict, blank=True)
    looked_at = models.DateTimeField(_("looked"), null=True, blank=True)
    moved_at = models.DateTimeField(_("moved"), null=True, blank=True)
    sentence = models.TextField(_("what it sees"), blank=True)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        verbose_name = _("adaptive admission")

    def __str__(self) -> str:
        return self.deployment.name
