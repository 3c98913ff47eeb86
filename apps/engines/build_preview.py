"""What a build profile, saved or not, would give: size, steps, findings."""

from __future__ import annotations

import os
import shlex
from typing import Any

from django.conf import settings
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext_lazy as _

from apps.accounts.service_admin import Preview, PreviewPart
from apps.engines import selectors, states, trtllm_preview
from apps.engines.domain.build_spec import BuildSpec
from apps.engines.domain.llamacpp_commands import Places, step_commands
from apps.engines.models import Build, BuildProfile, Engine
from apps.engines.paths import engines_folder


def preview_of(profile: BuildProfile) -> Preview:
    """Parts of the preview; empty before a checkpoint is chosen."""
    if not profile.checkpoint_id:
        return Preview()
    if profile.builder == BuildProfile.Builder.TRTLLM:
        return trtllm_preview.build_preview(profile)
    checkpoint = profile.checkpoint
    options = profile.options if isinstance(profile.options, dict) else {}
    findings = selectors.findings_for(checkpoint, profile.builder, profile.quantization, options)
    spec = selectors.spec_of(checkpoint, profile.builder, profile.quantization, options)
    fingerprint = spec.fingerprint()
    size = selectors.estimated_bytes(checkpoint, profile.quantization)
    rows = (
        (_("checkpoint"), f"{checkpoint.name} ({checkpoint.state})"),
        (_("stored as"), checkpoint.facts.get("file_type")),
        (
            _("size of the checkpoint"),
            filesizeformat(checkpoint.size_bytes) if checkpoint.size_bytes else None,
        ),
        (_("estimated size of the engine"), filesizeformat(size) if size else None),
        (_("fingerprint"), fingerprint[:12]),
        (_("a build would"), _outcome(fingerprint)),
    )
    parts = [PreviewPart(_("A build of this profile"), rows=rows)]
    if findings:
        parts.append(PreviewPart(_("Findings"), findings=tuple(findings)))
    if profile.builder == BuildProfile.Builder.LLAMACPP:
        parts.append(PreviewPart(_("Steps of a build"), code=_steps(spec)))
    return Preview(tuple(parts))


def _steps(spec: BuildSpec) -> str:
    places = Places(
        python=settings.INFLIGHT_SERVING_PYTHON,
        work="<work>",
        plan_file="<plan>",
        engines=str(engines_folder()),
        fingerprint=spec.fingerprint(),
        cores=os.cpu_count() or 1,
    )
    return "\n".join(f"# {step.title}\n{shlex.join(step.argv)}" for step in step_commands(spec, places))


def _outcome(fingerprint: str) -> Any:
    active = Build.objects.filter(fingerprint=fingerprint, state__in=states.BUILD.active).first()
    if active is not None:
        return _("join build #%(number)s, which is making this engine") % {"number": active.number}
    if Engine.objects.filter(fingerprint=fingerprint, state=states.READY).exists():
        return _("use the engine that exists already")
    return _("make a new engine")
