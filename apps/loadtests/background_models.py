"""Rows of the playground's background load. Imported by models.py."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class BackgroundLoad(models.Model):
    """A run that only keeps a deployment busy while somebody looks: `users` clients in a closed loop.

    It is stopped at `kept_until`, which the page moves on while it is open, and its run is deleted once it has ended.
    """

    kind = "backgroundload"

    run = models.OneToOneField("loadtests.LoadRun", on_delete=models.CASCADE, related_name="background")
    users = models.PositiveIntegerField(_("users"))
    kept_until = models.DateTimeField(_("kept until"))
    created_at = models.DateTimeField(_("begun"), auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]
        verbose_name = _("background load")

    def __str__(self) -> str:
        return f"{self.users} on {self.run.target}"
