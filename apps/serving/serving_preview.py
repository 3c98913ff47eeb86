"""What a deployment, saved or not, would give."""

from __future__ import annotations

from typing import Any

from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext_lazy as _

from apps.accounts.service_admin import Preview, PreviewPart
from apps.engines import selectors as engines
from apps.serving import preview, reach, revisions, selectors
from apps.serving.models import Deployment

# Checkpoints for which the memory of a profile is worked out; the preview is no list.
SHOWN_CHECKPOINTS = 8


def _files(files: dict[str, str]) -> list[PreviewPart]:
    return [PreviewPart(path, code=text) for path, text in files.items()]


def of_deployment(row: Deployment) -> Preview:
    """What deploy would change, and the files that Triton would read."""
    if not (row.build_profile_id or row.repository_id) or not row.batching_id:
        return Preview()
    checkpoint = row.checkpoint
    parts = [_outcome(row)]
    size = preview.kv_cache_bytes(row.batching, checkpoint) if checkpoint is not None else None
    if size is not None:
        each = (_("KV cache of each server"), filesizeformat(size))
        total = (_("of all servers"), filesizeformat(size * max(1, row.replicas or 1)))
        parts.append(PreviewPart(_("Memory"), rows=(each, total)))
    findings = preview.batching_findings(row.batching, checkpoint) if checkpoint is not None else []
    if findings:
        parts.append(PreviewPart(_("Findings"), findings=tuple(findings)))
    found = reach.of(row)
    parts.append(PreviewPart(_("Priorities"), text=f"{found.sentence} {found.remedy}".strip()))
    if row.name:
        parts += _files(preview.rendered_files(row))
    return Preview(tuple(parts))


def _outcome(row: Deployment) -> PreviewPart:
    title = _("Deploying this would")
    wanted = revisions.present(row)
    if wanted is None and row.build_profile is not None:
        active = engines.active_build(row.build_profile)
        if active is not None:
            return PreviewPart(
                title,
                _("wait for build #%(number)s, which is making its engine.") % {"number": active.number},
            )
        return PreviewPart(
            title, _("start a build of %(name)s and wait for its engine.") % {"name": row.build_profile.name}
        )
    wanted = wanted or {}
    target = selectors.target_revision(row) if row.pk else None
    if target is None:
        engine = wanted.get("engine")
        return PreviewPart(
            title, _("start revision 1 with %(what)s.") % {"what": str(engine) if engine else row.serves}
        )
    changes = tuple(_changes({key: getattr(target, key) for key in wanted}, wanted))
    if not changes:
        return PreviewPart(
            title, _("change nothing: revision %(number)s is this.") % {"number": target.number}
        )
    same = revisions.matching(row, wanted)
    if same is not None:
        text = _("run revision %(number)s again, with these changes against revision %(now)s:")
        return PreviewPart(title, text % {"number": same.number, "now": target.number}, changes=changes)
    text = _("start a new revision, with these changes against revision %(now)s:")
    return PreviewPart(title, text % {"now": target.number}, changes=changes)


def _changes(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    found = []
    for key, wanted in after.items():
        given = before.get(key)
        if isinstance(wanted, dict) and isinstance(given, dict):
            found += [(f"{key}.{path}", old, new) for path, old, new in _changes(given, wanted)]
        elif given != wanted:
            found.append((key, str(given) if given is not None else None, str(wanted)))
    return found
