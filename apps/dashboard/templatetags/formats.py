"""Filters that write figures and times; apps.dashboard.formats does the work."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from functools import wraps
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.dashboard import formats, words

register = template.Library()


def _figure(write: Callable[..., Any]) -> Callable[..., Any]:
    """The filter of a figure: a template gives an empty text for what a row lacks, which is absent, not zero."""

    @wraps(write)
    def filtered(value: Any, *args: Any) -> Any:
        return write(None if value == "" else value, *args)

    return filtered


for _write in (
    formats.grouped,
    formats.significant,
    formats.filesize,
    formats.memory,
    formats.count,
    formats.megabytes,
    formats.gibibytes,
    formats.percent,
    formats.change,
    formats.duration,
):
    register.filter(_write.__name__, _figure(_write))
register.filter("state_word", words.state_word)
register.filter("kind_word", words.kind_word)


@register.filter
def took(moment: datetime | None, end: datetime | None = None) -> str:
    """Length of time from `moment` to `end` (default: now)."""
    return formats.duration(formats.since(moment or None, end or None))


@register.filter
def when(moment: datetime | None) -> SafeString | str:
    """Relative time with the exact one on hover; static/js/pieces/times.js keeps it fresh."""
    if not moment:
        return formats.ABSENT
    exact = timezone.localtime(moment)
    return format_html(
        '<time datetime="{}" title="{}" data-when>{}</time>',
        exact.isoformat(timespec="seconds"),
        exact.strftime("%Y-%m-%d %H:%M:%S %Z"),
        formats.relative(moment),
    )


@register.filter
def price(value: Decimal | None) -> str:
    """2.4900 -> "2.49", as a person types it; nothing where it is not known."""
    return "" if value is None else f"{value.normalize():f}"


@register.filter
def unlocalised(value: float) -> str:
    """A number for a script: whole, with a point whatever the language."""
    return f"{value:.3f}".rstrip("0").rstrip(".")


@register.filter
def as_json(value: Any) -> str:
    """Indented JSON, for manifests and rendered files."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str, sort_keys=True)


@register.filter
def get(mapping: dict[Any, Any] | None, key: Any) -> Any:
    """Value of a key, or None."""
    return None if mapping is None else mapping.get(key)
