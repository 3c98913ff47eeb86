"""Rows of hosts that join: tokens that let one in, and the door through which the others reach it."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _


class JoinToken(models.Model):
    """Lets one new host join, once, until it expires. Shown once when made; only its SHA-256 is kept.

    `used_by` is the node id that came with it, `used_from` the host name that it told.
    """

    kind = "jointoken"

    prefix = models.CharField(_("begins with"), max_length=12, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    labels = models.JSONField(_("labels of the node"), default=dict, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="join_tokens"
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    expires_at = models.DateTimeField(_("expires"))
    used_at = models.DateTimeField(_("used"), null=True, blank=True)
    used_by = models.CharField(_("node"), max_length=40, blank=True)
    used_from = models.CharField(_("host name"), max_length=200, blank=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        verbose_name = _("join token")

    def __str__(self) -> str:
        return f"{self.prefix}…"


class NodeDoor(models.Model):
    """Where the node's proxy listens for the other hosts, and the certificate that it shows (PEM, self-signed)."""

    node = models.OneToOneField("fleet.Node", on_delete=models.CASCADE, related_name="door")
    host = models.CharField(_("address"), max_length=253)
    port = models.PositiveIntegerField(_("port"))
    certificate = models.TextField(_("certificate"))
    opened_at = models.DateTimeField(_("opened"), auto_now=True)

    class Meta:
        verbose_name = _("node's door")

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
