"""Which type each tensor of the engine gets, and how large the engine will be."""

from __future__ import annotations

from dataclasses import dataclass

from apps.registry.domain.gguf_reader import Header, Tensor
from apps.registry.domain.gguf_types import BY_NAME, tensor_bytes

# Small matrices that llama.cpp's graphs expect in F32, whatever the file's type (its convert_hf_to_gguf.py keeps the
# same ones): expert routers, positions, token types, state-space convolutions, RWKV's time mixing.
KEPT_F32 = (
    "ffn_gate_inp",
    "ffn_gate_inp_shexp",
    "position_embd",
    "token_types",
    "ssm_conv1d",
    "shortconv.conv",
    "time_mix_",
    "attn_rel_b",
)
INTEGERS = frozenset({"I8", "I16", "I32", "I64"})


@dataclass(frozen=True, slots=True)
class Target:
    """One tensor of the engine. `raw`: its bytes are copied as they are. `note`: why it is not of the wanted type."""

    source: Tensor
    type: str
    size: int
    raw: bool
    note: str = ""


def plan_tensors(header: Header, wanted: str) -> list[Target]:
    """Targets of all tensors, in the order of the file."""
    return [_target(tensor, wanted) for tensor in header.tensors]


def _target(tensor: Tensor, wanted: str) -> Target:
    kind, note = _type_of(tensor, wanted)
    size = tensor_bytes(tensor.shape, kind)
    assert size is not None, "a row of whole blocks"  # noqa: S101 - _type_of has seen to it
    return Target(tensor, kind, size, kind == tensor.type, note)


def _type_of(tensor: Tensor, wanted: str) -> tuple[str, str]:
    if tensor.type in INTEGERS:
        return tensor.type, ""
    if len([length for length in tensor.shape if length > 1]) <= 1 or _kept(tensor.name):
        return "F32", ""
    if tensor.shape[0] % BY_NAME[wanted].block:
        return "F16", f"rows of {tensor.shape[0]} are no multiple of {BY_NAME[wanted].block}"
    return wanted, ""


def _kept(name: str) -> bool:
    return not name.endswith(".weight") or any(part in name for part in KEPT_F32)
