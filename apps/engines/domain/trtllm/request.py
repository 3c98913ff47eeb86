"""What a TensorRT-LLM build is asked to make: documents read into one request, with every fault named."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apps.core.exceptions import Finding, InvalidInput
from apps.engines.domain.trtllm.build_flags import BY_NAME
from apps.engines.domain.trtllm.conversion_flags import CONVERT
from apps.engines.domain.trtllm.flag import parse_version
from apps.engines.domain.trtllm.gone_flags import GONE_BUILD

Recipe = Literal["auto", "engine", "checkpoint"]
Format = Literal[
    "none",
    "fp8",
    "fp8_rowwise",
    "nvfp4",
    "int8_sq",
    "int4_awq",
    "w4a8_awq",
    "int8_wo",
    "int4_wo",
    "gptq",
    "gptq_int8",
    "awq",
    "qserve",
]
API_VERSION = "inflight/v1"
# As apps.core.names has it, which this plain package may not import.
NAME = re.compile(r"^[a-z0-9][a-z0-9._-]{0,62}$")
Model = TypeVar("Model", bound=BaseModel)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Calibration(_Strict):
    """Texts that a quantisation is calibrated with. `dataset` is a name or a folder."""

    dataset: str = "cnn_dailymail"
    size: Annotated[int, Field(ge=-1, le=100_000)] = 512
    max_seq_length: Annotated[int, Field(ge=1, le=1_000_000, alias="maxSeqLength")] = 512
    batch_size: Annotated[int, Field(ge=1, le=4096, alias="batchSize")] = 1


class Quantization(_Strict):
    """How weights and KV cache are stored. `weights` is a folder of weights that are quantised already.

    `options` are flags of quantize.py that no field has.
    """

    format: Format = "none"
    kv_cache: Literal["auto", "fp8", "int8"] = Field("auto", alias="kvCacheDtype")
    calibration: Calibration = Calibration()
    group_size: Annotated[int, Field(ge=1, le=4096, alias="groupSize")] = 128
    smoothquant: Annotated[float, Field(ge=0, le=1)] = 0.5
    per_channel: bool = Field(True, alias="perChannel")
    per_token: bool = Field(True, alias="perToken")
    quantize_lm_head: bool = Field(False, alias="quantizeLmHead")
    weights: str = ""
    options: Mapping[str, Any] = Field(default_factory=dict)


class Parallel(_Strict):
    """Ranks. `moe_ep` splits experts instead of each expert's matrices."""

    tp: Annotated[int, Field(ge=1, le=64)] = 1
    pp: Annotated[int, Field(ge=1, le=64)] = 1
    cp: Annotated[int, Field(ge=1, le=64)] = 1
    moe_ep: Annotated[int, Field(ge=1, le=64, alias="moeEp")] = 1

    @property
    def world(self) -> int:
        """Processes of one engine; the conversion fixes them."""
        return self.tp * self.pp * self.cp


class Target(_Strict):
    """Where it is built and served. `examples` is the folder of TensorRT-LLM's scripts on that host.

    `toolchain` names one of a node's; empty: any that fits.
    """

    gpu: str = ""
    toolchain: str = ""
    tensorrt_llm: str = Field("1.2.1", alias="tensorrtLlm")
    examples: str = "/app/tensorrt_llm/examples"
    python: str = "python3"
    gpus: Annotated[int, Field(ge=1, le=64)] | None = None


class BuildRequest(_Strict):
    """One build. `model` is the checkpoint's folder, `config` its config.json where it is at hand."""

    name: str
    model: str
    config: Mapping[str, Any] | None = None
    recipe: Recipe = "auto"
    dtype: Literal["auto", "float16", "bfloat16", "float32"] = "auto"
    quantization: Quantization = Quantization()
    parallel: Parallel = Parallel()
    target: Target = Target()
    build: Mapping[str, Any] = Field(default_factory=dict)
    convert: Mapping[str, Any] = Field(default_factory=dict)


class _ProfileSpec(_Strict):
    builder: Literal["trtllm"]
    checkpoint: str
    recipe: Recipe = "auto"
    dtype: Literal["auto", "float16", "bfloat16", "float32"] = "auto"
    quantization: str = "none"
    parallel: Parallel = Parallel()
    target: Target = Target()
    build: Mapping[str, Any] = Field(default_factory=dict)
    convert: Mapping[str, Any] = Field(default_factory=dict)


def read_request(documents: Iterable[Any]) -> BuildRequest:
    """One request out of the documents of a file: a BuildProfile, its Checkpoint, and a QuantizationProfile.

    Raises InvalidInput with every finding.
    """
    by_kind: dict[str, dict[str, Any]] = {}
    for number, document in enumerate(documents, 1):
        kind, name, spec = _document(document, number)
        if name in by_kind.setdefault(kind, {}):
            raise _refuse("document_twice", f"There are two {kind} documents named {name}.", f"{kind}/{name}")
        by_kind[kind][name] = spec
    profiles = by_kind.get("BuildProfile", {})
    if len(profiles) != 1:
        message = f"The file holds {len(profiles)} BuildProfile documents; one is composed at a time."
        raise _refuse("one_build_profile", message, "kind", "Keep one BuildProfile in the file.")
    ((name, raw),) = profiles.items()
    profile = _validated(_ProfileSpec, raw, f"BuildProfile/{name}")
    path, config = _checkpoint(by_kind.get("Checkpoint", {}), profile.checkpoint)
    return BuildRequest(
        name=name,
        model=path,
        config=config,
        recipe=profile.recipe,
        dtype=profile.dtype,
        quantization=_quantization(by_kind.get("QuantizationProfile", {}), profile.quantization),
        parallel=profile.parallel,
        target=profile.target,
        build={str(key).replace("-", "_"): value for key, value in profile.build.items()},
        convert={str(key).replace("-", "_"): value for key, value in profile.convert.items()},
    )


def _document(document: Any, number: int) -> tuple[str, str, Mapping[str, Any]]:
    if not isinstance(document, Mapping):
        raise _refuse("document_invalid", f"Document {number} is no mapping.", f"document {number}")
    kind, metadata, spec = document.get("kind"), document.get("metadata"), document.get("spec")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if isinstance(name, str) and not NAME.match(name):
        raise _refuse(
            "name_invalid",
            f"{name!r} cannot be a name: it stands in folder names and addresses.",
            "metadata.name",
            "Use lower-case letters, digits, dots, dashes and underscores; begin with a letter or digit.",
        )
    if document.get("apiVersion") != API_VERSION:
        raise _refuse(
            "api_version",
            f"Document {number} has the apiVersion {document.get('apiVersion')!r}.",
            "apiVersion",
            f"Write apiVersion: {API_VERSION}.",
        )
    if not isinstance(kind, str) or not isinstance(name, str) or not isinstance(spec, Mapping):
        raise _refuse(
            "document_invalid",
            f"Document {number} needs kind, metadata.name and spec.",
            f"document {number}",
            "Write kind: BuildProfile, metadata: {name: NAME}, spec: {...}.",
        )
    return kind, name, spec


def _checkpoint(rows: Mapping[str, Any], name: str) -> tuple[str, Mapping[str, Any] | None]:
    spec = rows.get(name)
    if spec is None:
        raise _refuse(
            "checkpoint_unknown",
            f"The file has no Checkpoint named {name}.",
            "checkpoint",
            "Add its document, or correct the name.",
        )
    source, config = spec.get("source"), spec.get("config")
    path = source.get("path") if isinstance(source, Mapping) else None
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        raise _refuse(
            "checkpoint_path",
            f"The source of {name} is no absolute path.",
            f"Checkpoint/{name}.source",
            "Write source: {path: /folder}; a checkpoint from a hub is fetched first.",
        )
    if config is not None and not isinstance(config, Mapping):
        raise _refuse(
            "checkpoint_config", f"The config of {name} is no mapping.", f"Checkpoint/{name}.config"
        )
    return path, config


def _quantization(rows: Mapping[str, Any], name: str) -> Quantization:
    if name in rows:
        return _validated(Quantization, rows[name], f"QuantizationProfile/{name}")
    formats = get_args(Format)
    if name in formats:
        return Quantization.model_validate({"format": name})
    raise _refuse(
        "quantization_unknown",
        f"{name} is neither a QuantizationProfile of this file nor a format.",
        "quantization",
        f"Formats are: {', '.join(formats)}.",
    )


def _validated(kind: type[Model], raw: Any, where: str) -> Model:
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        findings = tuple(_finding(fault, where) for fault in error.errors())
        first = findings[0]
        raise InvalidInput(
            "specification_invalid", first.message, field=first.where, remedy=first.remedy, findings=findings
        ) from error


def _finding(fault: Any, where: str) -> Finding:
    path = ".".join([where, *(str(part) for part in fault["loc"])])
    if fault["type"] == "extra_forbidden":
        name = str(fault["loc"][-1])
        remedy = "Remove it."
        if name in BY_NAME or name in GONE_BUILD:
            remedy = f"Write it under build: {name}."
        elif name in CONVERT:
            remedy = f"Write it under convert: {name}."
        return Finding("unknown_field", "error", f"{path} is no field of this document.", path, remedy)
    return Finding("field_invalid", "error", f"{path}: {fault['msg']}.", path, "Correct the value.")


def _refuse(code: str, sentence: str, field: str, remedy: str = "Correct the document.") -> InvalidInput:
    return InvalidInput(code, sentence, field=field, remedy=remedy)


def release_of(target: Target) -> tuple[int, int, int]:
    """The target's TensorRT-LLM release. Raises InvalidInput."""
    try:
        return parse_version(target.tensorrt_llm)
    except ValueError as error:
        raise _refuse(
            "release_invalid", f"{error}.", "target.tensorrtLlm", "Write the release of the host, as 1.2.1."
        ) from error
