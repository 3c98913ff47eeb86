"""Load tests, their runs, studies that compare runs, and which deployments are production."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.core.models import StatusModel
from apps.core.names import validate_name
from apps.loadtests import states
from apps.loadtests.attempt_models import AttemptedRun
from apps.loadtests.quality_models import QualityGate as QualityGate
from apps.loadtests.quality_models import QualityRun as QualityRun
from apps.loadtests.quality_models import QualityWaiver as QualityWaiver
from apps.serving.models import Deployment


class LoadTest(models.Model):
    """A scenario under a name. `scenario` has the shape of domain.scenario.Scenario."""

    kind = "loadtest"

    name = models.CharField(_("name"), max_length=63, unique=True, validators=[validate_name])
    scenario = models.JSONField(_("scenario"))
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name = _("load test")

    def __str__(self) -> str:
        return self.name


class Study(StatusModel):
    """Configurations side by side: every arm has `repeats` runs, in turns, one at a time.

    `arms` is [{"label", "deployment" (name), "own" (made for the study and removed after it), "settings"}]; the
    first is what the others are compared with. `scenario` is a Scenario whose target is each arm's deployment.
    `outcome` is what a study that was cut short ends as; `verdict` is domain.compare's result as plain values,
    null until there is one.
    """

    machine = states.STUDY
    kind = "study"

    class Kind(models.TextChoices):
        """What is compared."""

        DEPLOYMENTS = "deployments", _("Deployments side by side")
        BATCHING = "batching", _("Batching strategies")

    number = models.PositiveIntegerField(_("number"), unique=True)
    study_kind = models.CharField(_("kind"), max_length=12, choices=Kind.choices)
    title = models.CharField(_("title"), max_length=200)
    arms = models.JSONField(_("arms"))
    repeats = models.PositiveIntegerField(_("repeats"), default=3)
    scenario = models.JSONField(_("scenario"))
    primary = models.CharField(_("primary metric"), max_length=60)
    seed = models.PositiveIntegerField(_("seed"))
    allow_production = models.BooleanField(_("allowed beside production"), default=False)
    outcome = models.CharField(_("ends as"), max_length=12, blank=True)
    verdict = models.JSONField(_("verdict"), null=True, blank=True)
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    cancel_requested_at = models.DateTimeField(_("cancel requested"), null=True, blank=True)
    started_at = models.DateTimeField(_("started"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)

    class Meta:
        ordering = ["-number"]
        verbose_name = _("study")
        verbose_name_plural = _("studies")

    def __str__(self) -> str:
        return f"#{self.number} {self.title}"


class LoadRun(AttemptedRun):
    """One run of a scenario against one target, by our own generator or by AIPerf.

    `scenario` is the snapshot it runs, `environment` what answered it (revision, engine, batching, servers, machine),
    `summary` what domain.results makes of its records, null before it has measured. `series` are its newest
    seconds while it runs, and all of them thinned out afterwards. The records themselves lie in `folder`.
    """

    machine = states.LOADRUN
    kind = "loadrun"

    class Generator(models.TextChoices):
        """Which program sends the load."""

        INFLIGHT = "inflight", _("Inflight's own")
        AIPERF = "aiperf", "AIPerf"

    generator = models.CharField(
        _("generator"), max_length=10, choices=Generator.choices, default=Generator.INFLIGHT
    )
    test = models.ForeignKey(
        LoadTest,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="runs",
        verbose_name=_("load test"),
    )
    study = models.ForeignKey(Study, null=True, blank=True, on_delete=models.CASCADE, related_name="runs")
    arm = models.PositiveIntegerField(_("arm"), null=True, blank=True)
    repeat = models.PositiveIntegerField(_("repeat"), null=True, blank=True)
    target = models.CharField(_("target"), max_length=63)
    deployment = models.ForeignKey(
        Deployment, null=True, blank=True, on_delete=models.SET_NULL, related_name="load_runs"
    )
    scenario = models.JSONField(_("scenario"))
    seed = models.PositiveIntegerField(_("seed"))
    allow_production = models.BooleanField(_("allowed beside production"), default=False)
    environment = models.JSONField(_("environment"), default=dict, blank=True)
    summary = models.JSONField(_("summary"), null=True, blank=True)
    series = models.JSONField(_("series"), default=list, blank=True)

    class Meta:
        ordering = ["-number"]
        verbose_name = _("load run")

    def __str__(self) -> str:
        return f"#{self.number} {self.target}"


class ProductionMark(models.Model):
    """A deployment whose traffic matters: load needs an administrator's word."""

    kind = "productionmark"

    deployment = models.OneToOneField(Deployment, on_delete=models.CASCADE, related_name="production_mark")
    marked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(_("marked"), auto_now_add=True)

    class Meta:
        verbose_name = _("production mark")

    def __str__(self) -> str:
        return self.deployment.name


# After the rows that they refer to.
from apps.loadtests.background_models import BackgroundLoad as BackgroundLoad  # noqa: E402
from apps.loadtests.tuning_models import Trial as Trial  # noqa: E402
from apps.loadtests.tuning_models import Tuning as Tuning  # noqa: E402
