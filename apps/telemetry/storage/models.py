"""Rows of stored steps, and where the counters stood when they were written."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class ScopeKind(models.IntegerChoices):
    """What a step describes."""

    FLEET = 0, _("fleet")
    DEPLOYMENT = 1, _("deployment")
    INSTANCE = 2, _("instance")
    GPU = 3, _("GPU")
    NODE = 4, _("node")


class Rollup(models.Model):
    """One step of one object: `step` seconds from epoch second `at` (a multiple of it). `data`: domain/rollup.py.

    The objects are named by number and not by foreign key: history outlives them until it is pruned.
    """

    scope = models.PositiveSmallIntegerField(_("scope"), choices=ScopeKind.choices)
    scope_id = models.BigIntegerField(_("object"))
    step = models.PositiveSmallIntegerField(_("step (seconds)"))
    at = models.BigIntegerField(_("begins (epoch)"))
    data = models.BinaryField(_("figures"))

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["scope", "scope_id", "step", "at"], name="one_rollup_per_step")
        ]
        indexes = [models.Index(fields=["step", "at"], name="rollup_by_age")]
        verbose_name = _("stored step")

    def __str__(self) -> str:
        return f"{self.get_scope_display()} {self.scope_id}, {self.step} s at {self.at}"


class Mark(models.Model):
    """Something the telemetry process needs again after a restart, by name; `at` is the epoch second it is of."""

    name = models.CharField(_("name"), max_length=60, unique=True)
    at = models.FloatField(_("at (epoch)"))
    data = models.BinaryField(_("data"))

    class Meta:
        verbose_name = _("mark")

    def __str__(self) -> str:
        return self.name
