"""What an input would give, before anything is changed: for the panels beside the forms."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.utils.translation import gettext as _

from apps.core.exceptions import Finding, InflightError
from apps.dashboard import formats
from apps.dashboard.facts import KeyValue
from apps.engines import selectors as engines
from apps.engines.models import Build, BuildProfile, Engine, Quantization
from apps.engines.paths import engines_folder
from apps.engines.selectors import active_build
from apps.engines.states import READY
from apps.engines.trtllm_checks import composed_of
from apps.registry import selectors as registry
from apps.registry.answers import stored_as
from apps.registry.domain.checkpoint_reader import read_checkpoint
from apps.registry.domain.sources import locate, parse_source
from apps.registry.models import Checkpoint
from apps.registry.services import check_name


@dataclass(slots=True)
class CheckpointPreview:
    """What is wrong with name and source, and what the header of the file says."""

    findings: list[Finding] = field(default_factory=list)
    facts: list[KeyValue] = field(default_factory=list)
    good: bool = False


def checkpoint(name: str, source: dict[str, Any]) -> CheckpointPreview:
    """Check a name and a source. Reads headers only."""
    found = CheckpointPreview()
    if name:
        try:
            check_name(name)
        except InflightError as error:
            found.findings.append(_finding(error))
        else:
            if Checkpoint.objects.filter(name=name).exists():
                taken = _("There already is a checkpoint %(name)s.") % {"name": name}
                found.findings.append(
                    Finding("name_taken", "error", taken, "name", _("Choose another name."))
                )
    if not any(_texts(source)):
        return found
    try:
        parsed = parse_source(source)
        roots = registry.archive_roots() if parsed.archive else registry.allowed_roots()
        located = locate(parsed, registry.checkpoints_folder(), roots)
        if located:
            _read(found, located.path)
        else:
            found.facts = [(_("Files"), _("fetched once it is registered"))]
    except InflightError as error:
        found.findings.append(_finding(error))
    except OSError as error:
        found.findings.append(
            Finding("unreadable", "error", _("It cannot be read: %(why)s.") % {"why": error.strerror})
        )
    found.good = bool(name) and not any(item.severity == "error" for item in found.findings)
    return found


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for entry in value.values() for text in _texts(entry)]
    return [value] if isinstance(value, str) and value else []


def _read(found: CheckpointPreview, path: Path) -> None:
    """What the headers say, and what is wrong with them."""
    read = read_checkpoint(path)
    facts, reach = read.facts, read.facts.max_position_embeddings
    found.findings.extend(facts.findings)
    rows: list[KeyValue] = [
        (_("Folder") if path.is_dir() else _("File"), str(path)),
        (_("Size"), str(formats.filesize(read.size_bytes))),
        (_("Family"), facts.family),
        (_("Parameters"), str(formats.count(facts.params)) if facts.params else None),
        (_("Stored as"), stored_as(facts.model_dump())),
        (_("Context length"), f"{formats.grouped(reach)} {_('tokens')}" if reach else None),
        (_("Chat template"), _("yes") if read.chat_template else _("no")),
    ]
    found.facts = [row for row in rows if row[1]] if read.size_bytes else []


def _finding(error: InflightError) -> Finding:
    return Finding(error.code, "error", error.sentence, error.field, error.remedy)


@dataclass(slots=True)
class BuildPreview:
    """What a build would make: sizes in bytes, findings, and an engine or a build that is there already."""

    checkpoint: Checkpoint | None = None
    quantization: str = ""
    profile_name: str = ""
    source_bytes: int | None = None
    engine_bytes: int | None = None
    free_bytes: int | None = None
    engine: Engine | None = None
    active: Build | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        """Whether starting it would be refused."""
        return any(item.severity == "error" for item in self.findings)

    @property
    def share(self) -> float | None:
        """Size of the engine against the source, None where one of them is not known."""
        return self.engine_bytes / self.source_bytes if self.engine_bytes and self.source_bytes else None


def of_profile(profile: BuildProfile) -> BuildPreview:
    """Preview of a build of a profile, of either builder."""
    if profile.builder == BuildProfile.Builder.TRTLLM:
        seen = BuildPreview(
            checkpoint=profile.checkpoint,
            quantization=profile.weight_format,
            source_bytes=profile.checkpoint.size_bytes,
            active=active_build(profile),
            findings=list(composed_of(profile).findings),
        )
    else:
        seen = build(profile.checkpoint, profile.quantization, profile.options)
    seen.profile_name = profile.name
    return seen


def build(
    checkpoint: Checkpoint | None, quantization: str, options: dict[str, Any] | None = None
) -> BuildPreview:
    """Preview of a build of a checkpoint with a weight type."""
    if checkpoint is None:
        return BuildPreview()
    chosen = quantization if quantization in Quantization.values else str(Quantization.F16)
    spec = engines.spec_of(checkpoint, str(BuildProfile.Builder.LLAMACPP), chosen, options or {})
    fingerprint = spec.fingerprint()
    return BuildPreview(
        checkpoint=checkpoint,
        quantization=chosen,
        profile_name=profile_name(checkpoint.name, chosen),
        source_bytes=checkpoint.size_bytes,
        engine_bytes=engines.estimated_bytes(checkpoint, chosen),
        free_bytes=_free(),
        engine=Engine.objects.filter(fingerprint=fingerprint, state=READY).first(),
        active=engines.builds().filter(fingerprint=fingerprint, state__in=Build.machine.active).first(),
        findings=engines.findings_for(checkpoint, spec.builder, chosen, options or {}),
    )


def profile_name(checkpoint: str, quantization: str) -> str:
    """Name that a new profile gets where the person gives none; cut so that it stays a name."""
    ending = f"-{quantization.lower()}"
    return checkpoint[: 63 - len(ending)] + ending


def _free() -> int | None:
    folder = engines_folder()
    while not folder.exists():
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
