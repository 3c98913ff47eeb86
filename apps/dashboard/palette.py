"""What the command palette offers: pages, objects, actions. Only what the person may see and do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.chat.selectors import conversations
from apps.dashboard import lists
from apps.dashboard.icons import PATHS
from apps.dashboard.navigation import PLACES
from apps.dashboard.words import state_word
from apps.engines.selectors import builds
from apps.engines.states import BUILD
from apps.fleet.selectors import nodes
from apps.registry.selectors import checkpoints
from apps.serving.models import Deployment
from apps.serving.selectors import deployments

SHOWN = 40
EACH = 8


@dataclass(frozen=True, slots=True)
class Item:
    """One entry. `post` acts at once, after `confirm` where there is one."""

    title: str
    hint: str
    icon: str
    url: str
    post: bool = False
    confirm: dict[str, str] | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON form for static/js/pieces/palette.js."""
        return {
            "title": self.title,
            "hint": self.hint,
            "icon": PATHS[self.icon],
            "url": self.url,
            "method": "post" if self.post else "get",
            "confirm": self.confirm,
        }


def items(person: User, allowed: frozenset[Action], words: str) -> list[Item]:
    """Entries for what was typed, objects first where something was typed. At most SHOWN."""
    fixed = [item for item in (*_pages(allowed), *_new(allowed)) if _fits(item, words)]
    if Action.VIEW not in allowed:
        return fixed
    objects = [*_deployments(allowed, words), *_builds(allowed, words), *_checkpoints(words), *_nodes(words)]
    if Action.CHAT in allowed:
        objects += _conversations(person, words)
    return ([*objects, *fixed] if words.strip() else [*fixed, *objects])[:SHOWN]


def _fits(item: Item, words: str) -> bool:
    text = f"{item.title} {item.hint}".lower()
    return all(word in text for word in words.lower().split())


def _pages(allowed: frozenset[Action]) -> Iterator[Item]:
    for place in PLACES:
        if place.needs in allowed:
            yield Item(str(place.label), f"g {place.key}", place.icon, place.url)


def _new(allowed: frozenset[Action]) -> Iterator[Item]:
    if Action.OPERATE in allowed:
        yield Item(_("New build"), _("action"), "plus", reverse("engines:new"))
    if Action.CONFIGURE in allowed:
        yield Item(_("Paste a build command"), _("action"), "plus", reverse("engines:paste"))
        yield Item(_("New deployment"), _("action"), "plus", reverse("serving:new"))
        yield Item(_("Register a checkpoint"), _("action"), "plus", reverse("registry:new"))
        yield Item(_("New alert rule"), _("action"), "plus", reverse("alerts:new_rule"))


def _deployments(allowed: frozenset[Action], words: str) -> Iterator[Item]:
    rows = list(lists.search(deployments(), words, ["name", "build_profile__checkpoint__name"])[:EACH])
    for row in rows:
        url = reverse("serving:deployment", args=[row.name])
        yield Item(row.name, _("deployment, %(state)s") % {"state": state_word(row.state)}, "deployment", url)
    if words.strip() and Action.OPERATE in allowed:
        for row in rows[:3]:
            yield _switch(row)


def _switch(row: Deployment) -> Item:
    name = {"name": row.name}
    if row.desired != Deployment.Desired.RUNNING:
        return Item(
            _("Deploy %(name)s") % name, _("action"), "play", reverse("serving:deploy", args=[row.name]), True
        )
    confirm = {
        "question": _("Stop %(name)s?") % name,
        "text": _("New requests are refused at once, those in flight finish, then the servers exit."),
        "yes": _("Stop"),
    }
    url = reverse("serving:stop", args=[row.name])
    return Item(_("Stop %(name)s") % name, _("action"), "stop", url, True, confirm)


def _builds(allowed: frozenset[Action], words: str) -> Iterator[Item]:
    rows = lists.search(builds(), words.replace("#", ""), ["checkpoint__name", "profile__name", "number"])[
        :EACH
    ]
    for row in rows:
        hint = _("build, %(state)s") % {"state": state_word(row.state)}
        yield Item(str(row), hint, "build", reverse("engines:build", args=[row.number]))
        if words.strip() and row.state in BUILD.active and Action.OPERATE in allowed:
            confirm = {
                "question": _("Cancel build #%(number)s?") % {"number": row.number},
                "text": _("Its processes are ended and what it has written so far is removed."),
                "yes": _("Cancel the build"),
            }
            title = _("Cancel build %(build)s") % {"build": row}
            yield Item(
                title, _("action"), "stop", reverse("engines:cancel", args=[row.number]), True, confirm
            )


def _checkpoints(words: str) -> Iterator[Item]:
    for row in lists.search(checkpoints(), words, ["name"])[:EACH]:
        hint = _("checkpoint, %(state)s") % {"state": state_word(row.state)}
        yield Item(row.name, hint, "checkpoint", reverse("registry:checkpoint", args=[row.name]))


def _nodes(words: str) -> Iterator[Item]:
    if words.strip():
        for row in lists.search(nodes(), words, ["node_id", "hostname"])[:EACH]:
            yield Item(
                str(row),
                _("node, %(state)s") % {"state": state_word(row.state)},
                "fleet",
                reverse("fleet:node", args=[row.node_id]),
            )


def _conversations(person: User, words: str) -> Iterator[Item]:
    for row in lists.search(conversations(person), words, ["title", "deployment__name", "external__name"])[
        :EACH
    ]:
        hint = _("conversation with %(name)s") % {"name": row.engine_name}
        yield Item(str(row), hint, "playground", reverse("chat:conversation", args=[row.pk]))
