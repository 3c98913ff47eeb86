"""What a TensorRT-LLM repository is rendered from, as YAML has it and as Inflight makes it from its rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from apps.core.exceptions import Finding, InvalidInput
from apps.serving.domain.trtllm import settings
from apps.serving.domain.trtllm.tensors import Types, Version

Path = Annotated[str, Field(min_length=1, max_length=1000)]
Whole = Annotated[int, Field(ge=1, le=4096)]
_VERSION = re.compile(r"(\d{1,2})\.(\d{1,3})(\.\d+)?[a-z0-9.+]*\Z")
_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)
FloatType = Literal["TYPE_FP32", "TYPE_FP16", "TYPE_BF16"]
STEPS = ("preprocessing", "tensorrt_llm", "postprocessing")


class Parallel(BaseModel):
    """How the engine is spread over GPUs of one host: `tp` x `pp` ranks.

    leader: a tritonserver for each rank under mpirun, rank 0 serves. orchestrator: one tritonserver that spawns a
    worker for each rank.
    """

    model_config = _STRICT

    tp: Whole = 1
    pp: Whole = 1
    mode: Literal["leader", "orchestrator"] = "leader"

    @property
    def ranks(self) -> int:
        """Ranks of one instance."""
        return self.tp * self.pp


class Instances(BaseModel):
    """Instances of the models around the engine; of the BLS model by default one for each request of a batch."""

    model_config = _STRICT

    engine: Whole = 1
    preprocessing: Whole = 1
    postprocessing: Whole = 1
    bls: Whole | None = None


class Queue(BaseModel):
    """Triton's queue before the engine takes a request; `max_queue_size` 0 is without a limit."""

    model_config = _STRICT

    max_queue_size: int = Field(0, ge=0, le=2**31 - 1)
    max_queue_delay_microseconds: int = Field(0, ge=0, le=10_000_000)


class RepositorySpec(BaseModel):
    """One repository. `version` is the node's TensorRT-LLM release, `revision` the name of the version folder."""

    model_config = _STRICT

    recipe: Literal["engine", "checkpoint"]
    version: str = "1.0"
    revision: int = Field(1, ge=1, le=999_999_999)
    model: Path = Field(description="Folder of the engine, or of the checkpoint.")
    tokenizer: Path | None = Field(None, description="Null: the folder of the model.")
    suffix: str = Field("", pattern=r"^[a-z0-9_]{0,40}$", description="Put behind the models' names.")
    answers: Literal["ensemble", "tensorrt_llm_bls"] = Field("ensemble", description="Of the engine recipe.")
    public_name: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$",
        description="Name of the model that answers; with one, only what it calls is written beside it.",
    )
    max_batch_size: Whole = 8
    max_seq_len: int | None = Field(None, ge=1, le=10_000_000)
    decoupled: bool = True
    parallel: Parallel = Parallel()
    instances: Instances = Instances()
    queue: Queue = Queue()
    add_special_tokens: bool = Field(
        False, description="False where prompts come with their BOS, as ours do."
    )
    skip_special_tokens: bool = True
    accumulate_tokens: bool = False
    logits_type: FloatType = "TYPE_FP32"
    prompt_table_type: FloatType = "TYPE_FP16"
    encoder_features_type: FloatType = "TYPE_FP16"
    settings: dict[str, Any] = Field(default_factory=dict)
    placement: dict[str, Any] = Field(default_factory=dict)
    templates: Path | None = Field(
        None, description="Folder of the node's own templates; null: it is looked for."
    )

    @field_validator("version")
    @classmethod
    def _release(cls, value: str) -> str:
        if not _VERSION.match(value):
            raise ValueError("write the release of TensorRT-LLM, as 1.0 or 0.19.0")
        return value

    @model_validator(mode="after")
    def _together(self) -> RepositorySpec:
        try:
            settings.check(self.settings, settings.PROFILE, "settings")
            settings.check(self.placement, settings.PLACED, "placement")
        except InvalidInput as error:
            raise ValueError(f"{error.field}: {error.sentence}") from error
        if self.recipe == "engine" and self.public_name in {f"{step}{self.suffix}" for step in STEPS}:
            raise ValueError(
                f"public_name: {self.public_name} is the name of one of its steps; choose another"
            )
        _check_devices(self)
        return self

    @property
    def entry(self) -> str:
        """The template's name of the model that answers."""
        return "tensorrt_llm" if self.recipe == "checkpoint" else self.answers

    @property
    def written(self) -> tuple[str, ...]:
        """Template names of the models of the repository, callers last."""
        if self.recipe == "checkpoint":
            return (self.entry,)
        both = ("ensemble", "tensorrt_llm_bls")
        return (*STEPS, *(both if self.public_name is None else (self.entry,)))

    @property
    def loads(self) -> tuple[str, ...]:
        """Template names of what is loaded by name: an ensemble loads its steps, and would load them anew."""
        return (*STEPS, self.entry) if self.entry == "tensorrt_llm_bls" else (self.entry,)

    def name_of(self, model: str) -> str:
        """The name of one of the template's models in this repository."""
        return self.public_name if self.public_name and model == self.entry else f"{model}{self.suffix}"

    @property
    def release(self) -> Version:
        """The release as numbers, (1, 0) of "1.0.0rc3"."""
        found = _VERSION.match(self.version)
        assert found is not None  # noqa: S101 - validated
        return int(found[1]), int(found[2])

    @property
    def types(self) -> Types:
        """Types that depend on the engine."""
        return Types(self.logits_type, self.prompt_table_type, self.encoder_features_type)


def _check_devices(spec: RepositorySpec) -> None:
    """The rules of the C++ executor and of the llmapi model about devices and ranks, before they see them."""
    sets = [each.split(",") for each in str(spec.placement.get("gpu_device_ids", "")).split(";") if each]
    ranks = spec.parallel.ranks
    if sets and len(sets) != spec.instances.engine:
        raise ValueError(
            f"placement.gpu_device_ids: {len(sets)} sets of GPUs for {spec.instances.engine} instances"
        )
    if any(len(each) != ranks or len(set(each)) != ranks for each in sets):
        raise ValueError(f"placement.gpu_device_ids: each set needs {ranks} different GPUs, tp x pp")
    if spec.recipe == "checkpoint":
        if spec.instances.engine > 1 and not sets:
            raise ValueError("placement.gpu_device_ids: needed with several instances")
        if spec.parallel.mode == "orchestrator":
            raise ValueError("parallel.mode: the checkpoint recipe starts its own ranks; use leader")
        return
    participants = [
        each.split(",") for each in str(spec.placement.get("participant_ids", "")).split(";") if each
    ]
    if spec.placement.get("num_nodes", 1) != 1:
        raise ValueError("placement.num_nodes: one engine over several hosts is not there yet; use 1")
    if spec.parallel.mode == "leader" and spec.instances.engine > 1 and ranks > 1:
        raise ValueError("instances.engine: several instances over several ranks need the orchestrator mode")
    if participants and spec.parallel.mode == "orchestrator":
        raise ValueError("placement.participant_ids: an orchestrator that spawns its workers takes none")
    if any(len(each) != ranks for each in participants):
        raise ValueError(f"placement.participant_ids: {ranks} ranks are needed, tp x pp")


def parse(values: Any, where: str = "specification") -> RepositorySpec:
    """Typed specification of what a YAML file holds. Raises InvalidInput with a finding for each fault."""
    if not isinstance(values, Mapping):
        raise InvalidInput(
            "specification_form",
            f"{where} is no mapping.",
            field=where,
            remedy="Write recipe, version, model and what differs from the defaults.",
        )
    try:
        return RepositorySpec.model_validate(dict(values))
    except ValidationError as error:
        findings = tuple(_finding(item) for item in error.errors())
        first = findings[0]
        raise InvalidInput(
            "specification_refused",
            first.message,
            field=first.where,
            remedy=first.remedy,
            findings=findings,
        ) from error


def _finding(item: Any) -> Finding:
    place = ".".join(str(part) for part in item["loc"])
    message = str(item["msg"]).removeprefix("Value error, ")
    if not place and ": " in message:
        place, message = message.split(": ", 1)
    remedy = "Correct the value, or leave it out for its default."
    if item["type"] == "extra_forbidden":
        remedy = f"Remove it; the fields are {', '.join(RepositorySpec.model_fields)}."
    return Finding(str(item["type"]), "error", f"{place}: {message}.", place, remedy)
