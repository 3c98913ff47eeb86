"""The list of builds, narrowed: what page, API and command line ask for."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field

from apps.core import clock
from apps.core.exceptions import InvalidInput
from apps.engines.models import Build, BuildProfile
from apps.engines.states import BUILD
from apps.registry.models import Checkpoint

ACTIVE = "active"
# `12h`, `7d`, `4w`: builds asked for within that time.
PERIOD = re.compile(r"(?P<number>[1-9]\d{0,3})(?P<unit>[hdw])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
MAX_WORDS = 8
_NUMBER = re.compile(r"#?(?P<number>\d{1,9})")


class BuildFilter(BaseModel):
    """What a list of builds is narrowed to; an empty text narrows nothing.

    `state` may be `active`; `period` is a number of hours, days or weeks before now (12h, 7d, 4w); `q` are words that
    must all be found in checkpoint, profile, fingerprint, reason or sentence, or be the build's number.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", str_strip_whitespace=True)

    state: str = Field("", max_length=30)
    profile: str = Field("", max_length=63)
    checkpoint: str = Field("", max_length=63)
    builder: str = Field("", max_length=20)
    recipe: str = Field("", max_length=12)
    type: str = Field("", max_length=20, description="Weight type or format.")
    node: str = Field("", max_length=40)
    who: str = Field("", max_length=150, description="Who asked for it.")
    period: str = Field("", max_length=10, description="Asked for within: 12h, 7d, 4w.")
    q: str = Field("", max_length=200)


def narrowed(rows: QuerySet[Build], wanted: BuildFilter) -> QuerySet[Build]:
    """Only the rows that fit. Raises InvalidInput for a state or a period that cannot be."""
    rows = _by_state(rows, wanted.state)
    exact: dict[str, Any] = {
        "profile__name": wanted.profile,
        "checkpoint__name": wanted.checkpoint,
        "builder": wanted.builder,
        "recipe": wanted.recipe,
        "quantization": wanted.type,
        "node__node_id": wanted.node,
        "requested_by__username": wanted.who,
    }
    rows = rows.filter(**{name: value for name, value in exact.items() if value})
    if wanted.period:
        rows = rows.filter(created_at__gte=since(wanted.period))
    for word in wanted.q.split()[:MAX_WORDS]:
        rows = rows.filter(_word(word))
    return rows


def since(period: str) -> datetime:
    """The beginning of a period that ends now. Raises InvalidInput."""
    match = PERIOD.fullmatch(period)
    if match is None:
        raise InvalidInput(
            "period_unknown",
            _("%(period)s is no period.") % {"period": repr(period)},
            field="period",
            remedy=_("Write a number of hours, days or weeks: 12h, 7d, 4w."),
        )
    return clock.now() - int(match["number"]) * _UNITS[match["unit"]]


def requesters() -> QuerySet[User]:
    """People who asked for a build, by name."""
    asked = Build.objects.order_by().values("requested_by").distinct()
    return User.objects.filter(pk__in=asked).order_by("username")


def _by_state(rows: QuerySet[Build], state: str) -> QuerySet[Build]:
    if not state:
        return rows
    if state == ACTIVE:
        return rows.filter(state__in=BUILD.active)
    if state not in BUILD.values:
        raise InvalidInput(
            "state_unknown",
            _("There is no state %(state)s.") % {"state": repr(state)},
            field="state",
            remedy=_("Use one of %(states)s.") % {"states": ", ".join((ACTIVE, *BUILD.values))},
        )
    return rows.filter(state=state)


def _word(word: str) -> Q:
    """Names are looked up in their own small tables, not in the join of each build."""
    found = Q(checkpoint__in=Checkpoint.objects.filter(name__icontains=word).values("pk"))
    found |= Q(profile__in=BuildProfile.objects.filter(name__icontains=word).values("pk"))
    found |= Q(sentence__icontains=word) | Q(reason__icontains=word) | Q(fingerprint__startswith=word)
    number = _NUMBER.fullmatch(word)
    return found | Q(number=int(number["number"])) if number else found
