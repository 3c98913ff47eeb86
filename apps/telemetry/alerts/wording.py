"""Figures and sentences of alerts, as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.telemetry.domain.alerting.conditions import (
    Absence,
    AnyCondition,
    BurnRate,
    Change,
    Events,
    InState,
    Threshold,
)
from apps.telemetry.domain.alerting.judge import Verdict
from apps.telemetry.domain.vocabulary import BY_NAME
from apps.telemetry.titles import TITLES

THIN = "\u202f"
_EVENTS = {
    "instance_restart": ("%(count)d restart", "%(count)d restarts"),
    "instance_failure": ("%(count)d failed server", "%(count)d failed servers"),
    "deployment_failure": ("%(count)d failure", "%(count)d failures"),
}


def figure(value: float | None, unit: str) -> str:
    """A value with its unit: 2 410 ms, 97%, 61.3 GiB; absent is a dash."""
    if value is None:
        return "\u2013"
    if unit == "share":
        return f"{value * 100:.3g}%"
    if unit == "By":
        return f"{value / 2**30:.3g}{THIN}GiB"
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2
    text = f"{value:,.{digits}f}".replace(",", THIN)
    text = text.rstrip("0").rstrip(".") if "." in text else text
    shown = {"1": "", "1/s": "/s", "Cel": "°C"}.get(unit, unit)
    return f"{text}{THIN}{shown}" if shown else text


def duration(seconds: float) -> str:
    """30 s, 2 min, 1 h, 3 d."""
    for size, word in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{THIN}{word}"
    return f"{seconds:.0f}{THIN}s"


def unit_of(condition: Mapping[str, Any]) -> str | None:
    """Unit of an alert's value: of the metric, `share` for ratios, null for what is counted or has no value."""
    kind, key = condition.get("kind"), str(condition.get("key") or "")
    if kind in {"threshold", "change"} and key in BY_NAME:
        if condition.get("per") or BY_NAME[key].kind in {"ratio", "flag"}:
            return "share" if BY_NAME[key].unit == "1" or condition.get("per") else BY_NAME[key].unit
        return BY_NAME[key].unit
    return "s" if kind == "absence" else None


def title_of(key: str) -> str:
    """A metric's title."""
    return str(TITLES[key]) if key in TITLES else key


def _measured(condition: Threshold) -> str:
    if condition.per is None:
        return title_of(condition.key)
    return _("%(part)s per %(whole)s") % {"part": title_of(condition.key), "whole": title_of(condition.per)}


def sentence(condition: AnyCondition, verdict: Verdict) -> str:
    """What was seen, with the figures."""
    unit = unit_of(condition.model_dump()) or "1"
    facts = {"value": figure(verdict.value, unit), "limit": figure(verdict.limit, unit)}
    if isinstance(condition, Threshold):
        text = (
            _("%(what)s is %(value)s, above %(limit)s.")
            if condition.compare == "above"
            else _("%(what)s is %(value)s, below %(limit)s.")
        )
        return text % {**facts, "what": _measured(condition)}
    if isinstance(condition, Change):
        text = (
            _("%(what)s rose to %(value)s from %(before)s before.")
            if condition.direction == "rise"
            else _("%(what)s fell to %(value)s from %(before)s before.")
        )
        before = figure(verdict.facts.get("baseline"), unit)
        return text % {**facts, "what": title_of(condition.key), "before": before}
    return _without_metric(condition, verdict, facts)


def _without_metric(condition: AnyCondition, verdict: Verdict, facts: dict[str, str]) -> str:
    if isinstance(condition, Absence):
        if condition.key:
            return _("No value of %(what)s for %(value)s.") % {**facts, "what": title_of(condition.key)}
        return _("No sample for %(value)s.") % facts
    if isinstance(condition, Events):
        one, many = _EVENTS[condition.event]
        count = int(verdict.value or 0)
        times = ngettext(one, many, count) % {"count": count}
        return _("%(times)s within %(window)s.") % {
            "times": times,
            "window": duration(condition.within_seconds),
        }
    if isinstance(condition, InState):
        return _("It is %(state)s.") % {"state": verdict.facts.get("state", "")}
    assert isinstance(condition, BurnRate)  # noqa: S101 - the kinds end here
    return _("The error budget of %(objective)s burns %(value)s times too fast (limit %(limit)s).") % {
        **facts,
        "objective": figure(condition.objective, "share"),
    }


def describe(condition: AnyCondition) -> str:
    """A condition in one line, for lists."""
    unit = unit_of(condition.model_dump()) or "1"
    if isinstance(condition, Threshold):
        sign = ">" if condition.compare == "above" else "<"
        return f"{_measured(condition)} {sign} {figure(condition.value, unit)}"
    if isinstance(condition, Change):
        by = figure(condition.by, "share" if condition.relative else unit)
        word = _("rises by") if condition.direction == "rise" else _("falls by")
        return f"{title_of(condition.key)} {word} {by}"
    if isinstance(condition, Absence):
        what = title_of(condition.key) if condition.key else _("samples")
        return _("no %(what)s for %(time)s") % {"what": what, "time": duration(condition.seconds)}
    if isinstance(condition, Events):
        one, many = _EVENTS[condition.event]
        times = ngettext(one, many, condition.count) % {"count": condition.count}
        return f"≥ {times} / {duration(condition.within_seconds)}"
    if isinstance(condition, InState):
        return _("is %(states)s") % {"states": _(" or ").join(condition.states)}
    what = {"errors": _("failed requests")}.get(condition.indicator, condition.indicator.upper())
    limit = f" > {figure(condition.limit_ms, 'ms')}" if condition.limit_ms else ""
    return _("budget of %(objective)s burns: %(what)s") % {
        "objective": figure(condition.objective, "share"),
        "what": f"{what}{limit}",
    }
