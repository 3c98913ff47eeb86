"""Type numbers of GGUF and ggml: metadata values and tensors. Standard library alone (see gguf_reader)."""

from __future__ import annotations

from dataclasses import dataclass

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)

# Type number -> struct code, bytes.
SCALARS: dict[int, tuple[str, int]] = {
    UINT8: ("B", 1),
    INT8: ("b", 1),
    UINT16: ("H", 2),
    INT16: ("h", 2),
    UINT32: ("I", 4),
    INT32: ("i", 4),
    FLOAT32: ("f", 4),
    BOOL: ("B", 1),
    UINT64: ("Q", 8),
    INT64: ("q", 8),
    FLOAT64: ("d", 8),
}


@dataclass(frozen=True, slots=True)
class TensorType:
    """A weight type: `block` weights are stored in `size` bytes."""

    number: int
    name: str
    block: int
    size: int


# ggml.h (enum ggml_type) and ggml-common.h (block sizes); a test compares them with the gguf package.
_KNOWN = (
    TensorType(0, "F32", 1, 4),
    TensorType(1, "F16", 1, 2),
    TensorType(2, "Q4_0", 32, 18),
    TensorType(3, "Q4_1", 32, 20),
    TensorType(6, "Q5_0", 32, 22),
    TensorType(7, "Q5_1", 32, 24),
    TensorType(8, "Q8_0", 32, 34),
    TensorType(9, "Q8_1", 32, 40),
    TensorType(10, "Q2_K", 256, 84),
    TensorType(11, "Q3_K", 256, 110),
    TensorType(12, "Q4_K", 256, 144),
    TensorType(13, "Q5_K", 256, 176),
    TensorType(14, "Q6_K", 256, 210),
    TensorType(15, "Q8_K", 256, 292),
    TensorType(16, "IQ2_XXS", 256, 66),
    TensorType(17, "IQ2_XS", 256, 74),
    TensorType(18, "IQ3_XXS", 256, 98),
    TensorType(19, "IQ1_S", 256, 50),
    TensorType(20, "IQ4_NL", 32, 18),
    TensorType(21, "IQ3_S", 256, 110),
    TensorType(22, "IQ2_S", 256, 82),
    TensorType(23, "IQ4_XS", 256, 136),
    TensorType(24, "I8", 1, 1),
    TensorType(25, "I16", 1, 2),
    TensorType(26, "I32", 1, 4),
    TensorType(27, "I64", 1, 8),
    TensorType(28, "F64", 1, 8),
    TensorType(29, "IQ1_M", 256, 56),
    TensorType(30, "BF16", 1, 2),
    TensorType(34, "TQ1_0", 256, 54),
    TensorType(35, "TQ2_0", 256, 66),
    TensorType(39, "MXFP4", 32, 17),
    TensorType(40, "NVFP4", 64, 36),
    TensorType(41, "Q1_0", 128, 18),
)
TENSOR_TYPES: dict[int, TensorType] = {known.number: known for known in _KNOWN}
BY_NAME: dict[str, TensorType] = {known.name: known for known in _KNOWN}

# general.file_type (llama.h, enum llama_ftype) -> the weight type that most tensors have.
FILE_TYPES: dict[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4",
    39: "NVFP4",
    40: "Q1_0",
}


def tensor_bytes(shape: tuple[int, ...], kind: str) -> int | None:
    """Size in bytes of a tensor, or None where a row does not fill whole blocks or the size passes 63 bits."""
    known = BY_NAME[kind]
    if shape[0] % known.block:
        return None
    elements = 1
    for length in shape:
        elements *= length
        if elements >= 2**63:
            return None
    size = elements // known.block * known.size
    return size if size < 2**63 else None
