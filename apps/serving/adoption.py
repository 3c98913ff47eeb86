"""Making a deployment of a model repository that was brought in. Callers reach this as `serving.services`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit
from apps.core.exceptions import InflightError, InvalidInput, NotPossibleNow
from apps.engines import profiles as build_profiles
from apps.engines import states as engine_states
from apps.engines.imports import import_engine
from apps.engines.models import BuildProfile, Engine, Quantization
from apps.registry import services as registry
from apps.registry import states as checkpoint_states
from apps.registry.models import Checkpoint
from apps.serving import inputs, revisions, states
from apps.serving.domain import pbtxt
from apps.serving.domain.adopting import files, plan
from apps.serving.domain.adopting import settings as own_settings
from apps.serving.domain.adopting.plan import Plan
from apps.serving.domain.repository import RepositoryFile
from apps.serving.domain.repository_check import fill_template, trtllm_parameters
from apps.serving.domain.repository_check.parameters import given as given_parameter
from apps.serving.models import BatchingProfile, Deployment, ModelRepository, Revision
from apps.serving.profiles import save_batching_profile

ENGINE_FILE = "model.gguf"


def adoption_plan(repository: ModelRepository, model: str = "") -> Plan:
    """What adopting would do. Raises InvalidInput naming `model` where nothing says which one answers."""
    return plan.make(Path(repository.folder), repository.report, model, backends())


def backends() -> frozenset[str] | None:
    """Names of the backends that this node's tritonserver has; null where that cannot be seen."""
    folder = settings.INFLIGHT_TRITON_BACKENDS
    if not folder or not Path(folder).is_dir():
        return None
    return frozenset(path.name for path in Path(folder).iterdir() if path.is_dir())


def adopt_repository(
    actor: User | str, repository: ModelRepository, name: str, data: Mapping[str, Any] | None = None
) -> Deployment:
    """Make a deployment, stopped, of a repository, with a batching profile that says what its settings say.

    `data` may hold model (which one answers), profile (name of the new batching profile; default: `name`),
    checkpoint (that of TensorRT-LLM engines, which are then taken into the list of engines), replicas and placement.
    A repository that Inflight wrote itself becomes an ordinary deployment of its engine. Raises InvalidInput with
    every reason where it cannot be served.
    """
    require(actor, Action.CONFIGURE)
    given = dict(data or {})
    found = adoption_plan(repository, str(given.pop("model", "") or ""))
    if found.blockers:
        first = found.blockers[0]
        raise InvalidInput(
            first.id, first.message, field="model", remedy=first.remedy, findings=found.blockers
        )
    _check_names(found, name)
    profile_name = str(given.pop("profile", "") or name)
    checkpoint = str(given.pop("checkpoint", "") or "")
    with transaction.atomic():
        if found.kind == "llamacpp":
            wanted: dict[str, Any] = {"build_profile": _engine_of(actor, repository, found, name)}
        else:
            wanted = {"repository": repository, "repository_model": found.entry}
        if checkpoint:
            _take_engines(actor, repository, found, checkpoint)
        wanted["batching"] = save_batching_profile(actor, {**found.profile, "name": profile_name})
        return _deployment(actor, name, {**wanted, **given})


def _check_names(found: Plan, name: str) -> None:
    inputs.check_name(name)
    if name != found.entry and name in found.needed:
        raise InvalidInput(
            "name_of_a_model",
            _("%(name)s is another model of this repository.") % {"name": name},
            field="name",
            remedy=_("Choose another public name."),
        )


def _deployment(actor: User | str, name: str, wanted: dict[str, Any]) -> Deployment:
    row = Deployment(state=states.STOPPED)
    placement = inputs.check_placement(wanted.pop("placement", None))
    fields = (*inputs.DEPLOYMENT_FIELDS, "repository", "repository_model")
    changes = inputs.assign(row, {"name": name, "placement": placement, **wanted}, fields)
    row.save()
    audit.record(actor, "deployment.created", row, to_state=row.state, detail={"changes": changes})
    return row


def _engine_of(actor: User | str, repository: ModelRepository, found: Plan, name: str) -> BuildProfile:
    """The build profile of the engine that our own repository names; an unknown file becomes a checkpoint."""
    config = plan.read_models(Path(repository.folder))[found.tuned].config
    path = Path(repository.folder) / found.tuned / pbtxt.parameters(config).get("gguf_path", "")
    engine = Engine.objects.filter(
        path__in=[str(path.parent), str(path.resolve().parent)], state=engine_states.READY
    ).first()
    if engine is not None:
        return _profile_for(actor, engine.checkpoint, engine.quantization, name)
    checkpoint = Checkpoint.objects.filter(path=str(path.resolve())).first()
    if checkpoint is None:
        checkpoint = registry.register_checkpoint(actor, name, {"path": str(path)})
    if checkpoint.state != checkpoint_states.READY:
        raise NotPossibleNow(
            checkpoint.reason or "engine_file_unusable",
            _("The engine file cannot be used: %(why)s") % {"why": checkpoint.sentence},
            field="model",
            remedy=checkpoint.remedy,
        )
    kind = str(checkpoint.facts.get("file_type") or "")
    return _profile_for(actor, checkpoint, kind if kind in Quantization.values else Quantization.F16, name)


def _take_engines(actor: User | str, repository: ModelRepository, found: Plan, checkpoint: str) -> None:
    """Put the TensorRT-LLM engines that the models name into the list of engines; a known one stays as it is."""
    models = plan.read_models(Path(repository.folder))
    for name in found.needed:
        folder = (
            given_parameter(models[name].read, "gpt_model_path")
            if models[name].kind == "tensorrt_llm"
            else ""
        )
        if not folder:
            continue
        try:
            import_engine(actor, {"path": folder, "checkpoint": checkpoint})
        except NotPossibleNow as known:
            if known.code != "engine_known":
                raise


def _profile_for(actor: User | str, checkpoint: Checkpoint, quantization: str, name: str) -> BuildProfile:
    known = BuildProfile.objects.filter(
        checkpoint=checkpoint, quantization=quantization, builder=BuildProfile.Builder.LLAMACPP
    ).first()
    if known is not None:
        return known
    data = {"name": name, "checkpoint": checkpoint, "quantization": quantization}
    return build_profiles.save_build_profile(actor, data)


def profile_of_line(actor: User | str, name: str, line: str) -> tuple[BatchingProfile, list[Any]]:
    """A pasted `fill_template.py -i FILE "name:value,..."` line as a batching profile, and what was found in it."""
    require(actor, Action.CONFIGURE)
    read = fill_template.read_line(line)
    profile = save_batching_profile(actor, {**profile_of_values(read.meant), "name": name})
    return profile, [finding.as_dict() for finding in read.findings]


def profile_of_values(values: Mapping[str, str]) -> dict[str, Any]:
    """Fields of a batching profile out of the variables of TensorRT-LLM's templates."""
    config = pbtxt.ModelConfig(backend="tensorrtllm")
    keys = {one.template_variable: one.key for one in trtllm_parameters.TENSORRT_LLM}
    pbtxt.set_parameters(config, {keys[name]: value for name, value in values.items() if name in keys})
    for name, field in (
        ("max_queue_delay_microseconds", "max_queue_delay_microseconds"),
        ("max_queue_size", "default_queue_policy"),
    ):
        if values.get(name, "").isdecimal():
            number = int(values[name])
            if field == "default_queue_policy":
                config.dynamic_batching.default_queue_policy.max_queue_size = number
            else:
                config.dynamic_batching.max_queue_delay_microseconds = number
    size = values.get("triton_max_batch_size") or values.get("max_batch_size") or ""
    if size.isdecimal():
        config.max_batch_size = int(size)
    return own_settings.of_model(config, "tensorrt_llm").values


def kept_plan(deployment: Deployment) -> Plan | None:
    """What a deployment of a repository serves and keeps; null for any other deployment, or where files are gone."""
    if deployment.repository is None:
        return None
    try:
        return adoption_plan(deployment.repository, deployment.repository_model)
    except (InflightError, OSError):
        return None


def rendered_files(deployment: Deployment, snapshot: Mapping[str, Any]) -> dict[str, str]:
    """Text of each configuration that Triton will read, by path."""
    repository = deployment.repository
    found = kept_plan(deployment)
    if repository is None or found is None:
        return {}
    defaults = revisions.plain_profile()
    return files.rendered(Path(repository.folder), found, deployment.name, {**defaults, **snapshot}, defaults)


@dataclass(frozen=True, slots=True)
class Instantiated:
    """What an instance of a repository is made of: its files, its models in the order in which they load, and how
    many ranks the engine of `engine_model` needs."""

    files: tuple[RepositoryFile, ...]
    loads: tuple[str, ...]
    ranks: int = 1
    engine_model: str = ""


def instance_of(revision: Revision) -> Instantiated:
    """What an instance is made of. Raises InflightError, OSError."""
    deployment = revision.deployment
    repository = deployment.repository
    if repository is None:
        raise NotPossibleNow("no_repository", _("The deployment serves no repository."))
    root = Path(repository.folder)
    found = adoption_plan(repository, deployment.repository_model)
    defaults = revisions.plain_profile()
    made = files.instance_files(root, found, deployment.name, {**defaults, **revision.batching}, defaults)
    wanted = plan.loads(root, found)
    loads = tuple(deployment.name if one == found.entry else one for one in wanted)
    count, model = plan.ranks(root, found)
    return Instantiated(made, loads, count, deployment.name if model and model == found.entry else model)
