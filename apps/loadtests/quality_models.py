"""Quality runs, what a build must keep, and engines that an administrator lets pass all the same."""

from __future__ import annotations

from django.conf import settings as django_settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.core.names import validate_name
from apps.engines.models import BuildProfile, Engine
from apps.loadtests import states
from apps.loadtests.attempt_models import AttemptedRun
from apps.loadtests.domain.quality import Thresholds
from apps.serving.models import Deployment

SHARE = [MinValueValidator(0.0), MaxValueValidator(1.0)]


class QualityRun(AttemptedRun):
    """One comparison of a build with its source.

    `logits`: llama.cpp runs both files, `engine` and `baseline` (null: the checkpoint that the engine was made of).
    `answers`: two deployments that serve answer golden prompts; `engine` is then what `deployment` serves, null for
    a repository. `settings` is {"windows", "answer_tokens"}, `result` domain.quality's summary, null before it is
    there. Rows of an attempt that stopped are used again by the next.
    """

    machine = states.QUALITYRUN
    kind = "qualityrun"

    class Method(models.TextChoices):
        """How the two are compared."""

        LOGITS = "logits", _("log-probabilities of both files")
        ANSWERS = "answers", _("greedy answers of two deployments")

    method = models.CharField(_("method"), max_length=10, choices=Method.choices)
    engine = models.ForeignKey(
        Engine, null=True, blank=True, on_delete=models.CASCADE, related_name="quality_runs"
    )
    baseline = models.ForeignKey(Engine, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    deployment = models.ForeignKey(
        Deployment, null=True, blank=True, on_delete=models.CASCADE, related_name="quality_runs"
    )
    baseline_deployment = models.ForeignKey(
        Deployment, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    title = models.CharField(_("title"), max_length=200)
    settings = models.JSONField(_("settings"), default=dict)
    result = models.JSONField(_("result"), null=True, blank=True)

    class Meta:
        ordering = ["-number"]
        verbose_name = _("quality run")

    def __str__(self) -> str:
        return f"#{self.number} {self.title}"


class QualityGate(models.Model):
    """What engines of a build profile must keep against their source.

    `blocking`: one that does not is not deployed.
    """

    kind = "qualitygate"

    name = models.CharField(_("name"), max_length=63, unique=True, validators=[validate_name])
    build_profile = models.OneToOneField(
        BuildProfile, on_delete=models.CASCADE, related_name="quality_gate", verbose_name=_("build profile")
    )
    max_perplexity_ratio = models.FloatField(
        _("perplexity ratio at most"), null=True, blank=True, validators=[MinValueValidator(1.0)]
    )
    max_divergence = models.FloatField(
        _("KL divergence at most (nats a token)"), null=True, blank=True, validators=[MinValueValidator(0.0)]
    )
    min_top1 = models.FloatField(_("top-1 agreement at least"), null=True, blank=True, validators=SHARE)
    min_agreement = models.FloatField(_("greedy agreement at least"), null=True, blank=True, validators=SHARE)
    blocking = models.BooleanField(_("blocks promotion"), default=True)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name = _("quality gate")

    def __str__(self) -> str:
        return self.name

    @property
    def thresholds(self) -> Thresholds:
        """The bounds as the domain takes them."""
        return Thresholds(self.max_perplexity_ratio, self.max_divergence, self.min_top1, self.min_agreement)


class QualityWaiver(models.Model):
    """An engine that is deployed although its gate does not let it pass: an administrator said so, and why."""

    kind = "qualitywaiver"

    engine = models.OneToOneField(Engine, on_delete=models.CASCADE, related_name="quality_waiver")
    why = models.CharField(_("why"), max_length=500)
    waived_by = models.ForeignKey(
        django_settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(_("waived"), auto_now_add=True)

    class Meta:
        verbose_name = _("quality waiver")

    def __str__(self) -> str:
        return str(self.engine)
