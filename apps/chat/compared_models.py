"""Rows of comparisons, prompt sets and shared links. Imported by models.py."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.core.names import validate_name


class PromptSet(models.Model):
    """A named list of questions. `prompts` is [text, ...], each asked by itself."""

    kind = "promptset"

    name = models.CharField(_("name"), max_length=63, unique=True, validators=[validate_name])
    description = models.CharField(_("description"), max_length=500, blank=True)
    prompts = models.JSONField(_("prompts"), default=list)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name = _("prompt set")

    def __str__(self) -> str:
        return self.name


class Comparison(models.Model):
    """The same questions to several deployments or revisions, side by side.

    `sides` is [{"deployment": name or null, "external": name or null, "revision": number or null, "recorded":
    conversation id or null}], of the two names one (older rows have no key "external"); a recorded side is no engine:
    its answers are those that a saved conversation had, kept in `questions`. `questions` is [{"prompt": text,
    "recorded": an answer's facts or null}]. `chained` questions are one conversation, others stand for themselves.
    `mode` says whether the sides are asked at once or one after the other.
    """

    kind = "comparison"

    class Mode(models.TextChoices):
        """When the sides are asked."""

        TOGETHER = "together", _("in step")
        IN_TURN = "in_turn", _("one after the other")

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="comparisons")
    title = models.CharField(_("title"), max_length=200, blank=True)
    mode = models.CharField(_("mode"), max_length=8, choices=Mode.choices, default=Mode.TOGETHER)
    sides = models.JSONField(_("sides"))
    questions = models.JSONField(_("questions"))
    chained = models.BooleanField(_("one conversation"), default=False)
    system_prompt = models.TextField(_("system prompt"), blank=True)
    params = models.JSONField(_("sampling parameters"), default=dict, blank=True)
    prompt_set = models.ForeignKey(
        PromptSet, null=True, blank=True, on_delete=models.SET_NULL, related_name="comparisons"
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        ordering = ["-updated_at"]
        verbose_name = _("comparison")

    def __str__(self) -> str:
        return self.title or f"#{self.pk}"


class ComparisonPart(models.Model):
    """The conversation in which one side answers one question, or all of them where they are chained (question 0).

    `revision` pins its requests to servers of that revision; null takes whatever serves.
    """

    comparison = models.ForeignKey(Comparison, on_delete=models.CASCADE, related_name="parts")
    conversation = models.OneToOneField(
        "chat.Conversation", on_delete=models.CASCADE, related_name="comparison_part"
    )
    side = models.PositiveSmallIntegerField(_("side"))
    question = models.PositiveSmallIntegerField(_("question"), default=0)
    revision = models.PositiveIntegerField(_("revision"), null=True, blank=True)

    class Meta:
        ordering = ["comparison", "question", "side"]
        constraints = [
            models.UniqueConstraint(
                fields=["comparison", "side", "question"], name="one_conversation_for_each_part"
            )
        ]

    def __str__(self) -> str:
        return f"{self.comparison_id}.{self.question}.{self.side}"


class SharedLink(models.Model):
    """Who has the link and may view Inflight sees the conversation or comparison, until it is revoked."""

    kind = "sharedlink"

    uid = models.CharField(_("link"), max_length=40, unique=True)
    conversation = models.ForeignKey(
        "chat.Conversation", null=True, blank=True, on_delete=models.CASCADE, related_name="links"
    )
    comparison = models.ForeignKey(
        Comparison, null=True, blank=True, on_delete=models.CASCADE, related_name="links"
    )
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="shared_links"
    )
    created_at = models.DateTimeField(_("shared"), auto_now_add=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(conversation__isnull=False, comparison__isnull=True)
                | models.Q(conversation__isnull=True, comparison__isnull=False),
                name="a_link_shows_one_thing",
            )
        ]
        verbose_name = _("shared link")

    def __str__(self) -> str:
        return self.uid[:6]
