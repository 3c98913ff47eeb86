"""Cron lines as people write them: five fields, parsed with Celery's own parser, and a time zone of the IANA."""

from __future__ import annotations

import re
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from celery.schedules import ParseException, crontab_parser
from django.utils.translation import gettext as _

from apps.core.exceptions import InvalidInput
from apps.serving.domain.schedule import Cron

_NUMBERS, _NAMES = r"\d+", r"(?:\d+|[a-z]{3})"
# Label, how many values, the first of them, and what a value looks like. Celery's parser passes over what follows a
# step, so that each part is looked at here before.
_FIELDS = (
    ("minute", 60, 0, _NUMBERS),
    ("hour", 24, 0, _NUMBERS),
    ("day of the month", 31, 1, _NUMBERS),
    ("month", 12, 1, _NAMES),
    ("day of the week", 7, 0, _NAMES),
)


@lru_cache(maxsize=256)
def parse(text: str) -> Cron:
    """The moments of a line as `0 8 * * mon-fri`. Raises InvalidInput naming the field of the line."""
    words = text.lower().split()
    if len(words) != len(_FIELDS):
        raise _refused(
            _("A schedule has five fields, here are %(count)d: %(text)s.")
            % {"count": len(words), "text": text}
        )
    found = [_field(word, *field) for word, field in zip(words, _FIELDS, strict=True)]
    minutes, hours, days, months, weekdays = found
    return Cron(minutes, hours, days, months, weekdays, either_day=words[2] != "*" and words[4] != "*")


def _field(word: str, label: str, count: int, first: int, value: str) -> frozenset[int]:
    part = rf"(?:\*|{value}(?:-{value})?)(?:/[1-9]\d*)?"
    try:
        if not re.fullmatch(rf"{part}(?:,{part})*", word):
            raise ValueError(word)
        return frozenset(crontab_parser(count, first).parse(word))
    except (ValueError, ParseException) as error:
        raise _refused(
            _("%(word)s is no %(label)s of a schedule (%(first)d to %(last)d).")
            % {"word": word, "label": label, "first": first, "last": first + count - 1}
        ) from error


def _refused(sentence: str) -> InvalidInput:
    return InvalidInput(
        "schedule_form",
        sentence,
        field="at",
        remedy=_("Write minute, hour, day of the month, month and day of the week, as 0 8 * * mon-fri."),
    )


def check_timezone(name: str) -> str:
    """The name of a time zone. Raises InvalidInput."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput(
            "timezone_unknown",
            _("There is no time zone %(name)s.") % {"name": name},
            field="timezone",
            remedy=_("Give a name as Europe/Berlin, America/New_York or UTC."),
        ) from error
    return name
