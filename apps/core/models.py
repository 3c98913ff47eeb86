"""The audit trail, and the columns that every object with a status has."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.core.states import StateMachine


class AuditEntry(models.Model):
    """One thing that happened: who, what, to which object, from which state to which, and why.

    Written by services and transitions, never edited; `actor` is null for what the system did itself. `about` names
    the object to whose history it belongs as well, which may outlive the one that it happened to ("deployment:3").
    """

    at = models.DateTimeField(_("at"), auto_now_add=True, db_index=True)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL)
    actor_label = models.CharField(_("who"), max_length=150)
    verb = models.CharField(_("action"), max_length=60)
    object_type = models.CharField(_("object type"), max_length=60)
    object_id = models.CharField(_("object id"), max_length=64)
    object_label = models.CharField(_("object"), max_length=200)
    about = models.CharField(_("part of"), max_length=64, blank=True, default="")
    from_state = models.CharField(_("from"), max_length=30, blank=True)
    to_state = models.CharField(_("to"), max_length=30, blank=True)
    reason = models.CharField(_("reason"), max_length=60, blank=True)
    sentence = models.TextField(_("what happened"), blank=True)
    detail = models.JSONField(_("detail"), default=dict, blank=True)

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [
            models.Index(fields=["object_type", "object_id", "-at"]),
            models.Index(fields=["about", "-at"], condition=~models.Q(about=""), name="audit_about"),
        ]
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit entries")

    def __str__(self) -> str:
        return f"{self.verb} {self.object_type} {self.object_label}"


class StatusModel(models.Model):
    """Base of every row with a status. Only `apps.core.transitions` writes `state` and `version`.

    `reason` is machine-readable and empty while all is well; `sentence` and `remedy` are what a person reads.
    """

    machine: ClassVar[StateMachine]
    # Name of the kind in audit rows and live topics, for example "build".
    kind: ClassVar[str]

    state = models.CharField(_("state"), max_length=30, db_index=True)
    version = models.PositiveBigIntegerField(_("version"), default=1, editable=False)
    reason = models.CharField(_("reason"), max_length=60, blank=True)
    sentence = models.TextField(_("what happened"), blank=True)
    remedy = models.TextField(_("remedy"), blank=True)
    state_since = models.DateTimeField(_("in this state since"), auto_now_add=True)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        abstract = True

    @property
    def is_active(self) -> bool:
        """Whether work is going on or expected for this row."""
        return self.state in self.machine.active

    @property
    def is_terminal(self) -> bool:
        """Whether the row will never change its state again."""
        return self.state in self.machine.terminal

    @property
    def tone(self) -> str:
        """Colour family of the state chip: ok, busy, warn, bad or idle."""
        return self.machine.tones.get(self.state, "idle")
