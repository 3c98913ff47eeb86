"""How far the class of a request reaches with a deployment, for pages, previews and the API."""

from __future__ import annotations

from pathlib import Path

from apps.core.exceptions import InflightError
from apps.serving import trtllm_files
from apps.serving.domain import pbtxt, priority_reach
from apps.serving.domain.adopting.plan import read_models
from apps.serving.domain.priority_reach import Reach
from apps.serving.domain.trtllm import settings
from apps.serving.models import Deployment, ModelRepository


def of(deployment: Deployment) -> Reach:
    """Which queue orders the deployment's requests by class, as it is configured now."""
    if deployment.repository is not None:
        return of_repository(deployment.repository, deployment.repository_model)
    profile = deployment.batching
    kind = trtllm_files.engine_kind(deployment.build_profile)
    if kind != "llamacpp":
        around = (deployment.placement or {}).get("trtllm") or {}
        return priority_reach.of_trtllm(kind, str(around.get("answering_model") or settings.ENSEMBLE))
    return priority_reach.of_strategy(profile.strategy, bool(profile.priority_classes))


def of_repository(repository: ModelRepository, model: str) -> Reach:
    """The same for one model of a repository."""
    try:
        models = read_models(Path(repository.folder))
    except (InflightError, OSError):
        models = {}
    return priority_reach.of_config(models[model].config if model in models else pbtxt.ModelConfig())
