"""Checkpoints."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.core.models import StatusModel
from apps.core.names import validate_name
from apps.registry import states


class Checkpoint(StatusModel):
    """Source weights as the vendor ships them.

    `source` is one of {"demo": name} | {"path": absolute path} | {"huggingface": {"repo":, "revision":}}.
    `path` is the resolved file or folder, `facts` what its headers say (registry.domain), null where unknown.
    """

    machine = states.CHECKPOINT
    kind = "checkpoint"

    class Format(models.TextChoices):
        """How the weights are stored."""

        GGUF = "gguf", "GGUF"
        HUGGING_FACE = "hf", "Hugging Face"

    name = models.CharField(_("name"), max_length=63, unique=True, validators=[validate_name])
    source = models.JSONField(_("source"))
    path = models.CharField(_("path"), max_length=1000, blank=True, editable=False)
    format = models.CharField(_("format"), max_length=10, choices=Format.choices, blank=True, editable=False)
    size_bytes = models.BigIntegerField(_("size (bytes)"), null=True, blank=True, editable=False)
    sha256 = models.CharField(_("SHA-256"), max_length=64, blank=True, editable=False)
    facts = models.JSONField(_("facts"), default=dict, blank=True, editable=False)
    chat_template = models.TextField(_("chat template"), blank=True, editable=False)

    class Meta:
        ordering = ["name"]
        verbose_name = _("checkpoint")

    def __str__(self) -> str:
        return self.name
