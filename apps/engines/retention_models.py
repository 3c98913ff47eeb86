"""What a scheduled clean-up removes: one row, off until somebody switches it on."""

from __future__ import annotations

from typing import Any

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _


def _days(label: Any, default: int) -> models.PositiveIntegerField:  # type: ignore[type-arg]
    return models.PositiveIntegerField(
        label,
        null=True,
        blank=True,
        default=default,
        validators=[MinValueValidator(1), MaxValueValidator(3650)],
    )


class RetentionPolicy(models.Model):
    """Days without use after which a clean-up removes something; null: never. There is one row, made when needed.

    What is referenced, pinned or younger stays in any case, and of each build profile the newest `keep_newest`
    engines. `enabled` lets the sweep clean up once a day; a person may always do it by hand.
    """

    kind = "retentionpolicy"

    enabled = models.BooleanField(_("clean up once a day"), default=False)
    engines_days = _days(_("engines not used for (days)"), 30)
    stages_days = _days(_("work folders older than (days)"), 7)
    logs_days = _days(_("logs older than (days)"), 90)
    keep_newest = models.PositiveIntegerField(
        _("newest engines kept of each profile"), default=1, validators=[MaxValueValidator(100)]
    )
    last_run_at = models.DateTimeField(_("last clean-up"), null=True, blank=True, editable=False)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        verbose_name = _("retention policy")
        verbose_name_plural = _("retention policy")

    def __str__(self) -> str:
        return str(_("retention policy"))
