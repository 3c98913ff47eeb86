"""Checkpoints."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.core.models import StatusModel
from apps.core.names import validate_name
from apps.registry import states


class Checkpoint(StatusModel):
    """Source weights as the vendor ships them.

    `source` is one of {"demo": name} | {"path": absolute path} | {"archive": absolute path} |
    {"huggingface": {"repo":, "revision":, "files": [...]}}, each with "pickle": true where pickle files are accepted.
    `path` is the resolved file or folder, `facts` what its headers say (registry.domain), null where unknown.

    What must be fetched: `commit` is what the revision named when it was first asked, `folder` where the files are
    published (it exists only when they are whole), `offered` [{name, size_bytes}] where a person has to choose.
    `attempt` is the fencing number: it grows at each claim, and every write of a worker carries it.
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

    commit = models.CharField(_("commit"), max_length=64, blank=True, editable=False)
    folder = models.CharField(_("fetched into"), max_length=1000, blank=True, editable=False)
    offered = models.JSONField(_("files to choose from"), default=list, blank=True, editable=False)
    node_id = models.CharField(_("node"), max_length=40, blank=True, editable=False)
    attempt = models.PositiveIntegerField(_("attempt"), default=0, editable=False)
    retries = models.PositiveIntegerField(_("retries"), default=0, editable=False)
    lease_expires_at = models.DateTimeField(_("lease expires"), null=True, blank=True, editable=False)
    cancel_requested_at = models.DateTimeField(_("cancel requested"), null=True, blank=True, editable=False)
    dispatched_at = models.DateTimeField(_("last dispatched"), null=True, blank=True, editable=False)
    not_before = models.DateTimeField(_("not tried before"), null=True, blank=True, editable=False)
    child_pid = models.PositiveIntegerField(_("child process"), null=True, blank=True, editable=False)
    child_created = models.FloatField(_("child create time"), null=True, blank=True, editable=False)
    child_group = models.PositiveIntegerField(_("child process group"), null=True, blank=True, editable=False)
    bytes_done = models.BigIntegerField(_("bytes done"), null=True, blank=True, editable=False)
    bytes_total = models.BigIntegerField(_("bytes in all"), null=True, blank=True, editable=False)
    rate_bytes_per_second = models.FloatField(_("rate (B/s)"), null=True, blank=True, editable=False)
    eta_seconds = models.FloatField(_("ETA (s)"), null=True, blank=True, editable=False)
    log_path = models.CharField(_("log"), max_length=1000, blank=True, editable=False)
    started_at = models.DateTimeField(_("started"), null=True, blank=True, editable=False)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True, editable=False)

    class Meta:
        ordering = ["name"]
        verbose_name = _("checkpoint")

    def __str__(self) -> str:
        return self.name

    @property
    def is_fetched(self) -> bool:
        """Whether its files come from elsewhere and lie in a folder of ours."""
        return "archive" in self.source or (
            "huggingface" in self.source and bool(self.folder or not self.path)
        )

    @property
    def progress(self) -> float | None:
        """Share of the bytes that are here, 0 to 1; None where nobody can tell."""
        if self.bytes_done is None or not self.bytes_total:
            return None
        return min(1.0, self.bytes_done / self.bytes_total)


class HubAccess(models.Model):
    """How hubs are asked: one row. The token is kept encrypted (core.secrets) and never shown again.

    `endpoint` is a mirror's address; empty: the library's own default.
    """

    kind = "hub_access"

    endpoint = models.CharField(_("mirror"), max_length=500, blank=True)
    token_encrypted = models.TextField(_("token"), blank=True, editable=False)
    token_set_at = models.DateTimeField(_("token set"), null=True, blank=True, editable=False)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        verbose_name = _("hub access")
        verbose_name_plural = _("hub access")

    def __str__(self) -> str:
        return str(_("hub access"))

    @property
    def has_token(self) -> bool:
        """Whether a token is kept."""
        return bool(self.token_encrypted)
