"""Fields of a form made from the flag tables: typed, with default, meaning, and which release has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from unfold.widgets import (
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from apps.engines.domain.trtllm.flag import OLDEST, Flag, Version, parse_version

BETWEEN = "__"


class WordsField(forms.CharField):
    """Several words, written with spaces or commas between them; a list of words as a value."""

    widget = UnfoldAdminTextInputWidget

    def prepare_value(self, value: Any) -> Any:
        """The list as it is written."""
        return " ".join(map(str, value)) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        """The words; None for none."""
        if isinstance(value, list):
            return value
        return str(value or "").replace(",", " ").split() or None

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare words, not texts."""
        return bool((initial or None) != self.to_python(data))


def name_of(section: str, flag: Flag) -> str:
    """Name of a flag's field."""
    return f"{section}{BETWEEN}{flag.name}"


def fields_of(section: str, flags: Iterable[Flag]) -> dict[str, forms.Field]:
    """A field for each flag, by its name in the form."""
    return {name_of(section, flag): field_of(flag) for flag in flags}


def groups_of(section: str, flags: Iterable[Flag], titles: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """(title, names of fields) of each group, in the order of the titles."""
    found: dict[str, list[str]] = {}
    for flag in flags:
        found.setdefault(flag.group, []).append(name_of(section, flag))
    return [(titles[group], found[group]) for group in titles if group in found]


def values_of(cleaned: Mapping[str, Any], section: str, flags: Iterable[Flag]) -> dict[str, Any]:
    """The flags that a form set, by their own names; empty fields and switches that are off say nothing."""
    found = {flag.name: cleaned.get(name_of(section, flag)) for flag in flags}
    return {name: value for name, value in found.items() if value not in (None, "", False, [])}


def field_of(flag: Flag) -> forms.Field:
    """A field of the flag's type; empty means the program's default."""
    common: dict[str, Any] = {"required": False, "label": flag.name, "help_text": help_of(flag)}
    hint = {"placeholder": _shown(flag.default)} if flag.default is not None else {}
    if flag.form == "switch":
        return forms.BooleanField(widget=UnfoldBooleanWidget, **common)
    if flag.form in ("choice", "onoff"):
        empty = _("default: %(value)s") % {"value": flag.default} if flag.default else _("not set")
        choices = [("", empty), *((choice, choice) for choice in flag.choices)]
        return forms.ChoiceField(choices=choices, widget=UnfoldAdminSelectWidget, **common)
    if flag.form == "int":
        return forms.IntegerField(
            min_value=_whole(flag.low),
            max_value=_whole(flag.high),
            widget=UnfoldAdminIntegerFieldWidget(attrs=hint),
            **common,
        )
    if flag.form == "float":
        return forms.FloatField(
            min_value=flag.low,
            max_value=flag.high,
            widget=UnfoldAdminDecimalFieldWidget(attrs={"step": "any", **hint}),
            **common,
        )
    if flag.form == "words":
        return WordsField(**common)
    return forms.CharField(max_length=1000, widget=UnfoldAdminTextInputWidget(attrs=hint), **common)


def help_of(flag: Flag) -> SafeString:
    """What stands beside the field: the sentence, the default, the releases, and what is not verified."""
    facts = [_("Default %(value)s.") % {"value": _shown(flag.default)}]
    if flag.was:
        facts.append(_("It was %(was)s.") % {"was": flag.was})
    if flag.choices and flag.form == "words":
        facts.append(_("Known: %(names)s.") % {"names": ", ".join(flag.choices)})
    if flag.since != OLDEST:
        facts.append(_("Since %(release)s.") % {"release": flag.since})
    if flag.until:
        facts.append(_("Until %(release)s.") % {"release": flag.until})
    if flag.unverified:
        facts.append(_("Not verified: %(what)s.") % {"what": flag.unverified})
    return format_html(
        '<span class="inf-flag" data-flag="{}" data-since="{}" data-until="{}">{} '
        '<span class="inf-flag-facts">{}</span>'
        '<span class="inf-flag-away" hidden>{}</span><span class="inf-flag-say" role="status"></span></span>',
        flag.name,
        flag.since if flag.since != OLDEST else "",
        flag.until,
        flag.does,
        " ".join(facts),
        away(flag),
    )


def away(flag: Flag) -> str:
    """Why a release does not have the flag."""
    if flag.until:
        return _("The chosen release does not have it: gone in %(release)s.") % {"release": flag.until}
    return _("The chosen release does not have it: it came with %(release)s.") % {"release": flag.since}


def known_in(flag: Flag, release: str) -> bool:
    """Whether a release, as typed, has the flag; an unreadable one has all."""
    try:
        version: Version = parse_version(release)
    except ValueError:
        return True
    return flag.known_in(version)


def _shown(value: Any) -> str:
    if value is None:
        return _("not set")
    if isinstance(value, bool):
        return _("on") if value else _("off")
    return f"{value:g}" if isinstance(value, float) else str(value)


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)
