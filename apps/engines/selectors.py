"""Reading build profiles, builds and engines."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from apps.core.exceptions import Finding, NotFound
from apps.engines import states
from apps.engines.domain.build_spec import (
    BUILDER_VERSIONS,
    BuildSpec,
    check_facts,
    check_spec,
    engine_bytes,
)
from apps.engines.frozen import Spec, freeze_trtllm
from apps.engines.models import Build, BuildProfile, Engine
from apps.fleet import door_logs
from apps.registry.models import Checkpoint


def build_profiles() -> QuerySet[BuildProfile]:
    """All build profiles by name."""
    return BuildProfile.objects.select_related("checkpoint", "quantization_profile")


def build_profile(name: str) -> BuildProfile:
    """One build profile by its name. Raises NotFound."""
    found = build_profiles().filter(name=name).first()
    if found is None:
        raise NotFound(
            "build_profile_unknown",
            _("There is no build profile %(name)s.") % {"name": name},
            remedy=_("Make it, or see the list of build profiles."),
        )
    return found


def builds() -> QuerySet[Build]:
    """All builds, newest first."""
    return Build.objects.select_related("profile", "checkpoint", "engine", "node", "gpu", "requested_by")


def build(number: int) -> Build:
    """One build by its number. Raises NotFound."""
    found = builds().filter(number=number).first()
    if found is None:
        raise NotFound(
            "build_unknown",
            _("There is no build #%(number)s.") % {"number": number},
            remedy=_("See the list of builds."),
        )
    return found


def log_address(row: Build) -> str:
    """Where a build's log is read from here: a path, or its node's door; empty before it first runs."""
    return door_logs.address(row.node, "build", row.number, row.log_path)


def engines() -> QuerySet[Engine]:
    """All engines that were not deleted, newest first."""
    return Engine.objects.exclude(state=states.DELETED).select_related("checkpoint", "node")


def engine(fingerprint: str) -> Engine:
    """One engine by its fingerprint or a beginning of it that is unique. Raises NotFound."""
    found = list(engines().filter(fingerprint__startswith=fingerprint)[:2]) if fingerprint else []
    if len(found) != 1:
        raise NotFound(
            "engine_unknown",
            _("There is no one engine %(fingerprint)s.") % {"fingerprint": fingerprint or "''"},
            remedy=_("See the list of engines."),
        )
    return found[0]


def freeze(profile: BuildProfile) -> Spec:
    """The specification that a build of this profile would have now."""
    if profile.builder == BuildProfile.Builder.TRTLLM:
        return freeze_trtllm(profile)
    return spec_of(profile.checkpoint, profile.builder, profile.quantization, profile.options)


def spec_of(checkpoint: Checkpoint, builder: str, quantization: str, options: dict[str, Any]) -> BuildSpec:
    """The specification of a build from parts. The checkpoint should be ready."""
    identity = checkpoint.facts.get("identity", {})
    source = {"sha256": checkpoint.sha256} if checkpoint.sha256 else dict(identity)
    return BuildSpec(
        builder=builder,
        builder_version=BUILDER_VERSIONS.get(builder, ""),
        quantization=quantization,
        checkpoint=checkpoint.name,
        path=checkpoint.path,
        source=source,
        options=options,
    )


def newest_engine(profile: BuildProfile) -> Engine | None:
    """The ready engine of a profile as it stands: of its very specification, else the newest of the same kind."""
    ready = Engine.objects.filter(state=states.READY)
    exact = ready.filter(fingerprint=freeze(profile).fingerprint()).first()
    return exact or (
        ready.filter(
            builds__profile=profile,
            checkpoint=profile.checkpoint,
            builder=profile.builder,
            quantization=profile.weight_format,
        )
        .order_by("-created_at")
        .first()
    )


def active_build(profile: BuildProfile) -> Build | None:
    """The queued or running build of a profile as it stands, or None."""
    active = builds().filter(state__in=states.BUILD.active)
    return active.filter(fingerprint=freeze(profile).fingerprint()).first()


def findings_for(
    checkpoint: Checkpoint, builder: str, quantization: str, options: dict[str, Any]
) -> list[Finding]:
    """What is wrong or worth knowing about a build from these parts, for previews and for start_build."""
    found = check_spec(builder, quantization, options)
    if checkpoint.format == Checkpoint.Format.HUGGING_FACE:
        found.append(
            Finding(
                "needs_tensorrt_llm_builder",
                "error",
                _("%(name)s holds Hugging Face weights, which the llama.cpp builder does not read.")
                % {"name": checkpoint.name},
                "checkpoint",
                _("Register a GGUF file of the same model."),
            )
        )
    elif checkpoint.facts.get("tensor_types"):
        found += check_facts(
            quantization, checkpoint.facts["tensor_types"], checkpoint.facts.get("file_type")
        )
    return found


def estimated_bytes(checkpoint: Checkpoint, quantization: str) -> int | None:
    """Estimated size of the engine in bytes, or None where the checkpoint does not tell its weights."""
    params = checkpoint.facts.get("params")
    return engine_bytes(int(params), quantization) if params else None
