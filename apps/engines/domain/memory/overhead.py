"""What a rank needs beside weights, activations and cache: CUDA context, the server, buffers by batch size, adapters.

Logits are the largest hidden cost: one buffer of max_batch_size x vocabulary x 4 bytes, and several exist (at batch
2048 and 152,064 tokens one of them is 1.16 GiB).
"""

from __future__ import annotations

from apps.engines.domain.memory.request import PlanRequest
from apps.engines.domain.memory.shape import Shape, Stage
from apps.engines.domain.memory.terms import LOGS, Term, exact, multiple
from apps.engines.domain.memory.units import MIB

# A bare context took 526.8 MiB on an H200 (driver 580); reports give 0.3 to 1.0 GiB with NCCL.
CONTEXT = (307 * MIB, 527 * MIB, 1024 * MIB)
# Triton's own pool on each GPU (--cuda-memory-pool-byte-size, 64 MiB by default). On an H200 the whole process of a
# Triton without a model held 580 MiB, which is the context and this.
TRITON_POOL = 64 * MIB
# Copies of the logits that the decoder keeps: raw, processed, log probabilities; four with more than one beam's.
LOGITS_COPIES = (1, 3, 4)
# Arrays of int32 over batch x beam x sequence: ids, gathered ids, parents, cache indirection in and out, log probs.
SEQUENCE_ARRAYS = (3, 6, 8)
GRAPH = (4 * MIB, 7 * MIB, 10 * MIB)
COUNT = 4  # bytes of an int32 or a float32


def overhead_terms(shape: Shape, stage: Stage, request: PlanRequest) -> list[Term]:
    """Terms of one rank; the measured sum in their place where there is one."""
    if request.overhead_bytes is not None:
        fixed = exact(
            "overhead",
            "Context, server and buffers",
            "overhead",
            request.overhead_bytes,
            "as given",
            "given with the plan",
        )
        return [fixed, *_reserved(request)]
    found = [
        Term(
            "cuda_context",
            "CUDA context and NCCL",
            "overhead",
            *CONTEXT,
            "one context of a rank; up to 1.0 GiB with NCCL",
            "527 MiB measured on an H200; " + LOGS,
        ),
        exact(
            "triton",
            "Triton's memory pool",
            "overhead",
            TRITON_POOL,
            "64 MiB, the default of --cuda-memory-pool-byte-size",
            "Triton's options",
        ),
        *_buffers(shape, stage, request),
    ]
    if request.cuda_graphs:
        found.append(
            multiple(
                "cuda_graphs",
                "CUDA graphs",
                "overhead",
                GRAPH,
                request.cuda_graphs,
                f"{request.cuda_graphs} graphs x 4 to 10 MiB",
                LOGS,
            )
        )
    return [*found, *_lora(shape, stage, request), *_reserved(request)]


def _buffers(shape: Shape, stage: Stage, request: PlanRequest) -> list[Term]:
    sequences = request.max_batch_size * request.beam_width
    tokens = request.draft_tokens + 1
    batch = f"batch {request.max_batch_size:,} x beam {request.beam_width}"
    found = []
    if stage.last:
        drafts = f" x {tokens} tokens a step" if tokens > 1 else ""
        logits = sequences * tokens * shape.vocab_size * COUNT
        found.append(
            multiple(
                "logits",
                "Logits",
                "overhead",
                LOGITS_COPIES,
                logits,
                f"{batch}{drafts} x vocabulary {shape.vocab_size:,} x 4 B x {LOGITS_COPIES[0]} to "
                f"{LOGITS_COPIES[2]} buffers",
                f"{LOGS}; one buffer alone is {logits:,} B",
            )
        )
    found.append(
        multiple(
            "decoder",
            "Decoder and runtime buffers",
            "overhead",
            SEQUENCE_ARRAYS,
            sequences * (request.max_seq_len + request.draft_tokens) * COUNT,
            f"{batch} x sequence {request.max_seq_len:,} x 4 B x {SEQUENCE_ARRAYS[0]} to {SEQUENCE_ARRAYS[2]} arrays",
            f"{LOGS} (ids, parents, cache indirection)",
        )
    )
    return found


def _lora(shape: Shape, stage: Stage, request: PlanRequest) -> list[Term]:
    """Adapters on the GPU: rank x (inputs + outputs) of every linear layer, attention taken as square."""
    if request.lora is None:
        return []
    widths = 4 * 2 * shape.hidden_size + 3 * (shape.hidden_size + shape.ffn_width)
    each = request.lora.rank * widths * stage.count * 2 // request.tp
    amount = each * request.lora.adapters
    return [
        Term(
            "lora",
            "LoRA adapters",
            "overhead",
            amount // 2,
            amount,
            amount + amount // 2,
            f"{request.lora.adapters} adapters of rank {request.lora.rank} on all linear layers of {stage.count}",
            f"{LOGS}; unproven",
        )
    ]


def _reserved(request: PlanRequest) -> list[Term]:
    if not request.reserved:
        return []
    return [
        exact(
            "reserved",
            "Held by others",
            "overhead",
            request.reserved,
            "memory of this GPU that other programs hold",
            "given with the plan",
        )
    ]
