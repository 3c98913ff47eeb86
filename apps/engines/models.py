"""Quantization profiles, build profiles, builds and engines."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.core.models import StatusModel
from apps.core.names import validate_name
from apps.engines import states
from apps.engines.retention_models import RetentionPolicy as RetentionPolicy
from apps.fleet.models import Gpu, Node
from apps.registry.models import Checkpoint

# Columns of a build that repeat what its specification says.
REPEATED = ("builder", "recipe", "quantization")


class Quantization(models.TextChoices):
    """Weight types that the llamacpp builder writes."""

    F16 = "F16", "F16"
    BF16 = "BF16", "BF16"
    Q8_0 = "Q8_0", "Q8_0"
    Q5_1 = "Q5_1", "Q5_1"
    Q5_0 = "Q5_0", "Q5_0"
    Q4_1 = "Q4_1", "Q4_1"
    Q4_0 = "Q4_0", "Q4_0"


class QuantizationProfile(models.Model):
    """How a TensorRT-LLM build stores weights and KV cache; several build profiles may share one.

    Fields are those of domain.trtllm.request.Quantization. Calibration texts are counted, lengths are tokens.
    `options` are flags of quantize.py that no field has, only where they differ from the program's default.
    """

    kind = "quantizationprofile"

    class Format(models.TextChoices):
        """What weights become."""

        NONE = "none", _("none: as the checkpoint has them")
        FP8 = "fp8", "FP8"
        FP8_ROWWISE = "fp8_rowwise", _("FP8 by row")
        NVFP4 = "nvfp4", "NVFP4"
        INT8_SQ = "int8_sq", "INT8 SmoothQuant"
        INT4_AWQ = "int4_awq", "INT4 AWQ"
        W4A8_AWQ = "w4a8_awq", "W4A8 AWQ"
        INT8_WO = "int8_wo", _("INT8 weights only")
        INT4_WO = "int4_wo", _("INT4 weights only")
        GPTQ = "gptq", _("GPTQ, quantised already")
        GPTQ_INT8 = "gptq_int8", _("GPTQ in 8 bit, quantised already")
        AWQ = "awq", _("AWQ, quantised already")
        QSERVE = "qserve", "QServe W4A8"

    class KvCache(models.TextChoices):
        """What the KV cache is stored as."""

        AUTO = "auto", _("16 bit")
        FP8 = "fp8", "FP8"
        INT8 = "int8", "INT8"

    name = models.CharField(_("name"), max_length=63, unique=True, validators=[validate_name])
    format = models.CharField(_("format"), max_length=20, choices=Format.choices, default=Format.FP8)
    kv_cache_dtype = models.CharField(
        _("KV cache type"), max_length=10, choices=KvCache.choices, default=KvCache.AUTO
    )
    calib_dataset = models.CharField(_("calibration set"), max_length=500, default="cnn_dailymail")
    calib_size = models.IntegerField(
        _("calibration size (texts)"),
        default=512,
        validators=[MinValueValidator(-1), MaxValueValidator(100_000)],
    )
    calib_max_seq_length = models.PositiveIntegerField(
        _("length of a text (tokens)"),
        default=512,
        validators=[MinValueValidator(1), MaxValueValidator(1_000_000)],
    )
    calib_batch_size = models.PositiveIntegerField(
        _("texts at once"), default=1, validators=[MinValueValidator(1), MaxValueValidator(4096)]
    )
    group_size = models.PositiveIntegerField(
        _("group size"), default=128, validators=[MinValueValidator(1), MaxValueValidator(4096)]
    )
    smoothquant = models.FloatField(
        _("SmoothQuant strength"), default=0.5, validators=[MinValueValidator(0), MaxValueValidator(1)]
    )
    per_channel = models.BooleanField(_("weight scales by channel"), default=True)
    per_token = models.BooleanField(_("activation scales by token"), default=True)
    quantize_lm_head = models.BooleanField(_("quantise the last layer"), default=False)
    weights = models.CharField(_("quantised weights"), max_length=1000, blank=True)
    options = models.JSONField(_("further flags"), default=dict, blank=True)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name = _("quantization profile")

    def __str__(self) -> str:
        return self.name


# An engine over more GPUs than one host has is refused elsewhere; this bounds what can be written.
RANKS = [MinValueValidator(1), MaxValueValidator(64)]


class BuildProfile(models.Model):
    """How an engine is made: from which checkpoint, by which builder, with which settings.

    `quantization` is the llama.cpp builder's weight type; empty for trtllm, whose weights `quantization_profile`
    describes (null: as the checkpoint has them). For trtllm `options` is {"build": {...}, "convert": {...}}: flags of
    trtllm-build and convert_checkpoint.py that differ from the program's default, typed by domain.trtllm's tables.
    `gpu`, `tensorrt_llm` and `toolchain` narrow where it is built; empty means any that fits. `gpus` is how many GPUs
    that host has, null where it is not known.
    """

    kind = "buildprofile"

    class Builder(models.TextChoices):
        """Which implementation of the EngineBuilder seam."""

        LLAMACPP = "llamacpp", "llama.cpp (GGUF)"
        TRTLLM = "trtllm", "TensorRT-LLM"

    class Recipe(models.TextChoices):
        """The ways of the trtllm builder."""

        AUTO = "auto", _("auto: what the host has")
        ENGINE = "engine", _("engine: convert or quantise, then compile")
        CHECKPOINT = "checkpoint", _("checkpoint: no compile, for the PyTorch backend")

    class Dtype(models.TextChoices):
        """Type of what is not quantised."""

        AUTO = "auto", _("auto: the checkpoint's own")
        FLOAT16 = "float16", "float16"
        BFLOAT16 = "bfloat16", "bfloat16"
        FLOAT32 = "float32", "float32"

    name = models.CharField(_("name"), max_length=63, unique=True, validators=[validate_name])
    builder = models.CharField(_("builder"), max_length=20, choices=Builder.choices, default=Builder.LLAMACPP)
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="build_profiles")
    quantization = models.CharField(
        _("weight type"), max_length=10, choices=Quantization.choices, default=Quantization.F16, blank=True
    )
    recipe = models.CharField(_("recipe"), max_length=12, choices=Recipe.choices, default=Recipe.AUTO)
    dtype = models.CharField(_("data type"), max_length=10, choices=Dtype.choices, default=Dtype.AUTO)
    quantization_profile = models.ForeignKey(
        QuantizationProfile,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="build_profiles",
        verbose_name=_("quantization profile"),
    )
    tp = models.PositiveIntegerField(_("tensor parallel ranks"), default=1, validators=RANKS)
    pp = models.PositiveIntegerField(_("pipeline ranks"), default=1, validators=RANKS)
    cp = models.PositiveIntegerField(_("context parallel ranks"), default=1, validators=RANKS)
    moe_ep = models.PositiveIntegerField(_("expert parallel ranks"), default=1, validators=RANKS)
    gpu = models.CharField(_("GPU"), max_length=60, blank=True)
    gpus = models.PositiveIntegerField(_("GPUs of the host"), null=True, blank=True, validators=RANKS)
    tensorrt_llm = models.CharField(_("TensorRT-LLM release"), max_length=30, blank=True)
    toolchain = models.CharField(_("toolchain"), max_length=100, blank=True)
    options = models.JSONField(_("options"), default=dict, blank=True)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name = _("build profile")

    def __str__(self) -> str:
        return self.name

    @property
    def weight_format(self) -> str:
        """What weights become, in the words of its builder; `none` where they stay."""
        if self.builder == self.Builder.LLAMACPP:
            return self.quantization
        return self.quantization_profile.format if self.quantization_profile else "none"

    @property
    def world_size(self) -> int:
        """Processes, and GPUs, that serve one copy of the engine."""
        return self.tp * self.pp * self.cp


class Engine(StatusModel):
    """A built artefact, content-addressed by the fingerprint of its inputs. `manifest` is the file's content.

    An imported engine was built elsewhere: its fingerprint is that of its files, and its manifest says what was read
    from them and what nobody knows. `last_used_at` is the last load by a server; null: never loaded. A pinned engine
    is kept by every clean-up.
    """

    machine = states.ENGINE
    kind = "engine"

    class Provenance(models.TextChoices):
        """Who made it."""

        BUILT = "built", _("built here")
        IMPORTED = "imported", _("imported")

    fingerprint = models.CharField(_("fingerprint"), max_length=64, db_index=True)
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="engines")
    builder = models.CharField(_("builder"), max_length=20)
    quantization = models.CharField(_("quantization"), max_length=20)
    node = models.ForeignKey(Node, null=True, on_delete=models.SET_NULL, related_name="engines")
    path = models.CharField(_("folder"), max_length=1000)
    size_bytes = models.BigIntegerField(_("size (bytes)"))
    manifest = models.JSONField(_("manifest"), default=dict)
    provenance = models.CharField(
        _("provenance"), max_length=10, choices=Provenance.choices, default=Provenance.BUILT
    )
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True)
    pinned = models.BooleanField(_("pinned"), default=False)

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
    `progress` is 0..1 over the whole build, null where it cannot be told; `eta_seconds` likewise. `builder`, `recipe`
    and `quantization` repeat the specification's, for lists; a pinned build's log is kept by every clean-up.
    `placement` is how its slot was chosen: {"why": sentence}; while it waits {"waits": [{"why", "nodes",
    "examples"}]}.
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
    builder = models.CharField(_("builder"), max_length=20, blank=True, editable=False)
    recipe = models.CharField(_("recipe"), max_length=12, blank=True, editable=False)
    quantization = models.CharField(_("quantization"), max_length=20, blank=True, editable=False)
    pinned = models.BooleanField(_("pinned"), default=False)

    attempt = models.PositiveIntegerField(_("attempt"), default=0)
    retries = models.PositiveIntegerField(_("retries"), default=0)
    node = models.ForeignKey(Node, null=True, blank=True, on_delete=models.SET_NULL, related_name="builds")
    gpu = models.ForeignKey(Gpu, null=True, blank=True, on_delete=models.SET_NULL, related_name="builds")
    placement = models.JSONField(_("place"), default=dict, blank=True)
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
        indexes = [
            # A list is filtered by one of these and shows the newest first.
            models.Index(fields=["state", "-number"]),
            models.Index(fields=["checkpoint", "-number"]),
            models.Index(fields=["builder", "recipe", "-number"]),
            models.Index(fields=["quantization", "-number"]),
            models.Index(fields=["node", "-number"]),
            models.Index(fields=["requested_by", "-number"]),
            models.Index(fields=["profile", "-number"]),
            models.Index(fields=["-created_at"]),
        ]
        verbose_name = _("build")

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save with the columns that repeat the specification."""
        for name in REPEATED:
            if not getattr(self, name):
                setattr(self, name, str((self.spec or {}).get(name) or ""))
        super().save(*args, **kwargs)

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
