"""What one weight and one cached value take in each format, and which GPUs can compute with it.

Bytes are a fraction (numerator, denominator), so that every sum stays whole. Sources: TensorRT-LLM's QuantAlgo and
support matrix; group scales are 16 bit, zero points 4 bit (AutoGPTQ, AutoAWQ); ggml block sizes from the GGUF types.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from apps.core.exceptions import InvalidInput
from apps.registry.domain.gguf_types import BY_NAME

DEFAULT_GROUP = 128
LLAMACPP_TYPES = tuple(
    name for name in BY_NAME if name not in {"I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K"}
)


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How linear layers are stored. `numerator / denominator` bytes for each weight, scales included.

    `group` weights share a scale (None: one scale for a channel or a tensor, too small to count). `everything` is
    true where embedding and lm_head are stored so too. `min_sm` is the oldest compute capability (times ten) that
    computes with it, `barred` are ranges of capabilities whose builder refuses it.
    """

    name: str
    label: str
    numerator: int
    denominator: int
    group: int | None = None
    everything: bool = False
    min_sm: int = 70
    barred: tuple[int, int] | None = None

    def bytes_of(self, params: int) -> int:
        """Whole bytes of so many weights."""
        return -(-params * self.numerator // self.denominator)

    @property
    def bits(self) -> float:
        """Bits for each weight, scales included."""
        return 8 * self.numerator / self.denominator


def _grouped(payload_bits: int, scale_bits: int, zero_bits: int, group: int) -> tuple[int, int]:
    numerator, denominator = payload_bits * group + scale_bits + zero_bits, 8 * group
    shared = gcd(numerator, denominator)
    return numerator // shared, denominator // shared


def _int4(name: str, label: str, zero_bits: int, group: int, min_sm: int = 80) -> WeightFormat:
    return WeightFormat(name, label, *_grouped(4, 16, zero_bits, group), group=group, min_sm=min_sm)


_PLAIN = (
    WeightFormat("fp32", "FP32", 4, 1, everything=True),
    WeightFormat("fp16", "FP16", 2, 1),
    WeightFormat("bf16", "BF16", 2, 1, min_sm=80),
    WeightFormat("fp8", "FP8", 1, 1, min_sm=89),
    # One 32-bit scale for each block of 128 x 128 (DeepSeek).
    WeightFormat("fp8_block", "FP8, blocks of 128 x 128", *_grouped(8, 32, 0, 128 * 128), min_sm=89),
    WeightFormat("int8", "INT8 weight-only", 1, 1, min_sm=80, barred=(100, 119)),
    WeightFormat("int8_sq", "INT8 SmoothQuant", 1, 1, min_sm=80, barred=(100, 119)),
    WeightFormat("int4_wo", "INT4 weight-only, a scale for each channel", 1, 2, min_sm=80, barred=(100, 119)),
    WeightFormat("nvfp4", "NVFP4", *_grouped(4, 8, 0, 16), group=16, min_sm=100),
    WeightFormat("mxfp4", "MXFP4", *_grouped(4, 8, 0, 32), group=32, min_sm=90),
)
_GGUF = tuple(
    WeightFormat(
        name.lower(), f"GGUF {name}", BY_NAME[name].size, BY_NAME[name].block, everything=True, min_sm=50
    )
    for name in LLAMACPP_TYPES
    if name not in {"F32", "F16", "BF16", "NVFP4", "MXFP4"}
)
# Name -> (bits of a zero point, label): formats whose size depends on the width of their groups.
_GROUPED = {
    "int4": (0, "INT4, groups"),
    "int4_awq": (0, "INT4 AWQ"),
    "int4_awq_zeros": (4, "INT4 AWQ with zero points"),
    "int4_gptq": (4, "INT4 GPTQ"),
    "w4a8_awq": (0, "INT4 AWQ, FP8 activations"),
}
_SAME = {
    "float32": "fp32",
    "f32": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "f16": "fp16",
    "bfloat16": "bf16",
    "int8_wo": "int8",
    "w8a16": "int8",
    "smoothquant": "int8_sq",
    "w8a8": "int8_sq",
    "w8a8_sq": "int8_sq",
    "fp8_blockwise": "fp8_block",
    "fp8_block_scales": "fp8_block",
    "fp8_rowwise": "fp8",
    "awq": "int4_awq",
    "w4a16_awq": "int4_awq",
    "gptq": "int4_gptq",
    "w4a16_gptq": "int4_gptq",
    "w4a16": "int4_wo",
    "fp4": "nvfp4",
}
WEIGHT_NAMES = (*(known.name for known in _PLAIN), *_GROUPED, *(known.name for known in _GGUF))
_BY_NAME = {known.name: known for known in (*_PLAIN, *_GGUF)}
_MADE: dict[tuple[str, int], WeightFormat] = {}


def weight_format(name: str, group: int | None = None) -> WeightFormat:
    """The format of that name; `group` weights share a scale where the format has groups (default 128).

    Raises InvalidInput for an unknown name or a width that is no positive number.
    """
    known = _SAME.get(name.lower().replace("-", "_"), name.lower().replace("-", "_"))
    plain = _BY_NAME.get(known)
    if plain is not None:
        return plain
    if known not in _GROUPED:
        raise InvalidInput(
            "weights_unknown",
            f"There is no weight format {name[:40]!r}.",
            field="weights",
            remedy=f"Use one of {', '.join(WEIGHT_NAMES[:16])}, or a GGUF type such as q4_k.",
        )
    width = DEFAULT_GROUP if group is None else group
    if width < 1 or width > 65_536:
        raise InvalidInput(
            "group_size_invalid",
            f"Groups of {width} weights make no sense.",
            field="group_size",
            remedy="Use 64 or 128.",
        )
    found = _MADE.get((known, width))
    if found is None:
        zero_bits, label = _GROUPED[known]
        min_sm = 89 if known == "w4a8_awq" else 80
        found = _MADE[(known, width)] = _int4(known, f"{label} of {width}", zero_bits, width, min_sm)
    return found


@dataclass(frozen=True, slots=True)
class KvFormat:
    """How keys and values are cached: `numerator / denominator` bytes for each value."""

    name: str
    label: str
    numerator: int
    denominator: int
    min_sm: int = 70

    def bytes_of(self, values: int) -> int:
        """Whole bytes of so many values."""
        return -(-values * self.numerator // self.denominator)


_KV = (
    KvFormat("fp32", "FP32", 4, 1),
    KvFormat("fp16", "FP16", 2, 1),
    KvFormat("bf16", "BF16", 2, 1, 80),
    KvFormat("fp8", "FP8", 1, 1, 89),
    KvFormat("int8", "INT8", 1, 1, 80),
    KvFormat("nvfp4", "NVFP4", *_grouped(4, 8, 0, 16), min_sm=100),
)
_KV_GGUF = tuple(
    KvFormat(name.lower(), f"GGUF {name}", BY_NAME[name].size, BY_NAME[name].block, 50)
    for name in ("Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
)
_KV_BY_NAME = {known.name: known for known in (*_KV, *_KV_GGUF)}
KV_NAMES = tuple(_KV_BY_NAME)


def kv_format(name: str) -> KvFormat:
    """The format of that name. Raises InvalidInput."""
    known = name.lower().replace("-", "_")
    found = _KV_BY_NAME.get(_SAME.get(known, known))
    if found is None:
        raise InvalidInput(
            "kv_unknown",
            f"There is no KV cache format {name[:40]!r}.",
            field="kv",
            remedy=f"Use one of {', '.join(KV_NAMES)}.",
        )
    return found


def weight_choices() -> list[WeightFormat]:
    """Formats in the order in which a person chooses: TensorRT-LLM's, then GGUF's."""
    grouped = [weight_format(name) for name in ("int4_awq", "int4_gptq", "w4a8_awq")]
    return [*_PLAIN[1:], *grouped, *_GGUF]


def kv_choices() -> list[KvFormat]:
    """Formats of the cache in the order in which a person chooses."""
    return [*_KV, *_KV_GGUF]
