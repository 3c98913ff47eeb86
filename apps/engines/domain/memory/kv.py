"""The KV cache: bytes of a token, blocks of a sequence, the pool out of the free memory, and what it holds.

As in kvCacheManager of TensorRT-LLM 0.14 to 1.x.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from apps.engines.domain.memory.formats import KvFormat
from apps.engines.domain.memory.shape import HALF, LayerKind, Stage


@dataclass(frozen=True, slots=True)
class WindowGroup:
    """Layers of one rank that keep the same number of tokens (None: all), and their bytes for each token."""

    window: int | None
    layers: int
    bytes_per_token: int


@dataclass(frozen=True, slots=True)
class Pool:
    """`bytes` allotted in whole blocks, `tokens` that it holds, `blocks` of the group with the longest window.

    `sequences` is how many of the asked length it holds at once (0: not even one).
    """

    bytes: int
    tokens: int
    blocks: int
    sequences: int


def local_values(kind: LayerKind, tp: int) -> int:
    """Cached values of one token in one layer of a rank: at least one KV head, a latent whole."""
    if not kind.kv_values or not kind.kv_heads:
        return 0
    heads = max(-(-kind.kv_heads // tp), 1)
    return -(-kind.kv_values // kind.kv_heads) * heads


def window_groups(stage: Stage, tp: int, form: KvFormat, windows: bool) -> tuple[WindowGroup, ...]:
    """Groups of a rank, widest first. Without `windows` every layer keeps everything."""
    found: dict[int | None, list[int]] = {}
    for kind, count in stage.layers:
        values = local_values(kind, tp)
        if values:
            entry = found.setdefault(kind.window if windows else None, [0, 0])
            entry[0] += count
            entry[1] += form.bytes_of(values) * count
    groups = [WindowGroup(window, layers, size) for window, (layers, size) in found.items()]
    return tuple(sorted(groups, key=lambda group: -(group.window or 2**62)))


def state_bytes(stage: Stage, tp: int) -> int:
    """Bytes that one sequence keeps whatever its length (linear attention, state space), 16 bit."""
    return sum(HALF * -(-kind.state_values // tp) * count for kind, count in stage.layers)


def blocks_per_sequence(
    tokens: int,
    block: int,
    *,
    window: int | None = None,
    bubble: int = 0,
    beam: int = 1,
    output: int | None = None,
) -> int:
    """Blocks of one sequence of `tokens`. With beams, `output` says how many of them the beams do not share.

    Without `output` nothing is taken as shared, which is the most that it can be.
    """
    kept = (tokens if window is None else min(tokens, window)) + bubble
    each = -(-kept // block)
    if beam == 1:
        return each
    if output is None or kept - bubble <= output:
        return each * beam
    shared_tokens = kept - bubble - output
    shared = (shared_tokens + bubble) // block
    rest = max(shared_tokens - shared * block, 0)
    return shared + -(-(output + rest) // block) * beam


def sequence_bytes(
    groups: tuple[WindowGroup, ...], tokens: int, block: int, *, bubble: int = 0, beam: int = 1
) -> int:
    """Bytes of the blocks of one sequence over every group."""
    return sum(
        blocks_per_sequence(tokens, block, window=group.window, bubble=bubble, beam=beam)
        * block
        * group.bytes_per_token
        for group in groups
    )


def pool_of(
    free: int,
    fraction: float,
    groups: tuple[WindowGroup, ...],
    tokens: int,
    block: int,
    *,
    max_tokens: int | None = None,
    bubble: int = 0,
    beam: int = 1,
) -> Pool:
    """The pool out of `free` bytes, which are measured after weights, context and buffers are allocated.

    With one group this is kvCacheManager's arithmetic: floor(free * fraction), whole tokens, blocks rounded up. With
    several windows the allotment is split in proportion to window x bytes for a token of each group.
    """
    # Fraction keeps the product whole where the fraction is a decimal such as 0.9.
    allotted = int(max(free, 0) * Fraction(fraction).limit_denominator(10**6))
    shares = [(min(group.window or tokens, tokens) or 1) * group.bytes_per_token for group in groups]
    whole = sum(shares)
    if not whole:
        return Pool(0, 0, 0, 0)
    size, sequences, first_blocks = 0, None, 0
    for index, (group, share) in enumerate(zip(groups, shares, strict=True)):
        held = allotted * share // whole // group.bytes_per_token
        if max_tokens is not None:
            held = min(held, max_tokens)
        blocks = -(-held // block)
        size += blocks * block * group.bytes_per_token
        need = blocks_per_sequence(tokens, block, window=group.window, bubble=bubble, beam=beam)
        fit = blocks // need if need else 0
        sequences = fit if sequences is None else min(sequences, fit)
        if index == 0:
            first_blocks = blocks
    return Pool(size, first_blocks * block, first_blocks, sequences or 0)
