"""What engines say in their logs about the memory that they took: llama.cpp and TensorRT-LLM.

Figures come from the log alone, never from the planner. Absent is None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from apps.engines.domain.memory.units import GIB, MIB

LARGEST_LOG = 4 * 1024 * 1024
_SCALE = {"K": 1024, "M": MIB, "G": GIB}


@dataclass(frozen=True, slots=True)
class Measured:
    """Bytes and tokens of one load as its log says. `repacked` is what llama.cpp copied into another layout."""

    weights: int | None = None
    repacked: int | None = None
    kv: int | None = None
    kv_tokens: int | None = None
    kv_blocks: int | None = None
    activations: int | None = None
    buffers: int | None = None
    free_before_kv: int | None = None
    total: int | None = None
    engine_version: str | None = None

    @property
    def anything(self) -> bool:
        """Whether the log said anything of use."""
        return any(getattr(self, name) is not None for name in self.__slots__)


_MODEL = re.compile(r"(\S+) model buffer size\s*=\s*([\d.]+) MiB")
_CACHE = re.compile(r"\S+ KV buffer size\s*=\s*([\d.]+) MiB")
_CELLS = re.compile(
    r"llama_kv_cache\w*: size =\s*[\d.]+ MiB \(\s*(\d+) cells,\s*\d+ layers,\s*\d+/(\d+) seqs\)"
)
_COMPUTE = re.compile(r"\S+ compute buffer size\s*=\s*([\d.]+) MiB")
_OUTPUT = re.compile(r"\S+\s+output buffer size\s*=\s*([\d.]+) MiB")

_ENGINE = re.compile(r"Loaded engine size: (\d+) MiB")
_CONTEXT = re.compile(r"\[MemUsageChange\] Allocated ([\d.]+) ([KMG])i?B for execution context memory")
_RUNTIME = re.compile(
    r"\[MemUsageChange\] Allocated ([\d.]+) ([KMG])i?B (?:GPU memory )?for (?:runtime buffers|decoder)"
)
_FREE = re.compile(r"total: ([\d.]+) GiB, available: ([\d.]+) GiB")
_POOL = re.compile(r"\[MemUsageChange\] Allocated ([\d.]+) GiB for max tokens in paged KV cache \((\d+)\)")
_BLOCKS = re.compile(r"Number of blocks in KV cache primary pool: (\d+)|\.?primary_?[Bb]locks ?= ?(\d+)")
_VERSION = re.compile(r"Engine version (\S+) found in the config file")
_PLAIN_KV = re.compile(r"[Aa]llocat\w+ (\d+) bytes for k/v cache")


def read_load_log(text: str) -> Measured:
    """Figures of the last load in a server's log. Unknown lines are passed over."""
    last = text[-LARGEST_LOG:]
    return _llamacpp(last) if _MODEL.search(last) else _tensorrt(last)


def _llamacpp(text: str) -> Measured:
    models = [(name, float(size)) for name, size in _MODEL.findall(text)]
    cells = [(int(each), int(streams)) for each, streams in _CELLS.findall(text)]
    return Measured(
        weights=_mib([size for name, size in models if "REPACK" not in name]),
        repacked=_mib([size for name, size in models if "REPACK" in name]),
        kv=_mib([float(size) for size in _CACHE.findall(text)]),
        kv_tokens=max((each * streams for each, streams in cells), default=None),
        activations=_mib([float(size) for size in _COMPUTE.findall(text)]),
        buffers=_mib([float(size) for size in _OUTPUT.findall(text)]),
    )


def _tensorrt(text: str) -> Measured:
    engine, pool, free = _last(_ENGINE, text), _last(_POOL, text), _last(_FREE, text)
    blocks, plain, version = _last(_BLOCKS, text), _last(_PLAIN_KV, text), _last(_VERSION, text)
    cache = int(float(pool[1]) * GIB) if pool else int(plain[1]) if plain else None
    return Measured(
        weights=int(engine[1]) * MIB if engine else None,
        kv=cache,
        kv_tokens=int(pool[2]) if pool else None,
        kv_blocks=int(blocks[1] or blocks[2]) if blocks else None,
        activations=_sized(_CONTEXT, text),
        buffers=_sized(_RUNTIME, text),
        total=int(float(free[1]) * GIB) if free else None,
        free_before_kv=int(float(free[2]) * GIB) if free else None,
        engine_version=version[1] if version else None,
    )


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = None
    for match in pattern.finditer(text):
        found = match
    return found


def _sized(pattern: re.Pattern[str], text: str) -> int | None:
    sizes = [int(float(amount) * _SCALE[unit]) for amount, unit in pattern.findall(text)]
    return sum(sizes) if sizes else None


def _mib(sizes: list[float]) -> int | None:
    return int(sum(sizes) * MIB) if sizes else None
