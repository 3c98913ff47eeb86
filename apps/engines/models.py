"""Build profiles, builds and engines."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.core.models import StatusModel
from apps.core.names import validate_name
from apps.engines import states
from apps.fleet.models import Gpu, Node
from apps.registry.models import Checkpoint


class Quantization(models.TextChoices):
    """Weight types that the llamacpp builder writes."""

    F16 = "F16", "F16"
    BF16 = "BF16", "BF16"
    Q8_0 = "Q8_0", "Q8_0"
    Q5_1 = "Q5_1", "Q5_1"
    Q5_0 = "Q5_0", "Q5_0"
    Q4_1 = "Q4_1", "Q4_1"
    Q4_0 = "Q4_0", "Q4_0"


class BuildProfile(models.Model):
    """How an engine is made: from which checkpoint, by which builder, with which weight type."""

    kind = "buildprofile"

    class Builder(models.TextChoices):
        """Which implementation of the EngineBuilder seam."""

        LLAMACPP = "llamacpp", "llama.cpp (GGUF)"

    name = models.CharField(_("name"), max_length=63, unique=True, validators=[validate_name])
    builder = models.CharField(_("builder"), max_length=20, choices=Builder.choices, default=Builder.LLAMACPP)
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="build_profiles")
    quantization = models.CharField(
        _("quantization"), max_length=10, choices=Quantization.choices, default=Quantization.F16
    )
    options = models.JSONField(_("options"), default=dict, blank=True)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name = _("build profile")

    def __str__(self) -> str:
        return self.name


class Engine(StatusModel):
    """A built artefact, content-addressed by the fingerprint of its inputs. `manifest` is the file's content."""

    machine = states.ENGINE
    kind = "engine"

    fingerprint = models.CharField(_("fingerprint"), max_length=64, db_index=True)
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="engines")
    builder = models.CharField(_("builder"), max_length=20)
    quantization = models.CharField(_("quantization"), max_length=10)
    node = models.ForeignKey(Node, null=True, on_delete=models.SET_NULL, related_name="engines")
    path = models.CharField(_("folder"), max_length=1000)
    size_bytes = models.BigIntegerField(_("size (bytes)"))
    manifest = models.JSONField(_("manifest"), default=dict)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            # A deleted engine stays as history; the same input may be built again.
            models.UniqueConstraint(
                fields=["fingerprint"],
                condition=~models.Q(state="deleted"),
                name="one_engine_per_fingerprint",
            )
        ]
        verbose_name = _("engine")

    def __str__(self) -> str:
        return f"{self.checkpoint.name} {self.quantization} ({self.fingerprint[:8]})"


class Build(StatusModel):
    """One attempt to make an engine. `spec` is the frozen input, so a later profile edit changes nothing here.

    `attempt` is the fencing number: it grows at each claim, and every write of a worker carries it.
    `stages` is [{name, title, state: waiting|running|done|failed|skipped, started_at, finished_at, argv}].
    `progress` is 0..1 over the whole build, null where it cannot be told; `eta_seconds` likewise.
    """

    machine = states.BUILD
    kind = "build"

    profile = models.ForeignKey(BuildProfile, null=True, on_delete=models.SET_NULL, related_name="builds")
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="builds")
    number = models.PositiveIntegerField(_("number"), unique=True)
    spec = models.JSONField(_("specification"))
    fingerprint = models.CharField(_("fingerprint"), max_length=64, db_index=True)
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    engine = models.ForeignKey(
        Engine, null=True, blank=True, on_delete=models.SET_NULL, related_name="builds"
    )
    reused = models.BooleanField(_("reused an engine"), default=False)

    attempt = models.PositiveIntegerField(_("attempt"), default=0)
    retries = models.PositiveIntegerField(_("retries"), default=0)
    node = models.ForeignKey(Node, null=True, blank=True, on_delete=models.SET_NULL, related_name="builds")
    gpu = models.ForeignKey(Gpu, null=True, blank=True, on_delete=models.SET_NULL, related_name="builds")
    lease_expires_at = models.DateTimeField(_("lease expires"), null=True, blank=True)
    cancel_requested_at = models.DateTimeField(_("cancel requested"), null=True, blank=True)
    dispatched_at = models.DateTimeField(_("last dispatched"), null=True, blank=True)
    child_pid = models.PositiveIntegerField(_("child process"), null=True, blank=True)
    child_created = models.FloatField(_("child create time"), null=True, blank=True)
    child_group = models.PositiveIntegerField(_("child process group"), null=True, blank=True)

    stages = models.JSONField(_("stages"), default=list)
    progress = models.FloatField(_("progress"), null=True, blank=True)
    rate_bytes_per_second = models.FloatField(_("rate (B/s)"), null=True, blank=True)
    eta_seconds = models.FloatField(_("ETA (s)"), null=True, blank=True)
    log_path = models.CharField(_("log"), max_length=1000, blank=True)
    diagnosis = models.JSONField(_("diagnosis"), null=True, blank=True)
    started_at = models.DateTimeField(_("started"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)

    class Meta:
        ordering = ["-number"]
        constraints = [
            # Two presses of the button make one build.
            models.UniqueConstraint(
                fields=["fingerprint"],
                condition=models.Q(state__in=["queued", "running"]),
                name="one_active_build_per_fingerprint",
            )
        ]
        verbose_name = _("build")

    def __str__(self) -> str:
        return f"#{self.number} {self.spec.get('checkpoint', '')} {self.spec.get('quantization', '')}".strip()


class MemoryMeasurement(models.Model):
    """One figure that was predicted and then measured, in bytes (for kv_tokens: tokens).

    `predicted` and its range are what the plan says with what was known then; `formula_bytes` is the uncalibrated
    formula, of which `measured / formula_bytes` calibrates later plans. `source` says where `measured` was read: the
    engine's log, /proc, or files; never the planner. `subject` is "build:<number>" or the uid of the serving
    instance, `gpu_kind` the product name of its slot, `version` the engine's runtime.
    """

    kind = "memorymeasurement"

    class Event(models.TextChoices):
        """What was going on."""

        BUILD = "build", _("build")
        LOAD = "load", _("load")

    event = models.CharField(_("event"), max_length=10, choices=Event.choices)
    engine = models.ForeignKey(Engine, on_delete=models.CASCADE, related_name="measurements")
    build = models.ForeignKey(
        Build, null=True, blank=True, on_delete=models.CASCADE, related_name="measurements"
    )
    subject = models.CharField(_("subject"), max_length=60, db_index=True)
    attempt = models.PositiveIntegerField(_("attempt"), default=0)
    term = models.CharField(_("term"), max_length=20)
    predicted = models.BigIntegerField(_("predicted"), null=True, blank=True)
    predicted_low = models.BigIntegerField(_("low end"), null=True, blank=True)
    predicted_high = models.BigIntegerField(_("high end"), null=True, blank=True)
    formula_bytes = models.BigIntegerField(_("by the formula alone"), null=True, blank=True)
    measured = models.BigIntegerField(_("measured"))
    source = models.CharField(_("measured by"), max_length=20)
    version = models.CharField(_("runtime version"), max_length=60, blank=True)
    gpu_kind = models.CharField(_("GPU kind"), max_length=120, blank=True)
    created_at = models.DateTimeField(_("measured at"), auto_now_add=True)

    class Meta:
        ordering = ["-created_at", "term"]
        constraints = [
            models.UniqueConstraint(fields=["subject", "attempt", "term"], name="one_measurement_per_term")
        ]
        indexes = [models.Index(fields=["term", "gpu_kind", "version", "-created_at"])]
        verbose_name = _("memory measurement")

    def __str__(self) -> str:
        return f"{self.event} {self.term}: {self.measured}"

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured; None where nothing was predicted or measured."""
        if self.predicted is None or not self.measured:
            return None
        return (self.predicted - self.measured) / self.measured
