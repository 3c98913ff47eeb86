"""Where a person can go: one list for the rail, the palette and the keyboard."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from apps.accounts.roles import Action
from apps.dashboard.access import actions_of


@dataclass(frozen=True, slots=True)
class Place:
    """One entry of the rail. `key` is the letter after `g`; `first`: a phone's bottom bar has room for it."""

    name: str
    label: Promise
    icon: str
    view: str
    key: str
    needs: Action
    first: bool = False

    @property
    def url(self) -> str:
        """Address of the page."""
        return reverse(self.view)


PLACES = (
    Place("overview", _("Overview"), "overview", "dashboard:overview", "o", Action.VIEW, first=True),
    Place("checkpoints", _("Checkpoints"), "checkpoint", "registry:checkpoints", "c", Action.VIEW),
    Place("builds", _("Builds"), "build", "engines:builds", "b", Action.VIEW, first=True),
    Place("planner", _("Planner"), "table", "planner:planner", "l", Action.VIEW),
    Place("deployments", _("Deployments"), "deployment", "serving:deployments", "d", Action.VIEW, first=True),
    Place("playground", _("Playground"), "playground", "chat:playground", "p", Action.CHAT, first=True),
    Place("loads", _("Load tests"), "gauge", "loadtests:tests", "t", Action.VIEW),
    Place("metrics", _("Metrics"), "metrics", "metrics:metrics", "m", Action.VIEW),
    Place("fleet", _("Fleet"), "fleet", "fleet:fleet", "f", Action.VIEW),
    Place("gateway", _("Gateway"), "gateway", "gateway:keys", "k", Action.VIEW),
    Place("settings", _("Settings"), "settings", "admin:index", "s", Action.CONFIGURE),
)


def places(request: HttpRequest) -> list[Place]:
    """Entries that the person may open."""
    allowed = actions_of(request)
    return [place for place in PLACES if place.needs in allowed]
