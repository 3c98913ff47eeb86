"""All charts of a deployment's page, for the first paint and as JSON for the scripts."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _

from apps.dashboard import samples
from apps.dashboard.charts import cards, distributions, marks, panels, prices, ranges, source
from apps.dashboard.charts.distributions import BatchLimits
from apps.dashboard.charts.panels import Section
from apps.dashboard.charts.ranges import TimeRange
from apps.serving.models import Deployment
from apps.telemetry.history import Scope


def context(row: Deployment, chosen: TimeRange, now: float) -> dict[str, Any]:
    """Context of the Live tab."""
    sections = _sections(row)
    keys = _keys(sections)
    frame = source.frame(Scope("deployment", row.pk), chosen, keys)
    compare = source.compared(Scope("deployment", row.pk), chosen, keys)
    groups = [
        {
            "id": section.id,
            "title": section.title,
            "cards": [cards.line_card([panel], frame) for panel in section.panels],
        }
        for section in sections
    ]
    _put_distributions(groups, row, chosen)
    return {
        "chosen": chosen,
        "groups": groups,
        "ranges": ranges.choices(chosen),
        "compared": ranges.compared_choices(chosen),
        "marks": marks.of(row, chosen.since, chosen.until),
        "charts_page": cards.page_spec(
            frame,
            now,
            chosen.seconds,
            f"metrics:{row.pk}" if chosen.live else "",
            fixed=None if chosen.live else [chosen.since, chosen.until],
            compare=compare.as_json() if compare else None,
            compare_name=chosen.compare,
            data_url=reverse("serving:live_data", args=[row.name]),
            query=chosen.query,
        ),
    }


def data(row: Deployment, chosen: TimeRange, whole: bool) -> dict[str, Any]:
    """What the scripts fetch again: what no sample carries, the compared period, and where `whole` all figures."""
    keys = _keys(_sections(row))
    scope = Scope("deployment", row.pk)
    compare = source.compared(scope, chosen, keys)
    return {
        "frame": source.frame(scope, chosen, keys).as_json() if whole else None,
        "compare": compare.as_json() if compare else None,
        "cards": {"chart-heat": _heats(row, chosen), "chart-sizes": _bars(row, chosen)},
    }


def _sections(row: Deployment) -> tuple[Section, ...]:
    price = prices.of(row)
    missing = (
        _("Set the price per hour of %(slots)s.") % {"slots": ", ".join(price.missing)}
        if price.missing
        else _("No server runs, so nothing is paid for.")
    )
    url = reverse("fleet:fleet") if price.missing else ""
    return panels.deployment_sections(samples.on_gpu(row), panels.cost(price.per_hour, missing, url))


def _keys(sections: tuple[Section, ...]) -> list[str]:
    return cards.keys_of(panel for section in sections for panel in section.panels)


def _put_distributions(groups: list[dict[str, Any]], row: Deployment, chosen: TimeRange) -> None:
    """The heat map stands first under latency, the batch sizes first under batching."""
    found = {group["id"]: group["cards"] for group in groups}
    found["latency"].insert(0, distributions.heat_card(_heats(row, chosen)))
    found["batching"].insert(0, distributions.bars_card(_bars(row, chosen), limits(row)))


def _heats(row: Deployment, chosen: TimeRange) -> dict[str, dict[str, Any]]:
    return {
        name: distributions.heat_json(source.distribution(Scope("deployment", row.pk), name, chosen))
        for name in distributions.HEATS
    }


def _bars(row: Deployment, chosen: TimeRange) -> dict[str, Any]:
    found = source.distribution(Scope("deployment", row.pk), "batch_size", chosen)
    return distributions.bars_json(found, limits(row))


def limits(row: Deployment) -> BatchLimits:
    """What the revision that serves allows and prefers; of the profile where none serves yet."""
    profile = row.batching
    given: dict[str, Any] = row.active_revision.batching if row.active_revision else {}
    sizes = given.get("preferred_batch_sizes", [] if given else profile.preferred_batch_sizes) or []
    strategy = str(given.get("strategy", profile.strategy))
    most = 1 if strategy == "none" else int(given.get("max_batch_size", profile.max_batch_size))
    return BatchLimits(most, tuple(int(size) for size in sizes), strategy)
