"""Conversations and turns of the playground."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.chat import states
from apps.core.models import StatusModel
from apps.gateway.models import ExternalDeployment
from apps.serving.models import Deployment


class Conversation(models.Model):
    """A chat of one person with one deployment, or with one external deployment of the gateway.

    `params` are the sampling parameters of the next turn.

    Its turns are a tree: each answers after its `parent`. `head` is the last turn of the branch that is shown, null
    while there is none or where the branch begins anew.
    """

    kind = "conversation"

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="conversations"
    )
    deployment = models.ForeignKey(
        Deployment, null=True, blank=True, on_delete=models.CASCADE, related_name="conversations"
    )
    external = models.ForeignKey(
        ExternalDeployment, null=True, blank=True, on_delete=models.CASCADE, related_name="conversations"
    )
    title = models.CharField(_("title"), max_length=200, blank=True)
    system_prompt = models.TextField(_("system prompt"), blank=True)
    params = models.JSONField(_("sampling parameters"), default=dict, blank=True)
    head = models.ForeignKey(
        "Turn", null=True, blank=True, editable=False, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        ordering = ["-updated_at"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(deployment__isnull=False, external__isnull=True)
                | models.Q(deployment__isnull=True, external__isnull=False),
                name="a_conversation_has_one_engine",
            )
        ]
        verbose_name = _("conversation")

    def __str__(self) -> str:
        return self.title or f"#{self.pk}"

    @property
    def engine(self) -> Deployment | ExternalDeployment:
        """What answers."""
        found = self.deployment or self.external
        assert found is not None  # noqa: S101 - the table's own constraint
        return found

    @property
    def engine_name(self) -> str:
        """Its public name."""
        return self.engine.name


class Turn(StatusModel):
    """One question and its answer, after `parent` (null: it begins the conversation); branches share a parent.

    A regenerated answer is a new turn that `replaces` the old one; an edited question is a new turn beside the old.
    `position` counts from 1 along a branch. `metrics` holds what was measured: ttft_ms, itl_p50_ms, itl_p99_ms,
    tokens, tokens_per_second, prompt_tokens, cached_tokens, queue_ms; null where the engine does not tell.
    """

    machine = states.TURN
    kind = "turn"

    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="turns")
    uid = models.CharField(_("turn id"), max_length=40, unique=True)
    position = models.PositiveIntegerField(_("position"))
    prompt = models.TextField(_("prompt"))
    answer = models.TextField(_("answer"), blank=True)
    params = models.JSONField(_("sampling parameters"), default=dict)
    metrics = models.JSONField(_("measured"), default=dict)
    instance_uid = models.CharField(_("instance"), max_length=40, blank=True)
    revision_number = models.PositiveIntegerField(_("revision"), null=True, blank=True)
    parent = models.ForeignKey(
        "self", null=True, blank=True, editable=False, on_delete=models.CASCADE, related_name="children"
    )
    replaces = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    # The web process that owns the stream; a turn whose process died ends as interrupted.
    owner_process = models.CharField(_("web process"), max_length=80, blank=True)
    started_at = models.DateTimeField(_("asked"), auto_now_add=True)
    first_token_at = models.DateTimeField(_("first token"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)

    class Meta:
        ordering = ["conversation", "position", "id"]
        constraints = [
            # Two windows, or two presses, make one running answer.
            models.UniqueConstraint(
                fields=["conversation"],
                condition=models.Q(state="streaming"),
                name="one_running_turn_per_conversation",
            )
        ]
        verbose_name = _("turn")

    def __str__(self) -> str:
        return f"{self.conversation_id}.{self.position}"


class Timeline(models.Model):
    """When each message of the engine came during an answer: `marks` as apps.chat.textlog.mark_json writes them.

    Apart from the turn, because it is as long as the answer and nearly nobody reads it.
    """

    turn = models.OneToOneField(Turn, on_delete=models.CASCADE, related_name="timeline")
    marks = models.JSONField(_("messages"), default=list)

    class Meta:
        verbose_name = _("timeline")

    def __str__(self) -> str:
        return str(self.turn)


# After the rows that they refer to.
from apps.chat.compared_models import Comparison as Comparison  # noqa: E402
