"""Playground: conversations, and one of them beside live charts. Tokens reach the page over the chat socket."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.accounts.roles import Action
from apps.chat import selectors, services, sharing, targets
from apps.chat.models import Conversation
from apps.chat.params import SamplingParams
from apps.chat.serialize import turn_dict
from apps.core.exceptions import InflightError, InvalidInput
from apps.dashboard import lists, pages, samples
from apps.dashboard.access import person
from apps.dashboard.charts import cards, panels
from apps.dashboard.pages import action, page
from apps.gateway.selectors import externals
from apps.loadtests import background
from apps.serving import reach
from apps.serving.autoscale_policy import wait_for_waking
from apps.serving.models import Deployment
from apps.serving.selectors import deployments
from apps.serving.states import ASLEEP, DEGRADED, READY
from apps.streaming.prompts import serving_checkpoint

OTHERS_SHOWN = 30
SERVING_SHOWN = 20


@page(Action.CHAT)
def playground(request: HttpRequest) -> HttpResponse:
    """The person's conversations, and a choice of deployments to begin one with."""
    rows = lists.search(
        selectors.conversations(person(request)),
        request.GET.get("q", ""),
        ["title", "deployment__name", "external__name"],
    )
    # Nobody knows the chat template of an imported repository.
    serving = deployments().filter(state__in=(READY, DEGRADED, ASLEEP), repository__isnull=True)
    shown = list(serving[:SERVING_SHOWN])
    context = {
        "title": _("Playground"),
        "here": "playground",
        "page": lists.page_of(request, rows),
        "filtered": bool(request.GET.get("q")),
        "given": request.GET,
        "serving": shown,
        "serving_more": serving.count() - SERVING_SHOWN if len(shown) == SERVING_SHOWN else 0,
        "externals": externals(),
        "any_deployment": bool(shown) or Deployment.objects.exists(),
    }
    return render(request, "pages/playground.html", context)


@action(Action.CHAT)
def new(request: HttpRequest) -> HttpResponse:
    """Begin a conversation with a deployment, or an external one."""
    name, elsewhere = request.POST.get("deployment", ""), request.POST.get("external", "")
    if not name and not elsewhere:
        raise InvalidInput(
            "required",
            _("No deployment is chosen."),
            field="deployment",
            remedy=_("Choose one to chat with."),
        )
    row = services.create_conversation(person(request), targets.named(name, elsewhere))
    return HttpResponseRedirect(reverse("chat:conversation", args=[row.pk]), status=303)


@page(Action.CHAT)
def conversation(request: HttpRequest, pk: int) -> HttpResponse:
    """One conversation beside the charts of its deployment; an external one has none."""
    row = selectors.conversation(person(request), pk)
    shown = selectors.branch(row)
    known = targets.params_of(row.engine)
    context = {
        "title": row.title or _("New conversation"),
        "here": "playground",
        "row": row,
        "turns": shown,
        "mine": row.owner_id == person(request).pk,
        "params": _params(row, known),
        "words": _words(row, known),
        "known": known,
        "link": sharing.link_of(row),
        **(_of_deployment(row.deployment) if row.deployment else {"external": row.external, "serves": True}),
        "state": {"conversation": row.pk, "turns": [turn_dict(one.turn, one.siblings) for one in shown]},
        "others": selectors.conversations(person(request))[:OTHERS_SHOWN],
        "confirm": {
            "question": _("Delete this conversation?"),
            "text": _("Its questions and answers are removed; an answer that is being made is stopped."),
        },
    }
    return render(request, "pages/conversation.html", context)


def _of_deployment(target: Deployment) -> dict[str, Any]:
    """What is known of a deployment of ours: whether it serves, its template, its charts, its background load."""
    return {
        "deployment": target,
        "serves": target.state in (READY, DEGRADED) or wait_for_waking(target) is not None,
        "wakes": wait_for_waking(target) is not None,
        "reach": reach.of(target),
        "background": background.state(target),
        "template": _template(target),
        "chart": cards.conversation_card(
            panels.playground_panels(samples.on_gpu(target)),
            samples.of(target.pk, cards.CONVERSATION_SECONDS),
            topic=f"metrics:{target.pk}",
            name="chart-playground",
        ),
    }


# Label, least, most and step of each field.
_LABELS = {
    "max_tokens": (gettext_lazy("Maximum tokens"), "1", "32768", "1"),
    "temperature": (gettext_lazy("Temperature"), "0", "5", "0.05"),
    "top_p": (gettext_lazy("Top p"), "0.01", "1", "0.01"),
    "top_k": (gettext_lazy("Top k"), "0", "1000000", "1"),
    "min_tokens": (gettext_lazy("Minimum tokens"), "0", "32768", "1"),
    "repetition_penalty": (gettext_lazy("Repetition penalty"), "0.01", "10", "0.01"),
    "presence_penalty": (gettext_lazy("Presence penalty"), "-2", "2", "0.01"),
    "frequency_penalty": (gettext_lazy("Frequency penalty"), "-2", "2", "0.01"),
    "seed": (gettext_lazy("Seed"), "0", "9007199254740991", "1"),
    "logprobs": (gettext_lazy("Alternatives a token"), "0", "20", "1"),
}
_WORDS = {
    "stop_words": gettext_lazy("Stop words, one a line"),
    "bad_words": gettext_lazy("Words never to write, one a line"),
}


def _words(row: Conversation, known: frozenset[str]) -> list[dict[str, Any]]:
    """The lists of words that the engine takes."""
    return [
        {"name": name, "label": label, "value": "\n".join(row.params.get(name, []))}
        for name, label in _WORDS.items()
        if name in known
    ]


def _template(deployment: Deployment) -> dict[str, str]:
    """The chat template of what serves, with where it is from; empty where there is none."""
    try:
        checkpoint = serving_checkpoint(deployment)
    except InflightError:
        return {}
    return {"text": checkpoint.chat_template, "checkpoint": checkpoint.name}


def _params(row: Conversation, known: frozenset[str]) -> list[dict[str, Any]]:
    """Fields of the drawer: what the engine takes of SamplingParams, with the engine's default as placeholder."""
    return [
        {
            "name": name,
            "label": label,
            "min": least,
            "max": most,
            "step": step,
            "value": row.params.get(name, ""),
            "default": SamplingParams.model_fields[name].default,
        }
        for name, (label, least, most, step) in _LABELS.items()
        if name in known
    ]


@action(Action.CHAT)
def rename(request: HttpRequest, pk: int) -> HttpResponse:
    """Give a conversation another title."""
    row = selectors.conversation(person(request), pk)
    services.rename_conversation(person(request), row, request.POST.get("title", ""))
    return pages.done(request, _("Renamed."), to=reverse("chat:conversation", args=[pk]), stay=False)


@action(Action.CHAT)
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a conversation."""
    services.delete_conversation(person(request), selectors.conversation(person(request), pk))
    return pages.done(request, _("The conversation is deleted."), to=reverse("chat:playground"), stay=False)
