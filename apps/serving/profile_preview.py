"""What a batching profile, saved or not, would give: consequences, what does nothing, memory, differences, files."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from apps.accounts.service_admin import Preview, PreviewPart
from apps.core.exceptions import Finding
from apps.serving import changes, memory_verdict, preview, revisions, selectors, trtllm_files
from apps.serving.domain import batching, consequences
from apps.serving.models import BatchingProfile

# A preview is no list.
SHOWN_DEPLOYMENTS = 8


def of_profile(profile: BatchingProfile) -> Preview:
    """Raises InvalidInput for values of which nothing can be made."""
    snapshot = revisions.batching_snapshot(profile)
    kind = trtllm_files.kind_of_profile(profile)
    parts = [
        PreviewPart(
            _("What follows"), sentences=tuple(consequences.consequences(snapshot, kind, _limits(profile)))
        ),
    ]
    idle = changes.idle_fields(profile)
    if idle:
        title = _t("Does nothing for: %(engine)s") % {"engine": profile.get_engine_display()}
        parts.append(PreviewPart(title, rows=tuple(idle.items())))
    if kind == "llamacpp":
        parts.append(PreviewPart(_("What the engine does"), rows=_embedded(snapshot)))
    parts += _memory(profile)
    return Preview((*parts, *_differences(profile), *_files(profile)))


def _limits(profile: BatchingProfile) -> consequences.Limits:
    """Of the first build that is deployed with the profile; nothing is known where there is none."""
    users = selectors.deployments().filter(batching=profile.pk) if profile.pk else []
    builds = (row.build_profile for row in users)
    found = next((build for build in builds if trtllm_files.engine_kind(build) == "trtllm"), None)
    return trtllm_files.limits(found)


def _embedded(snapshot: dict[str, Any]) -> tuple[tuple[Any, Any], ...]:
    facts = batching.facts(snapshot)
    return (
        (_("sequences at once (slots)"), facts.slots),
        (_("tokens per slot"), facts.context_per_slot),
        (_("tokens of all slots"), facts.slots * facts.context_per_slot),
        (_("threads"), facts.threads or _("every core")),
        (_("requests that may wait"), facts.max_queue_size),
    )


def _memory(profile: BatchingProfile) -> list[PreviewPart]:
    """The memory plan's verdict by checkpoint, and what else bites on this machine."""
    rows: list[tuple[Any, Any]] = []
    findings: dict[str, Finding] = {}
    for found in memory_verdict.verdicts(profile):
        word = {True: _t("fits"), False: _t("does not fit"), None: _t("not planned")}[found.fits]
        rows.append((found.checkpoint, f"{word}: {found.sentence} ({found.target})"))
        findings |= {item.id: item for item in found.findings}
    if trtllm_files.kind_of_profile(profile) == "llamacpp":
        own = preview.batching_findings(profile)
        findings |= {item.id: item for item in own if not item.id.endswith("_without_effect")}
    parts = [PreviewPart(_("Memory plan"), rows=tuple(rows))] if rows else []
    return [*parts, PreviewPart(_("Findings"), findings=tuple(findings.values()))] if findings else parts


def _differences(profile: BatchingProfile) -> list[PreviewPart]:
    if not profile.pk:
        return []
    parts = []
    for row in selectors.deployments().filter(batching=profile.pk).order_by("name")[:SHOWN_DEPLOYMENTS]:
        lines = changes.file_diff(row, profile)
        title = _t("%(name)s: files against what runs now") % {"name": row.name}
        parts.append(PreviewPart(title, "" if lines else _t("No difference."), code="\n".join(lines)))
    return parts


def _files(profile: BatchingProfile) -> list[PreviewPart]:
    return [PreviewPart(path, code=text) for path, text in preview.rendered_files(profile).items()]
