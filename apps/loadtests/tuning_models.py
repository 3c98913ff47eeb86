"""Tunings and their trials. Everything a tuner knows is in these rows, so it goes on after any process has died."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.core.models import StatusModel
from apps.loadtests import tuning_states
from apps.serving.models import Deployment


class Tuning(StatusModel):
    """A search for a better configuration of one deployment.

    `request` is domain.tuner_request.TuningFields, `scenario` the load of every trial (its target is each
    trial's own deployment), `space` [{"name", "values", "ordered"}] as it was resolved. `base` is what the
    deployment was when the tuning began: {"kind": engine kind, "profile": values, "replicas", "build": name,
    "placement"}. `winner` is the number of the best trial, null before the end and where none keeps the
    constraints; `report` says why, in sentences. The `applied_*` columns are of the last trial that was made
    the deployment's configuration.
    """

    machine = tuning_states.TUNING
    kind = "tuning"

    number = models.PositiveIntegerField(_("number"), unique=True)
    deployment = models.ForeignKey(
        Deployment, null=True, blank=True, on_delete=models.SET_NULL, related_name="tunings"
    )
    target = models.CharField(_("deployment"), max_length=63)
    request = models.JSONField(_("request"))
    scenario = models.JSONField(_("scenario"))
    space = models.JSONField(_("space"))
    base = models.JSONField(_("begun from"))
    share = models.PositiveIntegerField(_("share of a slot"), null=True, blank=True)
    seed = models.PositiveIntegerField(_("seed"))
    allow_production = models.BooleanField(_("allowed beside production"), default=False)
    winner = models.PositiveIntegerField(_("best trial"), null=True, blank=True)
    report = models.JSONField(_("report"), default=list, blank=True)
    applied_trial = models.PositiveIntegerField(_("applied trial"), null=True, blank=True)
    applied_at = models.DateTimeField(_("applied"), null=True, blank=True)
    applied_before = models.PositiveIntegerField(_("revision before"), null=True, blank=True)
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    dispatched_at = models.DateTimeField(_("sent to a worker"), null=True, blank=True)
    cancel_requested_at = models.DateTimeField(_("cancel requested"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)

    class Meta:
        ordering = ["-number"]
        verbose_name = _("tuning")

    def __str__(self) -> str:
        return f"#{self.number} {self.target}"


class Trial(StatusModel):
    """One configuration that was tried, or that the memory plan refused. A repeat is a trial of its own.

    `source` says who proposed it (tuning_search.Source). `figures` are those of its run that goals can name, null
    before it was measured. `made` is the deployment that serves it, removed afterwards; `outcome` what it ends as.
    """

    machine = tuning_states.TRIAL
    kind = "trial"

    tuning = models.ForeignKey(Tuning, on_delete=models.CASCADE, related_name="trials")
    number = models.PositiveIntegerField(_("number"))
    configuration = models.JSONField(_("configuration"))
    source = models.CharField(_("proposed by"), max_length=12)
    made = models.CharField(_("served as"), max_length=63, blank=True)
    run = models.OneToOneField(
        "loadtests.LoadRun", null=True, blank=True, on_delete=models.SET_NULL, related_name="trial"
    )
    figures = models.JSONField(_("figures"), null=True, blank=True)
    outcome = models.CharField(_("ends as"), max_length=12, blank=True)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)

    class Meta:
        ordering = ["tuning", "number"]
        constraints = [models.UniqueConstraint(fields=["tuning", "number"], name="one_trial_per_number")]
        verbose_name = _("trial")

    def __str__(self) -> str:
        return f"#{self.tuning.number}.{self.number}"
