"""Batching profiles, deployments, revisions and instances."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.core.exceptions import InvalidInput
from apps.core.models import StatusModel
from apps.core.names import validate_name
from apps.engines.models import Build, BuildProfile, Engine
from apps.fleet.models import Gpu, Node
from apps.registry.models import Checkpoint
from apps.serving import states
from apps.serving.domain import priority_classes
from apps.serving.domain.trtllm import settings as settings_of_trtllm


class BatchingProfile(models.Model):
    """How requests share an engine. `max_batch_size` is the number of slots of the engine."""

    kind = "batchingprofile"

    class Strategy(models.TextChoices):
        """What the engine does with requests that arrive while it works."""

        NONE = "none", _("None: one request at a time")
        STATIC = "static", _("Static: waits for a full batch, which ends together")
        DYNAMIC = "dynamic", _("Dynamic: batches what has come, each ends together")
        INFLIGHT = "inflight", _("In-flight: requests join and leave the running batch")

    class EngineKind(models.TextChoices):
        """What serves with it; which fields act depends on it."""

        LLAMACPP = "llamacpp", _("Embedded llama.cpp")
        TRTLLM = "trtllm", _("TensorRT-LLM engine (C++ backend)")
        LLMAPI = "llmapi", _("TensorRT-LLM checkpoint (PyTorch backend)")

    class TimeoutAction(models.TextChoices):
        """What Triton does with a request that waited too long."""

        REJECT = "reject", _("Refuse it")
        DELAY = "delay", _("Move it behind the others")

    name = models.CharField(_("name"), max_length=63, unique=True, validators=[validate_name])
    strategy = models.CharField(
        _("strategy"), max_length=12, choices=Strategy.choices, default=Strategy.INFLIGHT
    )
    max_batch_size = models.PositiveIntegerField(
        _("maximum batch size"), default=16, validators=[MinValueValidator(1), MaxValueValidator(256)]
    )
    max_queue_delay_microseconds = models.PositiveIntegerField(
        _("maximum queue delay (µs)"), default=0, validators=[MaxValueValidator(10_000_000)]
    )
    max_seq_len = models.PositiveIntegerField(
        _("maximum sequence length (tokens)"),
        default=1024,
        validators=[MinValueValidator(64), MaxValueValidator(1_048_576)],
    )
    max_queue_size = models.PositiveIntegerField(
        _("maximum waiting requests"), default=256, validators=[MaxValueValidator(100_000)]
    )
    preferred_batch_sizes = models.JSONField(_("preferred batch sizes"), default=list, blank=True)
    queue_timeout_microseconds = models.PositiveIntegerField(
        _("queue timeout (µs, 0: none)"), default=0, validators=[MaxValueValidator(600_000_000)]
    )
    threads = models.PositiveIntegerField(
        _("threads (0: all cores)"), default=0, validators=[MaxValueValidator(512)]
    )
    engine = models.CharField(
        _("engine"), max_length=12, choices=EngineKind.choices, default=EngineKind.LLAMACPP
    )
    preserve_ordering = models.BooleanField(_("answers in the order of the requests"), default=False)
    timeout_action = models.CharField(
        _("after the queue timeout"),
        max_length=10,
        choices=TimeoutAction.choices,
        default=TimeoutAction.REJECT,
    )
    allow_timeout_override = models.BooleanField(_("requests may shorten the timeout"), default=True)
    priority_classes = models.JSONField(_("priority classes"), default=list, blank=True)
    default_priority_class = models.CharField(_("class of other requests"), max_length=31, blank=True)
    trtllm = models.JSONField(_("TensorRT-LLM settings"), default=dict, blank=True)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name = _("batching profile")

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Preferred sizes are whole numbers that a batch can have; classes and settings are the domain's."""
        self._clean_sizes()
        try:
            found = priority_classes.classes(self.priority_classes)
            priority_classes.default_level(self.default_priority_class)
            self.priority_classes = [item.as_dict() for item in found]
            self.trtllm = settings_of_trtllm.check(self.trtllm or {}, settings_of_trtllm.PROFILE, "trtllm")
        except InvalidInput as error:
            field = error.field.split(".")[0]
            raise ValidationError(
                {field: f"{error.sentence} {error.remedy}"}, code="invalid_value"
            ) from error
        if self.preserve_ordering and found:
            text = _("Answers in order allow no priority classes.")
            raise ValidationError({"preserve_ordering": text}, code="invalid_value")

    def _clean_sizes(self) -> None:
        sizes, most = self.preferred_batch_sizes, self.max_batch_size
        if not isinstance(sizes, list) or any(type(size) is not int for size in sizes):
            raise ValidationError(
                {"preferred_batch_sizes": _("Give whole numbers, as 4, 8.")}, code="invalid_value"
            )
        if isinstance(most, int) and any(not 1 <= size <= most for size in sizes):
            text = _("Each size must be from 1 to the maximum batch size %(most)s.") % {"most": most}
            raise ValidationError({"preferred_batch_sizes": text}, code="invalid_value")


class BatchingProfileVersion(models.Model):
    """What a profile said after one change: who made it, when, and what differed from the version before.

    `values` are all fields but the name; `changes` is {field: [old, new]}, empty for the first version.
    """

    kind = "batchingprofileversion"

    profile = models.ForeignKey(BatchingProfile, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField(_("number"))
    values = models.JSONField(_("values"))
    changes = models.JSONField(_("changes"), default=dict)
    actor = models.CharField(_("by"), max_length=150)
    created_at = models.DateTimeField(_("when"), auto_now_add=True)

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["profile", "number"], name="one_version_per_number")]
        verbose_name = _("batching profile version")

    def __str__(self) -> str:
        return f"{self.profile.name} v{self.number}"


class ModelRepository(models.Model):
    """A Triton model repository that somebody already had. Its files stay as they are; deployments link to them.

    `source` is {"path": folder} or {"archive": name of the upload}, `folder` where the files lie now. `files` is
    [{path, size_bytes, sha256 (null for large files), modified_ns}]; `fingerprint` is made of them, so a deployment
    notices when they change. `report` is what repository_check said, as data.
    """

    kind = "modelrepository"

    name = models.CharField(_("name"), max_length=63, unique=True, validators=[validate_name])
    source = models.JSONField(_("source"))
    folder = models.CharField(_("folder"), max_length=1000)
    fingerprint = models.CharField(_("fingerprint"), max_length=64)
    files = models.JSONField(_("files"), default=list)
    report = models.JSONField(_("report"), default=dict)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(_("imported"), auto_now_add=True)
    checked_at = models.DateTimeField(_("checked"))

    class Meta:
        ordering = ["name"]
        verbose_name = _("model repository")
        verbose_name_plural = _("model repositories")

    def __str__(self) -> str:
        return self.name


class Deployment(StatusModel):
    """An engine, or a model repository that somebody already had, served under a public name by 1..n instances.

    It has either `build_profile` or `repository`; `repository_model` is the one of its models that answers.

    The row says what should be true (`desired`: running or stopped); `state` says what is.
    `placement` is {"device": "any"|"cpu"|"gpu", "share": hundredths of a slot, absent for the default} and what else
    inputs.check_placement takes. `placement_report` says why a replica waits for a place: {"sentence", "waits":
    [{"why", "nodes": how many, "examples": [host names]}]}; empty while none waits.
    `waiting_build` is the build whose engine this deployment waits for, null while it waits for none.
    `deployed_at` is the last press of deploy, roll back or restart: failures before it do not count.
    `slo`, `rollout` and `scaling` hold what policies.Slo, policies.Rollout and autoscale_policy.Scaling say; keys
    left out have the defaults there. They belong to the deployment, not to a revision: changing them ends no server.
    `scaled_to` is how many servers schedule, load or sleep ask for at present; null: as many as the revision says.
    """

    machine = states.DEPLOYMENT
    kind = "deployment"

    class Desired(models.TextChoices):
        """What the operator wants."""

        RUNNING = "running", _("running")
        STOPPED = "stopped", _("stopped")

    name = models.CharField(_("public name"), max_length=63, unique=True, validators=[validate_name])
    build_profile = models.ForeignKey(
        BuildProfile, null=True, blank=True, on_delete=models.PROTECT, related_name="deployments"
    )
    repository = models.ForeignKey(
        ModelRepository,
        null=True,
        blank=True,
        editable=False,
        on_delete=models.PROTECT,
        related_name="deployments",
    )
    repository_model = models.CharField(
        _("model of the repository"), max_length=255, blank=True, editable=False
    )
    batching = models.ForeignKey(BatchingProfile, on_delete=models.PROTECT, related_name="deployments")
    replicas = models.PositiveIntegerField(
        _("replicas"), default=1, validators=[MinValueValidator(1), MaxValueValidator(64)]
    )
    placement = models.JSONField(_("placement"), default=dict, blank=True)
    placement_report = models.JSONField(
        _("why a server waits for a place"), default=dict, blank=True, editable=False
    )
    slo = models.JSONField(_("service level"), default=dict, blank=True)
    rollout = models.JSONField(_("roll-out"), default=dict, blank=True)
    scaling = models.JSONField(_("scaling"), default=dict, blank=True)
    scaled_to = models.PositiveIntegerField(_("scaled to"), null=True, blank=True, editable=False)
    desired = models.CharField(
        _("desired"), max_length=10, choices=Desired.choices, default=Desired.STOPPED, editable=False
    )
    active_revision = models.ForeignKey(
        "Revision", null=True, blank=True, editable=False, on_delete=models.SET_NULL, related_name="+"
    )
    waiting_build = models.ForeignKey(
        Build, null=True, blank=True, editable=False, on_delete=models.SET_NULL, related_name="waiting"
    )
    deployed_at = models.DateTimeField(_("deployed"), null=True, blank=True, editable=False)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(build_profile__isnull=True) ^ models.Q(repository__isnull=True),
                name="an_engine_or_a_repository",
            )
        ]
        verbose_name = _("deployment")

    def __str__(self) -> str:
        return self.name

    @property
    def servers(self) -> int:
        """How many servers it should have at present, as far as the configuration goes."""
        return self.replicas if self.scaled_to is None else self.scaled_to

    def servers_of(self, revision: Revision | None) -> int:
        """The same for a revision that runs or is about to."""
        if self.scaled_to is not None:
            return self.scaled_to
        return self.replicas if revision is None else revision.replicas

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Whose weights it serves; None where a repository does not tell."""
        return self.build_profile.checkpoint if self.build_profile is not None else None

    @property
    def serves(self) -> str:
        """What it serves, in a few words."""
        if self.build_profile is not None:
            return f"{self.build_profile.checkpoint.name} {self.build_profile.quantization}".strip()
        return f"{self.repository}: {self.repository_model}"


class Revision(StatusModel):
    """An immutable snapshot of a deployment's configuration: engine, batching and placement as they were.

    Where a repository is served, `engine` is null; `repository_fingerprint` says which files it was.
    The last four columns are of its present or last roll-out: the canary's step (counted from 0, null before the
    first), when something was last decided, when it was paused (null: it goes on), and when the rest of the steps
    was given up for the whole (null: not yet).
    """

    machine = states.REVISION
    kind = "revision"

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="revisions")
    number = models.PositiveIntegerField(_("number"))
    engine = models.ForeignKey(
        Engine, null=True, blank=True, on_delete=models.PROTECT, related_name="revisions"
    )
    repository_fingerprint = models.CharField(_("files"), max_length=64, blank=True)
    batching = models.JSONField(_("batching"))
    replicas = models.PositiveIntegerField(_("replicas"), default=1)
    placement = models.JSONField(_("placement"), default=dict)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    canary_step = models.PositiveIntegerField(_("canary step"), null=True, blank=True, editable=False)
    moved_at = models.DateTimeField(_("last decision"), null=True, blank=True, editable=False)
    paused_at = models.DateTimeField(_("paused"), null=True, blank=True, editable=False)
    promoted_at = models.DateTimeField(_("promoted"), null=True, blank=True, editable=False)

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(fields=["deployment", "number"], name="one_revision_per_number")
        ]
        verbose_name = _("revision")

    def __str__(self) -> str:
        return f"{self.deployment.name} r{self.number}"


class Instance(StatusModel):
    """One Triton process. Its identity is pid + process create time + `uid` in its environment.

    `attempt` fences as in Build: it grows at each spawn. `exit_code` is negative for a signal, null where the
    process was not our child any more. `diagnosis` is {"log": the slice of the log that belongs to the failure,
    "diagnosis": what apps.diagnosis made of it, or null}. The restricted-API secret lies in the instance's
    folder, mode 600, never here.

    `gpu` is its first slot. `placement` is how its place was chosen: {"why": sentence, "gpus": [{"id", "index",
    "uuid"}], "share": hundredths of each, "environment": {variable: value}}; empty for rows older than that.
    `evicted_at`: its node is to be empty; it serves until another holds its replica number (null: it holds it).
    """

    machine = states.INSTANCE
    kind = "instance"

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="instances")
    revision = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="instances")
    uid = models.CharField(_("instance id"), max_length=40, unique=True)
    replica = models.PositiveIntegerField(_("replica"), default=0)
    node = models.ForeignKey(Node, null=True, blank=True, on_delete=models.SET_NULL, related_name="instances")
    gpu = models.ForeignKey(Gpu, null=True, blank=True, on_delete=models.SET_NULL, related_name="instances")
    placement = models.JSONField(_("place"), default=dict, blank=True)
    evicted_at = models.DateTimeField(_("to leave its node since"), null=True, blank=True)
    attempt = models.PositiveIntegerField(_("attempt"), default=0)
    restarts = models.PositiveIntegerField(_("restarts"), default=0)
    pid = models.PositiveIntegerField(_("process"), null=True, blank=True)
    process_created = models.FloatField(_("process create time"), null=True, blank=True)
    process_group = models.PositiveIntegerField(_("process group"), null=True, blank=True)
    http_port = models.PositiveIntegerField(_("HTTP port"), null=True, blank=True)
    grpc_port = models.PositiveIntegerField(_("gRPC port"), null=True, blank=True)
    metrics_port = models.PositiveIntegerField(_("metrics port"), null=True, blank=True)
    server_version = models.CharField(_("Triton version"), max_length=40, blank=True)
    folder = models.CharField(_("folder"), max_length=1000, blank=True)
    log_path = models.CharField(_("log"), max_length=1000, blank=True)
    stop_requested_at = models.DateTimeField(_("stop requested"), null=True, blank=True)
    drain_deadline = models.DateTimeField(_("drain until"), null=True, blank=True)
    signalled_at = models.DateTimeField(_("asked to exit"), null=True, blank=True)
    failed_at = models.DateTimeField(_("failed"), null=True, blank=True)
    exit_code = models.IntegerField(_("exit code"), null=True, blank=True)
    serving_since = models.DateTimeField(_("serving since"), null=True, blank=True)
    diagnosis = models.JSONField(_("diagnosis"), null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            # One live process per replica of a revision: adopting never makes a second one. One that is to leave
            # its node has given its number away.
            models.UniqueConstraint(
                fields=["revision", "replica"],
                condition=models.Q(evicted_at__isnull=True) & ~models.Q(state__in=["gone", "failed"]),
                name="one_live_instance_per_replica",
            )
        ]
        verbose_name = _("instance")

    def __str__(self) -> str:
        return f"{self.deployment.name} {self.uid}"

    @property
    def audit_about(self) -> str:
        """Its deployment's history keeps what happened to it after its row is gone."""
        return f"{Deployment.kind}:{self.deployment_id}"


class CrashReport(models.Model):
    """How one server ended that should not have: kept when its instance's row and files are long gone.

    `exit_code` as in Instance. `gpus` is what NVML said then, [{index, uuid, used_bytes, total_bytes, temperature,
    processes: [{pid, used_bytes}]}], null on a CPU slot. `diagnosis` is what apps.diagnosis made of `log`, or null.
    """

    kind = "crashreport"

    deployment = models.ForeignKey(
        Deployment, null=True, blank=True, on_delete=models.SET_NULL, related_name="crash_reports"
    )
    deployment_name = models.CharField(_("deployment"), max_length=63)
    uid = models.CharField(_("instance id"), max_length=40, db_index=True)
    revision = models.PositiveIntegerField(_("revision"))
    replica = models.PositiveIntegerField(_("replica"), default=0)
    attempt = models.PositiveIntegerField(_("attempt"), default=0)
    restarts = models.PositiveIntegerField(_("restarts"), default=0)
    node = models.CharField(_("node"), max_length=255, blank=True)
    slot = models.CharField(_("slot"), max_length=20, blank=True)
    server_version = models.CharField(_("Triton version"), max_length=40, blank=True)
    at = models.DateTimeField(_("at"), auto_now_add=True)
    was = models.CharField(_("state before"), max_length=30)
    served_seconds = models.FloatField(_("served for (s)"), null=True, blank=True)
    reason = models.CharField(_("reason"), max_length=60)
    sentence = models.TextField(_("what happened"))
    remedy = models.TextField(_("remedy"), blank=True)
    exit_code = models.IntegerField(_("exit code"), null=True, blank=True)
    log = models.TextField(_("log"), blank=True)
    gpus = models.JSONField(_("GPUs"), null=True, blank=True)
    diagnosis = models.JSONField(_("diagnosis"), null=True, blank=True)

    class Meta:
        ordering = ["-at", "-id"]
        verbose_name = _("crash report")

    def __str__(self) -> str:
        return f"{self.deployment_name} {self.uid}"


class ScalingDecision(models.Model):
    """One decision on a deployment's number of servers, with the figures that led to it.

    `before` and `after` are numbers of servers; they are equal where something kept it from changing. `cause`,
    `reason` and `figures` are those of domain.autoscale.Decision; `actor` is who decided.
    """

    kind = "scalingdecision"

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="scaling_decisions")
    at = models.DateTimeField(_("at"), auto_now_add=True)
    before = models.PositiveIntegerField(_("servers before"))
    after = models.PositiveIntegerField(_("servers after"))
    cause = models.CharField(_("cause"), max_length=20)
    reason = models.CharField(_("reason"), max_length=40)
    sentence = models.TextField(_("why"))
    figures = models.JSONField(_("figures"), default=dict)
    actor = models.CharField(_("by"), max_length=150)

    class Meta:
        ordering = ["-at", "-id"]
        verbose_name = _("scaling decision")

    def __str__(self) -> str:
        return f"{self.deployment.name} {self.before} -> {self.after}"
