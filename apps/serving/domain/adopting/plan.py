"""What adopting a checked repository would do: which model answers, what becomes settings, why it cannot be."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.core.exceptions import Finding, InvalidInput
from apps.serving.domain import pbtxt
from apps.serving.domain.adopting import settings
from apps.serving.domain.adopting.settings import Mapped
from apps.serving.domain.repository_check.files import check_engine
from apps.serving.domain.repository_check.folders import ModelFolder, read_repository, read_text
from apps.serving.domain.repository_check.kinds import kind_of
from apps.serving.domain.repository_check.one_config import ReadConfig, read_config

# Which model answers requests, the likeliest kind first.
_FRONT = ("ensemble", "tensorrt_llm_bls", "llmapi", "tensorrt_llm")
# Whose settings the profile's fields are, the likeliest kind first.
_ENGINES = ("tensorrt_llm", "llmapi")
# Triton has them inside.
_BUILT_IN = frozenset({"", "ensemble"})


@dataclass(frozen=True, slots=True)
class Model:
    """One model: its folder as it lies there, and its configuration; `kind` llamacpp is Inflight's own model."""

    name: str
    kind: str
    folder: Path
    read: ReadConfig

    @property
    def config(self) -> pbtxt.ModelConfig:
        """The configuration; an empty one where none could be understood."""
        return self.read.config if self.read.config is not None else pbtxt.ModelConfig()


@dataclass(frozen=True, slots=True)
class Plan:
    """`entry` answers requests, `tuned` is the model whose settings the profile holds, `needed` all that must load.

    `profile` are fields of a batching profile, `mapped` where each came from, `kept` the text of each configuration
    without them. `blockers` are reasons not to serve it, `notes` what is worth knowing.
    """

    entry: str
    tuned: str
    kind: str
    needed: tuple[str, ...]
    profile: dict[str, Any]
    mapped: tuple[Mapped, ...]
    kept: dict[str, str]
    blockers: tuple[Finding, ...]
    notes: tuple[Finding, ...]

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "entry": self.entry,
            "tuned": self.tuned,
            "kind": self.kind,
            "needed": list(self.needed),
            "profile": self.profile,
            "mapped": [one.as_dict() for one in self.mapped],
            "kept": self.kept,
            "blockers": [one.as_dict() for one in self.blockers],
            "notes": [one.as_dict() for one in self.notes],
        }


def read_models(root: Path) -> dict[str, Model]:
    """Every model of a repository by the name of its folder."""
    folders, _whole = read_repository(root)
    return {folder.name: _model(folder) for folder in folders if folder.is_model and folder.text is not None}


def loads(root: Path, plan: Plan) -> tuple[str, ...]:
    """Those of the needed models that are loaded by name: an ensemble loads its steps, and would load them anew."""
    models = read_models(root)
    inner = {step.model_name for name in plan.needed for step in models[name].config.ensemble_scheduling.step}
    return tuple(name for name in plan.needed if name not in inner)


def ranks(root: Path, plan: Plan) -> tuple[int, str]:
    """GPUs of one server of a repository, and the model whose engine needs them; 1 where no engine says more."""
    folders, _whole = read_repository(root)
    for folder in folders:
        if folder.name in plan.needed and folder.text is not None:
            model = _model(folder)
            facts = check_engine(model.read, folder)[1] if model.kind == "tensorrt_llm" else None
            if facts is not None and (facts.world_size or 1) > 1:
                return facts.world_size or 1, folder.name
    return 1, ""


def _model(folder: ModelFolder) -> Model:
    read = read_config(folder.text or "", folder.name)
    kind = kind_of(read, folder)
    if kind == "python" and read.config is not None and "gguf_path" in read.config.parameters:
        kind = "llamacpp"
    return Model(folder.name, kind, folder.path, read)


def make(
    root: Path, report: Mapping[str, Any], wanted: str = "", backends: Collection[str] | None = None
) -> Plan:
    """The plan for the repository at `root`. `report` is the check's, `backends` those that the server has.

    `wanted` names the model that answers; empty: the ensemble, else the only one. Raises InvalidInput naming `model`.
    """
    models = read_models(root)
    entry = _entry(models, wanted)
    needed = _needed(models, entry)
    tuned = _tuned(models, entry, needed)
    found = settings.of_model(models[tuned].config, models[tuned].kind)
    blockers = [*_refused(report, needed), *_no_backend(models, needed, backends)]
    return Plan(
        entry=entry,
        tuned=tuned,
        kind=models[tuned].kind,
        needed=needed,
        profile=found.values,
        mapped=tuple(found.mapped),
        kept={name: _kept(models[name], name == tuned) for name in needed},
        blockers=tuple(blockers),
        notes=tuple(_notes(models[entry])),
    )


def _entry(models: Mapping[str, Model], wanted: str) -> str:
    if wanted:
        if wanted not in models:
            raise _unclear(f"The repository has no model {wanted} whose config.pbtxt can be read.", models)
        return wanted
    for kind in _FRONT:
        found = [name for name, model in models.items() if model.kind == kind]
        inner = {
            step.model_name for model in models.values() for step in model.config.ensemble_scheduling.step
        }
        outer = [name for name in found if name not in inner]
        if len(outer) == 1:
            return outer[0]
        if len(outer) > 1:
            raise _unclear(f"Several models could answer: {', '.join(outer)}.", models)
    if len(models) == 1:
        return next(iter(models))
    raise _unclear("Nothing says which of the models answers requests.", models)


def _unclear(sentence: str, models: Mapping[str, Model]) -> InvalidInput:
    remedy = f"Name one of: {', '.join(sorted(models))}." if models else "Write a config.pbtxt first."
    return InvalidInput("entry_model", sentence, field="model", remedy=remedy)


def _needed(models: Mapping[str, Model], entry: str) -> tuple[str, ...]:
    """The entry and all that it calls, callers last, which is the order in which they load."""
    order: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in order or name in above or name not in models:
            return
        for called in _calls(models[name], models):
            visit(called, (*above, name))
        order.append(name)

    visit(entry, ())
    return tuple(order)


def _calls(model: Model, models: Mapping[str, Model]) -> list[str]:
    """Names of models that one calls: an ensemble's steps, and what a Python model's code or parameters name."""
    steps = [step.model_name for step in model.config.ensemble_scheduling.step]
    if model.kind == "ensemble" or model.config.backend != "python":
        return steps
    said = set(pbtxt.parameters(model.config).values())
    texts = []
    for path in sorted(model.folder.glob("*/*.py")):
        try:
            texts.append(read_text(path))
        except (OSError, ValueError):
            continue
    return [
        name
        for name in models
        if name != model.name
        and (name in said or any(f'"{name}"' in text or f"'{name}'" in text for text in texts))
    ]


def _tuned(models: Mapping[str, Model], entry: str, needed: tuple[str, ...]) -> str:
    for kind in _ENGINES:
        found = [name for name in needed if models[name].kind == kind]
        if found:
            return found[0]
    if models[entry].kind != "ensemble":
        return entry
    # An ensemble forms no batches: the settings are those of the step that computes most, which is mostly the last
    # with a queue of its own.
    steps = [name for name in needed if name != entry]
    queued = [
        name for name in steps if models[name].config.WhichOneof("scheduling_choice") == "dynamic_batching"
    ]
    return (queued or steps or [entry])[-1]


def _refused(report: Mapping[str, Any], needed: tuple[str, ...]) -> list[Finding]:
    """The check's errors about models that must load."""
    return [
        Finding(
            found["id"], "error", f"{found['model']}: {found['message']}", found["where"], found["remedy"]
        )
        for found in report.get("findings", ())
        if found["severity"] == "error" and found["model"] in needed
    ]


def _no_backend(
    models: Mapping[str, Model], needed: tuple[str, ...], backends: Collection[str] | None
) -> list[Finding]:
    if backends is None:
        return []
    found = []
    for name in needed:
        config = models[name].config
        backend = config.backend or config.platform.split("_")[0]
        if backend in _BUILT_IN or backend in backends:
            continue
        there = ", ".join(sorted(backends)) or "none"
        found.append(
            Finding(
                "backend_missing",
                "error",
                f"{name} needs the backend {backend}, and the tritonserver of this node has: {there}.",
                "backend",
                f"Install a tritonserver with the {backend} backend and name it in INFLIGHT_TRITON_BIN and "
                "INFLIGHT_TRITON_BACKENDS.",
            )
        )
    return found


def _kept(model: Model, tuned: bool) -> str:
    """The configuration as text, without what became a field of the profile."""
    if model.read.config is None:
        return model.read.text
    if not tuned:
        return model.read.text
    config = pbtxt.ModelConfig()
    config.CopyFrom(model.read.config)
    for one in settings.of_model(model.config, model.kind).mapped:
        _clear(config, one.where)
    if (
        config.WhichOneof("scheduling_choice") == "dynamic_batching"
        and not config.dynamic_batching.ListFields()
    ):
        config.ClearField("dynamic_batching")
    return pbtxt.render(config)


def _clear(config: Any, where: str) -> None:
    if where.startswith("parameters["):
        config.parameters.pop(where.removeprefix("parameters[").removesuffix("]"), None)
        return
    *above, field = where.split(".")
    if not above and field == "dynamic_batching":
        return
    place = config
    for name in above:
        place = getattr(place, name)
    place.ClearField(field)
    if field == "priority_levels":
        place.ClearField("priority_queue_policy")
    if above and not place.ListFields() and len(above) > 1:
        _clear(config, ".".join(above))


def _notes(entry: Model) -> list[Finding]:
    inputs = {tensor.name for tensor in entry.config.input}
    outputs = {tensor.name for tensor in entry.config.output}
    if "text_input" in inputs and "text_output" in outputs:
        return []
    return [
        Finding(
            "no_text_tensors",
            "info",
            f"{entry.name} has no tensors text_input and text_output, so neither chat nor the gateway can talk to "
            "it; it is served, watched and measured all the same.",
            "input",
            "Send it requests of Triton's own protocol.",
        )
    ]
