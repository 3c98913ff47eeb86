"""Markup of many nodes at once. Written here and not in a template: 4,000 slots have to be drawn in a moment."""

from __future__ import annotations

from collections.abc import Sequence

from django.urls import reverse
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from apps.dashboard import words
from apps.dashboard.fleet.map import Host, Slot
from apps.dashboard.icons import SHAPES
from apps.fleet.models import Gpu

_PLACE = "__node__"


def markup(found: Sequence[Host]) -> SafeString:
    """One link for each node: its state's shape, its name, and a bar for each slot."""
    address = reverse("fleet:node", args=[_PLACE])
    return mark_safe("".join(_node(host, address) for host in found))  # noqa: S308 - every text is escaped


def _node(host: Host, address: str) -> str:
    node = host.node
    state = words.state_word(node.state)
    title = escape(f"{node}: {state}, {host.summary}")
    return (
        f'<a class="map-node" data-key="node-{node.pk}" href="{address.replace(_PLACE, escape(node.node_id))}"'
        f' title="{title}" aria-label="{title}">'
        f'<span class="map-name"><span class="map-shape map-{node.tone}"><svg viewBox="0 0 10 10" '
        f'aria-hidden="true">{SHAPES[node.tone]}</svg></span><span class="ellipsis">{escape(node)}</span></span>'
        f'<span class="map-bars{" map-cordoned" if node.cordoned else ""}">'
        f"{''.join(_bar(slot) for slot in host.slots)}</span></a>"
    )


def _bar(slot: Slot) -> str:
    level = slot.level if slot.gpu.condition == Gpu.Condition.OK else "lost"
    return f'<i class="bar-{level}"><b style="height:{slot.percent}%"></b></i>'
