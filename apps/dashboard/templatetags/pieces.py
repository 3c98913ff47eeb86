"""The pieces that every page is made of. Each exists once; templates/pieces/ holds the markup."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from django import template
from django.forms import BoundField
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from apps.dashboard import formats, sparklines, words
from apps.dashboard.icons import PATHS, SHAPES
from apps.dashboard.stages import Stage

register = template.Library()


@register.simple_tag
def icon(name: str, label: str = "") -> SafeString:
    """An icon; without a label it says nothing to a screen reader."""
    hidden = format_html('role="img" aria-label="{}"', label) if label else mark_safe('aria-hidden="true"')
    return format_html('<svg class="icon" viewBox="0 0 16 16" {}><path d="{}"/></svg>', hidden, PATHS[name])


@register.simple_tag
def chip(state: str, tone: str = "idle", title: str = "") -> SafeString:
    """State chip: word, colour and shape."""
    return format_html(
        '<span class="chip chip-{}"{}><svg viewBox="0 0 10 10" aria-hidden="true">{}</svg>{}</span>',
        tone,
        format_html(' title="{}"', title) if title else "",
        mark_safe(SHAPES[tone]),  # noqa: S308 - constants of this program
        words.state_word(state),
    )


@register.simple_tag
def shape(tone: str) -> SafeString:
    """The shape of a tone alone, for a stage or a list."""
    return format_html('<svg viewBox="0 0 10 10" aria-hidden="true">{}</svg>', mark_safe(SHAPES[tone]))  # noqa: S308


@register.simple_tag
def sparkline(
    values: Iterable[float | None], inline: bool = False, label: str = "", top: float | None = None
) -> SafeString:
    """A line without axes; gaps stay gaps. `label` says in words what it shows, `top` sets its scale."""
    return format_html(
        '<svg class="spark{}" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<path d="{}"/></svg>',
        " spark-inline" if inline else "",
        label,
        sparklines.path(list(values), top),
    )


@register.inclusion_tag("pieces/tile.html")
def tile(spec: sparklines.Tile) -> dict[str, Any]:
    """Stat tile: label, figure with unit, note, sparkline."""
    return {"tile": spec}


@register.inclusion_tag("pieces/progress.html")
def progress(
    share: float | None,
    eta: float | None = None,
    rate: float | None = None,
    inline: bool = False,
    label: str = "",
) -> dict[str, Any]:
    """Progress bar with rate (B/s) and ETA (s); a share of None means that nobody can tell."""
    return {
        "share": share,
        "percent": None if share is None else min(100.0, max(0.0, share * 100)),
        "eta": formats.duration(eta) if eta is not None else "",
        "rate": f"{formats.filesize(rate)}/s" if rate else "",
        "inline": inline,
        "label": label,
    }


@register.inclusion_tag("pieces/stages.html")
def stage_rail(stages: Iterable[Stage]) -> dict[str, Any]:
    """Stages with their times; the current one moves, the failed one stands open."""
    return {"stages": list(stages)}


@register.inclusion_tag("pieces/kv.html")
def kv(rows: Iterable[tuple[Any, ...]]) -> dict[str, Any]:
    """Key-value list from (key, value) or (key, value, text to copy)."""
    return {
        "rows": [{"key": row[0], "value": row[1], "copy": row[2] if len(row) > 2 else ""} for row in rows]
    }


@register.inclusion_tag("pieces/command.html")
def command(
    argv: Iterable[str] | str, title: str = "", flags: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Command box with copy; `flags` explains words of it on hover."""
    import shlex

    parts = [argv] if isinstance(argv, str) else list(argv)
    text = argv if isinstance(argv, str) else shlex.join(parts)
    known = flags or {}
    shown = [
        {
            "text": part if isinstance(argv, str) else shlex.quote(part),
            "title": known.get(part.split("=")[0], ""),
        }
        for part in parts
    ]
    return {"parts": shown, "text": text, "title": title}


@register.inclusion_tag("pieces/empty.html")
def empty(title: str, text: str, url: str = "", action: str = "") -> dict[str, Any]:
    """Empty state: what this is and the one next step."""
    return {"title": title, "text": text, "url": url, "action": action}


@register.inclusion_tag("pieces/field.html")
def field(bound: BoundField, suffix: str = "") -> dict[str, Any]:
    """A labelled form field with its help and errors, wired for screen readers."""
    bound.field.widget.attrs.setdefault("class", _control_class(bound))
    described = [f"{bound.auto_id}-help"] if bound.help_text else []
    if bound.errors:
        described.append(f"{bound.auto_id}-error")
        bound.field.widget.attrs["aria-invalid"] = "true"
    if described:
        bound.field.widget.attrs["aria-describedby"] = " ".join(described)
    return {
        "bound": bound,
        "suffix": suffix,
        "choices": getattr(bound.field.widget, "input_type", "") == "radio",
    }


def _control_class(bound: BoundField) -> str:
    kind = type(bound.field.widget).__name__
    return "textarea" if "Textarea" in kind else "select" if "Select" in kind else "input"


@register.inclusion_tag("pieces/findings.html")
def findings(items: Iterable[Any]) -> dict[str, Any]:
    """Findings of a check, worst first."""
    order = {"error": 0, "warning": 1, "info": 2}
    plain = [item if isinstance(item, dict) else item.as_dict() for item in items]
    return {"items": sorted(plain, key=lambda item: order.get(str(item.get("severity")), 3))}


@register.inclusion_tag("pieces/log.html")
def log_view(topic: str, url: str, tail: str, lines_before: int = 0, live: bool = True) -> dict[str, Any]:
    """Log view: the tail is in the page, the rest comes from `url`, new lines over the live topic."""
    return {
        "topic": topic,
        "url": url,
        "tail": tail,
        "lines_before": lines_before,
        "live": live,
        "id": f"log-{topic.replace(':', '-')}",
    }


@register.inclusion_tag("pieces/diff.html")
def diff(lines: Iterable[str]) -> dict[str, Any]:
    """Unified diff with a mark in words and colour."""
    kinds = {"+": "add", "-": "del", "@": "hunk"}
    return {
        "lines": [{"mark": line[:1], "text": line[1:], "kind": kinds.get(line[:1], "same")} for line in lines]
    }


@register.inclusion_tag("pieces/chart.html")
def chart(spec: Mapping[str, Any], tall: bool = False) -> dict[str, Any]:
    """Chart card around a figure of apps.dashboard.charts; `tall` for several rows over one axis."""
    return {"chart": spec, "tall": tall}


@register.inclusion_tag("pieces/pages.html", takes_context=True)
def pages(context: dict[str, Any], page: Any) -> dict[str, Any]:
    """Pagination that keeps the filters of the URL."""
    return {"page": page, "request": context["request"]}


@register.simple_tag
def unique_id(prefix: str) -> str:
    """An id that is unique in the page."""
    return f"{prefix}-{secrets.token_hex(3)}"
