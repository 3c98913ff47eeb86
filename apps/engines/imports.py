"""Engines that were built elsewhere: looked at, then taken in by links, marked as of unknown origin."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apps.accounts.roles import Action, require
from apps.core import audit, clock
from apps.core.exceptions import InvalidInput, NotFound, NotPossibleNow
from apps.core.transitions import announce
from apps.engines import paths, selectors, states
from apps.engines.domain.build_spec import canonical
from apps.engines.domain.engine_files import MAX_CONFIG_BYTES, EngineFolder, read_engine_folder
from apps.engines.models import Build, BuildProfile, Engine
from apps.fleet.selectors import local_node
from apps.registry import selectors as registry
from apps.registry.models import Checkpoint

CONFIG, MANIFEST = "config.json", "manifest.json"
# Of a large file its beginning and end identify it; hashing all of it would take minutes on the page.
SAMPLE_BYTES = 1024 * 1024
MAX_FILES = 4096


class EngineImport(BaseModel):
    """What is taken in. `profile` is the build profile whose deployments shall use it."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    path: str = Field(min_length=1, max_length=1000, description="Folder with config.json and rank files.")
    checkpoint: str = Field(min_length=1, max_length=63, description="Checkpoint that it was built from.")
    profile: str = Field("", max_length=63, description="TensorRT-LLM build profile that it stands for.")


@dataclass(frozen=True, slots=True)
class Looked:
    """A folder as it was found. `sizes` are bytes by file name."""

    path: Path
    engine: EngineFolder
    sizes: dict[str, int]

    @property
    def names(self) -> list[str]:
        """Files that belong to the engine."""
        ranks = {f"rank{rank}" for rank in range(self.engine.world_size)}
        return sorted(
            name
            for name in self.sizes
            if name == CONFIG
            or (name.endswith((".engine", "_managed_weights.safetensors")) and _rank_of(name) in ranks)
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of those files."""
        return sum(self.sizes[name] for name in self.names)

    def as_dict(self) -> dict[str, Any]:
        """JSON form: what config.json says, files, findings."""
        return {
            "path": str(self.path),
            "version": self.engine.version,
            **self.engine.as_dict(),
            "size_bytes": self.size_bytes,
            "files": [{"name": name, "size_bytes": self.sizes[name]} for name in self.names],
            "findings": [found.as_dict() for found in self.engine.findings],
        }


def look_at_engine(path: str) -> Looked:
    """Inspect a folder inside the allowed ones; nothing is changed. Raises InvalidInput (`path`)."""
    folder = _inside(path)
    sizes: dict[str, int] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if len(sizes) >= MAX_FILES:
                raise _bad(_("%(path)s holds too many files to be an engine's folder.") % {"path": path})
            if entry.is_file():
                sizes[entry.name] = entry.stat().st_size
    config = None
    if 0 < sizes.get(CONFIG, 0) <= MAX_CONFIG_BYTES:
        with contextlib.suppress(OSError):
            config = (folder / CONFIG).read_text(encoding="utf-8", errors="replace")
    return Looked(folder, read_engine_folder(config, sizes), sizes)


def import_engine(actor: audit.Actor, data: Mapping[str, Any]) -> Engine:
    """Take in an engine that was built elsewhere; its files stay where they are and are linked, never copied or
    removed. With a profile, deployments of it use the engine.

    Raises InvalidInput naming the field, NotPossibleNow where the very engine is known already.
    """
    require(actor, Action.CONFIGURE)
    fields = _fields(data)
    checkpoint, profile = _checkpoint(fields), _profile(fields)
    looked = look_at_engine(fields.path)
    errors = tuple(found for found in looked.engine.findings if found.severity == "error")
    if errors:
        first = errors[0]
        raise InvalidInput(first.id, first.message, field="path", remedy=first.remedy, findings=errors)
    files = [_described(looked.path / name) for name in looked.names]
    fingerprint = hashlib.sha256(canonical({"imported": files}).encode()).hexdigest()
    manifest = _manifest(looked, fingerprint, files, checkpoint)
    folder = _link(looked, fingerprint, manifest)
    try:
        with transaction.atomic():
            engine = Engine.objects.create(
                state=states.ENGINE.initial,
                fingerprint=fingerprint,
                checkpoint=checkpoint,
                builder=BuildProfile.Builder.TRTLLM,
                quantization=_format(looked, profile),
                node=local_node(),
                path=str(folder),
                size_bytes=looked.size_bytes,
                manifest=manifest,
                provenance=Engine.Provenance.IMPORTED,
            )
            audit.record(
                actor, "engine.imported", engine, to_state=engine.state, detail={"path": str(looked.path)}
            )
            announce(engine)
            if profile is not None:
                _stand_for(actor, engine, profile)
    except IntegrityError as error:
        raise NotPossibleNow(
            "engine_known",
            _("This engine is known already: %(fingerprint)s.") % {"fingerprint": fingerprint[:12]},
            field="path",
            remedy=_("Use that one, or delete it first."),
        ) from error
    return engine


def _stand_for(actor: audit.Actor, engine: Engine, profile: BuildProfile) -> None:
    """A build that succeeded at once, so that the profile's deployments find the engine among its own."""
    highest = Build.objects.aggregate(highest=Max("number"))["highest"] or 0
    spec = selectors.freeze(profile).model_dump(mode="json", by_alias=True)
    now = clock.now()
    build = Build.objects.create(
        state=states.SUCCEEDED,
        number=highest + 1,
        profile=profile,
        checkpoint=engine.checkpoint,
        spec={**spec, "imported": True},
        fingerprint=engine.fingerprint,
        requested_by=actor if isinstance(actor, User) else None,
        engine=engine,
        node=engine.node,
        reused=True,
        progress=1.0,
        sentence=_("The engine was imported; nothing was built."),
        finished_at=now,
    )
    audit.record(actor, "build.imported", build, to_state=build.state)
    announce(build)


def _fields(data: Mapping[str, Any]) -> EngineImport:
    try:
        return EngineImport.model_validate(dict(data))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(
            "engine_import_invalid",
            _("%(field)s: %(why)s.") % {"field": where, "why": first["msg"]},
            field=where,
            remedy=_("Give path, checkpoint and, if you like, profile."),
        ) from error


def _checkpoint(fields: EngineImport) -> Checkpoint:
    try:
        return registry.checkpoint(fields.checkpoint)
    except NotFound as error:
        raise InvalidInput(error.code, error.sentence, field="checkpoint", remedy=error.remedy) from error


def _profile(fields: EngineImport) -> BuildProfile | None:
    if not fields.profile:
        return None
    try:
        profile = selectors.build_profile(fields.profile)
    except NotFound as error:
        raise InvalidInput(error.code, error.sentence, field="profile", remedy=error.remedy) from error
    if profile.builder != BuildProfile.Builder.TRTLLM or profile.checkpoint.name != fields.checkpoint:
        raise InvalidInput(
            "profile_of_another_kind",
            _("%(profile)s is no TensorRT-LLM profile of %(checkpoint)s.")
            % {"profile": fields.profile, "checkpoint": fields.checkpoint},
            field="profile",
            remedy=_("Choose one of the same checkpoint and builder, or none."),
        )
    return profile


def _inside(path: str) -> Path:
    """The real folder, if it lies in one of the allowed ones."""
    given = Path(path)
    roots = [root.resolve() for root in (*registry.allowed_roots(), paths.engines_folder())]
    real = given.resolve() if given.is_absolute() else None
    if real is None or not any(real.is_relative_to(root) for root in roots):
        raise InvalidInput(
            "path_not_allowed",
            _("%(path)s does not lie in a folder that engines may be imported from.") % {"path": path},
            field="path",
            remedy=_("Use an absolute path below one of: %(roots)s.") % {"roots": ", ".join(map(str, roots))},
        )
    if not real.is_dir():
        raise _bad(_("%(path)s is no folder.") % {"path": path})
    return real


def _bad(sentence: str) -> InvalidInput:
    return InvalidInput(
        "engine_folder_missing", sentence, field="path", remedy=_("Name the folder that trtllm-build wrote.")
    )


def _rank_of(name: str) -> str:
    return name.split(".", 1)[0].split("_", 1)[0]


def _described(path: Path) -> dict[str, Any]:
    """Name, size and a hash of beginning and end."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(SAMPLE_BYTES))
        file.seek(max(0, size - SAMPLE_BYTES))
        digest.update(file.read(SAMPLE_BYTES))
    return {"name": path.name, "size_bytes": size, "sampled_sha256": digest.hexdigest()}


def _manifest(
    looked: Looked, fingerprint: str, files: list[dict[str, Any]], checkpoint: Checkpoint
) -> dict[str, Any]:
    """Ours, as far as anybody knows: no GPU, no TensorRT, no image, no command."""
    version = looked.engine.version
    return {
        "format": 1,
        "fingerprint": fingerprint,
        "builder": {"name": "trtllm"},
        "recipe": "engine",
        "provenance": "unknown",
        "imported_from": str(looked.path),
        "imported_at": clock.now().isoformat(timespec="seconds"),
        "source": {"checkpoint": checkpoint.name},
        "versions": {"tensorrt_llm": version} if version not in (None, "none") else {},
        "engine": looked.engine.as_dict(),
        "world_size": looked.engine.world_size,
        "files": files,
    }


def _link(looked: Looked, fingerprint: str, manifest: Mapping[str, Any]) -> Path:
    """The engine's own folder: links and the manifest, in place by one rename."""
    place = paths.engine_folder(fingerprint)
    if (place / MANIFEST).is_file():
        return place
    hidden = place.with_name(f".incoming-{fingerprint[:12]}-{os.getpid()}")
    shutil.rmtree(hidden, ignore_errors=True)
    hidden.mkdir(parents=True)
    for name in looked.names:
        (hidden / name).symlink_to(looked.path / name)
    (hidden / MANIFEST).write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    hidden.rename(place)
    return place


def _format(looked: Looked, profile: BuildProfile | None) -> str:
    return profile.weight_format if profile is not None else (looked.engine.quant_algo or "none").lower()[:20]
