"""What changing a batching profile would do: the fields, the files of each deployment that uses it, what restarts."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.accounts.roles import Action, require
from apps.core.exceptions import Finding, InflightError
from apps.serving import inputs, preview, selectors, trtllm_files, versions
from apps.serving.domain import acting
from apps.serving.models import BatchingProfile, Deployment


@dataclass(frozen=True, slots=True)
class Affected:
    """One deployment that uses the profile: what becomes of it, and the unified diff of its files."""

    deployment: str
    running: bool
    servers: int
    restarts: bool
    sentence: str
    diff: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "deployment": self.deployment,
            "running": self.running,
            "servers": self.servers,
            "restarts": self.restarts,
            "sentence": self.sentence,
            "diff": list(self.diff),
        }


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """`token` names this very change: what is confirmed by it is refused once something else was saved meanwhile."""

    changes: dict[str, list[Any]]
    affected: tuple[Affected, ...]
    idle: dict[str, str]
    findings: tuple[Finding, ...]
    token: str

    @property
    def sentences(self) -> list[str]:
        """What restarts or reloads, one sentence a deployment."""
        if not self.affected:
            return [_("No deployment uses it: nothing restarts or reloads.")]
        return [item.sentence for item in self.affected]

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "changes": [
                {"field": field, "before": before, "after": after}
                for field, (before, after) in self.changes.items()
            ],
            "deployments": [item.as_dict() for item in self.affected],
            "sentences": self.sentences,
            "idle": self.idle,
            "findings": [found.as_dict() for found in self.findings],
            "token": self.token,
        }


def plan_batching_profile(
    actor: User | str, data: Mapping[str, Any], instance: BatchingProfile
) -> ChangePlan:
    """What `save_batching_profile` with the same data would do. Saves nothing; raises InvalidInput as it does."""
    require(actor, Action.CONFIGURE)
    changed = BatchingProfile.objects.get(pk=instance.pk)
    changes = inputs.assign(changed, data, inputs.PROFILE_FIELDS)
    return plan_of(changed, changes)


def plan_of(changed: BatchingProfile, changes: dict[str, list[Any]]) -> ChangePlan:
    """The plan of a row whose values are already the new ones."""
    affected = tuple(_affected(row, changed) for row in _users(changed)) if changes else ()
    return ChangePlan(
        changes=changes,
        affected=affected,
        idle=idle_fields(changed),
        findings=tuple(preview.batching_findings(changed)),
        token=versions.token_of(changed.pk, changes),
    )


def idle_fields(profile: BatchingProfile) -> dict[str, str]:
    """{field: reason} of what is set and does nothing for the engine that the profile names."""
    values = {field: getattr(profile, field) for field in inputs.PROFILE_FIELDS}
    return acting.set_without_effect(values, trtllm_files.kind_of_profile(profile))


def _users(profile: BatchingProfile) -> list[Deployment]:
    return list(selectors.deployments().filter(batching=profile.pk).order_by("name"))


def _affected(row: Deployment, changed: BatchingProfile) -> Affected:
    running = row.desired == Deployment.Desired.RUNNING
    servers = selectors.live_instances(row).count()
    diff = file_diff(row, changed)
    restarts = running and servers > 0
    return Affected(row.name, running, servers, restarts, _sentence(row, servers, running, bool(diff)), diff)


def _sentence(row: Deployment, servers: int, running: bool, differs: bool) -> str:
    if not running:
        return _("%(name)s is stopped: nothing restarts; it starts with the new settings.") % {
            "name": row.name
        }
    if not servers:
        return _("%(name)s has no server yet: nothing restarts before the next Deploy.") % {"name": row.name}
    what = ngettext(
        "%(name)s: its %(count)d server goes on unchanged until Deploy is pressed; then it is restarted with the new "
        "settings. The model is loaded anew; requests in flight finish first.",
        "%(name)s: its %(count)d servers go on unchanged until Deploy is pressed; then they are restarted one by one "
        "with the new settings. The model is loaded anew; requests in flight finish first.",
        servers,
    ) % {"name": row.name, "count": servers}
    return what if differs else f"{what} " + _("Its files would stay as they are.")


def file_diff(row: Deployment, changed: BatchingProfile) -> tuple[str, ...]:
    """Unified diff from the files that run (of the target revision, else of the stored profile) to the new ones."""
    target = selectors.target_revision(row)
    try:
        before = preview.rendered_files(target if target is not None else row)
        row.batching = changed
        after = preview.rendered_files(row)
    except InflightError as error:
        return (f"? {error.sentence}",)
    return tuple(unified(before, after))


def unified(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Unified diff of files by path; a path with nothing changed has no lines."""
    lines: list[str] = []
    for path in [*after, *(path for path in before if path not in after)]:
        found = list(
            difflib.unified_diff(
                before.get(path, "").splitlines(),
                after.get(path, "").splitlines(),
                path,
                path,
                lineterm="",
                n=2,
            )
        )
        lines += found
    return lines
