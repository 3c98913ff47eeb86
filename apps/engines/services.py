"""All that may be done with build profiles, builds and engines; the functions lie in the modules named here."""

from __future__ import annotations

from apps.engines.artefacts import delete_engine
from apps.engines.attempts import (
    Artefact,
    Claim,
    Failure,
    Renewal,
    claim_build,
    end_cancelled,
    fail_build,
    finish_build,
    record_child,
    record_plan,
    record_progress,
    record_stage,
    renew_build,
    requeue_build,
)
from apps.engines.builds import cancel_build, retry_build, start_build
from apps.engines.imports import import_engine
from apps.engines.profiles import (
    delete_build_profile,
    delete_quantization_profile,
    save_build_profile,
    save_quantization_profile,
)
from apps.engines.rebuilds import rebuild_for_node
from apps.engines.remedies import apply_remedy
from apps.engines.retention import clean_up, save_retention_policy, set_pinned

__all__ = [
    "Artefact",
    "Claim",
    "Failure",
    "Renewal",
    "apply_remedy",
    "cancel_build",
    "claim_build",
    "clean_up",
    "delete_build_profile",
    "delete_engine",
    "delete_quantization_profile",
    "end_cancelled",
    "fail_build",
    "finish_build",
    "import_engine",
    "rebuild_for_node",
    "record_child",
    "record_plan",
    "record_progress",
    "record_stage",
    "renew_build",
    "requeue_build",
    "retry_build",
    "save_build_profile",
    "save_quantization_profile",
    "save_retention_policy",
    "set_pinned",
    "start_build",
]
