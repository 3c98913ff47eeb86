"""What a person gives to configure a build, as API bodies and YAML documents spell it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from apps.engines.domain.trtllm.build_flags import BY_NAME
from apps.engines.domain.trtllm.conversion_flags import CONVERT, QUANTIZE
from apps.engines.domain.trtllm.flag import Flag, normalised
from apps.engines.models import BuildProfile, Quantization, QuantizationProfile

STRICT = ConfigDict(extra="forbid", strict=True)
Ranks = Annotated[int, Field(ge=1, le=64)]
NONE = "none"


class ParallelFields(BaseModel):
    """Ranks of an engine; the conversion fixes them."""

    model_config = STRICT

    tp: Ranks = 1
    pp: Ranks = 1
    cp: Ranks = 1
    moe_ep: Ranks = 1


class TargetFields(BaseModel):
    """Where it is built and served; what is empty may be any that fits."""

    model_config = STRICT

    gpu: str = Field("", max_length=60, description="A GPU of the memory planner's table, as h100-sxm.")
    gpus: Ranks | None = Field(None, description="GPUs of that host.")
    tensorrt_llm: str = Field("", max_length=30, description="A release, as 1.2.1.")
    toolchain: str = Field("", max_length=100, description="Name of a toolchain of a node.")


class CalibrationFields(BaseModel):
    """Texts that a quantization is calibrated with."""

    model_config = STRICT

    dataset: str = Field("cnn_dailymail", min_length=1, max_length=500)
    size: Annotated[int, Field(ge=-1, le=100_000)] = 512
    max_seq_length: Annotated[int, Field(ge=1, le=1_000_000)] = 512
    batch_size: Annotated[int, Field(ge=1, le=4096)] = 1


class QuantizationProfileFields(BaseModel):
    """All of a quantization profile that is configured. `options` are flags of quantize.py that no field has."""

    model_config = STRICT

    format: QuantizationProfile.Format = Field(QuantizationProfile.Format.NONE, strict=False)
    kv_cache_dtype: QuantizationProfile.KvCache = Field(QuantizationProfile.KvCache.AUTO, strict=False)
    calibration: CalibrationFields = Field(default_factory=CalibrationFields)
    group_size: Annotated[int, Field(ge=1, le=4096)] = 128
    smoothquant: Annotated[float, Field(ge=0, le=1, strict=False)] = 0.5
    per_channel: bool = True
    per_token: bool = True
    quantize_lm_head: bool = False
    weights: str = Field("", max_length=1000)
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("options")
    @classmethod
    def _one_spelling(cls, value: dict[str, Any]) -> dict[str, Any]:
        return normalised(QUANTIZE, value)


class BuildProfileFields(BaseModel):
    """All of a build profile that is configured; `checkpoint` is a name.

    `quantization` is a weight type for the builder llamacpp, the name of a quantization profile or none for trtllm.
    `options` are llamacpp's; `recipe` to `convert` are trtllm's. Flags that say the program's default are left out.
    """

    model_config = STRICT

    builder: BuildProfile.Builder = Field(BuildProfile.Builder.LLAMACPP, strict=False)
    checkpoint: str = Field(min_length=1, max_length=63, description="Name of a checkpoint.")
    quantization: str = Field("", max_length=63, validate_default=True)
    options: dict[str, Any] = Field(default_factory=dict)
    recipe: BuildProfile.Recipe = Field(BuildProfile.Recipe.AUTO, strict=False)
    dtype: BuildProfile.Dtype = Field(BuildProfile.Dtype.AUTO, strict=False)
    parallel: ParallelFields = Field(default_factory=ParallelFields)
    target: TargetFields = Field(default_factory=TargetFields)
    build: dict[str, Any] = Field(default_factory=dict, description="Flags of trtllm-build.")
    convert: dict[str, Any] = Field(default_factory=dict, description="Flags of convert_checkpoint.py.")

    @field_validator("quantization")
    @classmethod
    def _known_type(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("builder", BuildProfile.Builder.LLAMACPP) != BuildProfile.Builder.LLAMACPP:
            return value or NONE
        if value and value not in Quantization.values:
            expected = ", ".join(f"'{name}'" for name in Quantization.values)
            raise PydanticCustomError("enum", "Input should be {expected}", {"expected": expected})
        return value or str(Quantization.F16)

    @field_validator("build", "convert")
    @classmethod
    def _one_spelling(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        return normalised(FLAGS[str(info.field_name)], value)


FLAGS: dict[str, dict[str, Flag]] = {"build": BY_NAME, "convert": CONVERT}
# Fields of one builder alone.
TRTLLM_FIELDS = ("recipe", "dtype", "parallel", "target", "build", "convert")


def of_builder(values: dict[str, Any]) -> dict[str, Any]:
    """A build profile's fields without those of the other builder, and trtllm's without what is at its default.

    Works on snake_case and on camelCase alike.
    """
    if values["builder"] == BuildProfile.Builder.LLAMACPP:
        return {key: value for key, value in values.items() if key not in TRTLLM_FIELDS}
    kept = {key: value for key, value in values.items() if key != "options"}
    kept["parallel"] = {key: size for key, size in kept["parallel"].items() if size != 1}
    kept["target"] = {key: value for key, value in kept["target"].items() if value not in ("", None)}
    return {
        key: value for key, value in kept.items() if value != {} and not (key == "dtype" and value == "auto")
    }
