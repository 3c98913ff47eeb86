"""Nodes, their GPUs (or CPU slots) and the leases on them."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.core.models import StatusModel
from apps.fleet import states
from apps.fleet.join_models import JoinToken, NodeDoor

__all__ = ["Gpu", "GpuLease", "JoinToken", "Lead", "Node", "NodeDoor", "Toolchain"]


class Node(StatusModel):
    """A host with workers, unique to each INFLIGHT_HOME. `last_seen` is written every 15 s; beats live in Redis.

    `folders` is [{name, path, total_bytes, free_bytes, writable}], null sizes where the folder cannot be looked at.
    `gpu_report` is what its driver said last: {status, source, driver_version, cuda_version, nvml_version, findings:
    [{id, severity, where, message, remedy}]}; empty before the first look. `policy` is what domain.host_policy says.
    `clock_skew_seconds` is the host's clock less the database's; it is shown and decides nothing.
    `drain_deadline`: servers of a node in maintenance that have found no other place end then.
    """

    machine = states.NODE
    kind = "node"

    node_id = models.CharField(_("node id"), max_length=40, unique=True)
    hostname = models.CharField(_("host name"), max_length=200)
    home = models.CharField(_("home folder"), max_length=500)
    labels = models.JSONField(_("labels"), default=dict, blank=True)
    versions = models.JSONField(_("versions"), default=dict, blank=True)
    protocol_version = models.PositiveIntegerField(_("protocol version"), default=1)
    cordoned = models.BooleanField(_("cordoned"), default=False)
    cordon_reason = models.CharField(_("why it is set aside"), max_length=300, blank=True)
    drain_deadline = models.DateTimeField(_("servers end at"), null=True, blank=True)
    policy = models.JSONField(_("host policy"), default=dict, blank=True)
    folders = models.JSONField(_("folders"), default=list, blank=True)
    gpu_report = models.JSONField(_("what the driver said"), default=dict, blank=True)
    clock_skew_seconds = models.FloatField(_("clock skew (s)"), null=True, blank=True)
    last_seen = models.DateTimeField(_("last seen"), null=True, blank=True)
    # Set by whoever wants its toolchains probed; the node's control worker looks and answers by `probed_at`.
    probe_asked_at = models.DateTimeField(_("probe asked for"), null=True, blank=True)
    probed_at = models.DateTimeField(_("toolchains probed"), null=True, blank=True)
    toolchains_problem = models.TextField(_("problem with its toolchains"), blank=True)

    class Meta:
        ordering = ["node_id"]
        verbose_name = _("node")

    def __str__(self) -> str:
        return self.hostname or self.node_id


class Gpu(models.Model):
    """One device slot of a node: a GPU, a MIG slice, or a CPU slot leased by share where there is no GPU.

    `index` is the GPU's; a slice has domain.slots.slice_index of its GPU's (`mig_parent`) and its own. GPUs of one
    `nvlink_group` reach each other over NVLink; null where the driver does not tell. `numa_node` is that of its PCIe
    root. `unified_memory`: it shares the host's memory, which `memory_bytes` then is.
    """

    class Device(models.TextChoices):
        """What the slot is."""

        GPU = "gpu", _("GPU")
        CPU = "cpu", _("CPU slot")

    class Condition(models.TextChoices):
        """Whether it can be used: lost is known to the driver and does not answer, stale was there before."""

        OK = "ok", _("ok")
        STALE = "stale", _("not seen at the last look")
        LOST = "lost", _("does not answer")

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="gpus")
    index = models.PositiveIntegerField(_("index"))
    device = models.CharField(_("device"), max_length=3, choices=Device.choices, default=Device.GPU)
    uuid = models.CharField(_("UUID"), max_length=80, blank=True)
    product = models.CharField(_("product"), max_length=120)
    memory_bytes = models.BigIntegerField(_("memory (bytes)"), null=True, blank=True)
    compute_capability = models.CharField(_("compute capability"), max_length=10, blank=True)
    condition = models.CharField(
        _("condition"), max_length=5, choices=Condition.choices, default=Condition.OK
    )
    condition_note = models.TextField(_("what is wrong with it"), blank=True)
    unified_memory = models.BooleanField(_("shares the host's memory"), default=False)
    pci_bus_id = models.CharField(_("PCI bus id"), max_length=20, blank=True)
    mig_parent = models.PositiveIntegerField(_("slice of GPU"), null=True, blank=True)
    mig_profile = models.CharField(_("MIG profile"), max_length=40, blank=True)
    nvlink_group = models.PositiveIntegerField(_("NVLink group"), null=True, blank=True)
    numa_node = models.PositiveIntegerField(_("NUMA node"), null=True, blank=True)
    # Shares are hundredths of the slot.
    total_share = models.PositiveIntegerField(_("total share"), default=100)
    # What the slot costs, in whatever currency the people here count in; null: not known, never 0.
    price_per_hour = models.DecimalField(
        _("price per hour"), max_digits=12, decimal_places=4, null=True, blank=True
    )

    class Meta:
        ordering = ["node", "index"]
        constraints = [models.UniqueConstraint(fields=["node", "index"], name="one_gpu_per_index")]
        verbose_name = _("GPU")

    def __str__(self) -> str:
        return f"{self.node} {self.device}{self.index}"


class Toolchain(models.Model):
    """One TensorRT-LLM installation of a node: a native Python, or an image by digest. What it has was probed.

    `location` is the Python's path or the image; `program` the container program's path, empty for a native one.
    `recipes` are those that it can do, `gpus` what its nvidia-smi lists ({index, name, uuid, sm, memory_bytes}).
    `problem` says why it can do less than one might expect, with `remedy`.
    """

    kind = "toolchain"

    class Kind(models.TextChoices):
        """How its programs are started."""

        NATIVE = "native", _("native")
        DOCKER = "docker", "docker"
        PODMAN = "podman", "podman"

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="toolchains")
    name = models.CharField(_("name"), max_length=63)
    how = models.CharField(_("kind"), max_length=10, choices=Kind.choices)
    location = models.CharField(_("path or image"), max_length=1000)
    program = models.CharField(_("container program"), max_length=1000, blank=True)
    examples = models.CharField(_("example scripts"), max_length=1000)
    shared_memory_bytes = models.BigIntegerField(_("shared memory (bytes)"))
    versions = models.JSONField(_("versions"), default=dict)
    recipes = models.JSONField(_("recipes"), default=list)
    gpus = models.JSONField(_("GPUs that it sees"), default=list)
    problem = models.TextField(_("problem"), blank=True)
    remedy = models.TextField(_("remedy"), blank=True)
    log_path = models.CharField(_("log of the probe"), max_length=1000, blank=True)
    probed_at = models.DateTimeField(_("probed"), null=True, blank=True)

    class Meta:
        ordering = ["node", "name"]
        constraints = [models.UniqueConstraint(fields=["node", "name"], name="one_toolchain_per_name")]
        verbose_name = _("toolchain")

    def __str__(self) -> str:
        return f"{self.node} {self.name}"

    @property
    def sms(self) -> list[int]:
        """Compute capabilities (times ten) of the GPUs that it sees, each once."""
        return sorted({int(gpu["sm"]) for gpu in self.gpus if gpu.get("sm")})

    @property
    def release(self) -> str:
        """TensorRT-LLM's version, empty where it cannot be imported."""
        return str(self.versions.get("tensorrt_llm", ""))


class GpuLease(models.Model):
    """A claim of a holder on a share of a GPU until `expires_at` (null: until released).

    `attempt` is the holder's attempt number: a lease of an older attempt never counts for a newer one.
    """

    class Purpose(models.TextChoices):
        """What the slot is used for."""

        BUILD = "build", _("build")
        SERVE = "serve", _("serve")
        TEST = "test", _("test")

    gpu = models.ForeignKey(Gpu, on_delete=models.CASCADE, related_name="leases")
    purpose = models.CharField(_("purpose"), max_length=10, choices=Purpose.choices)
    holder_kind = models.CharField(_("holder"), max_length=20)
    holder_id = models.BigIntegerField(_("holder id"))
    attempt = models.PositiveIntegerField(_("attempt"), default=1)
    share = models.PositiveIntegerField(_("share"), default=100)
    taken_at = models.DateTimeField(_("taken"), auto_now_add=True)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    released_at = models.DateTimeField(_("released"), null=True, blank=True)

    class Meta:
        ordering = ["-taken_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["gpu", "holder_kind", "holder_id"],
                condition=models.Q(released_at__isnull=True),
                name="one_open_lease_per_holder",
            )
        ]
        indexes = [
            models.Index(
                fields=["holder_kind", "holder_id"],
                condition=models.Q(released_at__isnull=True),
                name="open_leases_of_a_holder",
            )
        ]
        verbose_name = _("GPU lease")

    def __str__(self) -> str:
        return f"{self.gpu}: {self.purpose} {self.holder_kind} {self.holder_id}"


class Lead(models.Model):
    """Which node does what only one node should do at a time, until when, and the control plane's protocol.

    One row for each duty (`name`). Taken and renewed by one conditional UPDATE, in the database's time; two leaders
    for a moment do no harm, because all that they write is guarded.
    """

    name = models.CharField(_("duty"), max_length=20, primary_key=True)
    holder = models.CharField(_("node id"), max_length=40, blank=True)
    until = models.DateTimeField(_("until"), null=True, blank=True)
    protocol_version = models.PositiveIntegerField(_("protocol version"), default=1)

    class Meta:
        verbose_name = _("lead")

    def __str__(self) -> str:
        return f"{self.name}: {self.holder}"
