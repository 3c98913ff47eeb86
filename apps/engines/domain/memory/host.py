"""Memory of the host while an engine is built, and for the cache's second level.

A build worker needs about twice its rank's weights (serialised engine and network); and the GPU needs
the rank's weights with the workspace of the tactics.
"""

from __future__ import annotations

from apps.engines.domain.memory.request import PlanRequest
from apps.engines.domain.memory.terms import LOGS, Term, exact
from apps.engines.domain.memory.units import GIB, shown

INTERPRETER = 4 * GIB  # Python, PyTorch and TensorRT themselves, of one worker (estimate)


def host_terms(rank_weights: int, request: PlanRequest) -> list[Term]:
    """What one build worker needs of the host; and the offload pool where one is asked for."""
    likely = 2 * rank_weights + INTERPRETER
    found = [
        Term(
            "build_host",
            "Host memory of one build worker",
            "host",
            rank_weights + INTERPRETER // 2,
            likely,
            3 * rank_weights + INTERPRETER,
            f"2 x {shown(rank_weights)} (network and serialised engine) + 4 GiB for the program; "
            f"{request.world_size} workers where ranks are built at once",
            f"{LOGS}: an estimate",
        )
    ]
    if request.kv_host_bytes:
        found.append(
            exact(
                "kv_host",
                "KV cache on the host",
                "host",
                request.kv_host_bytes,
                "kv_cache_host_memory_bytes, pinned",
                LOGS,
            )
        )
    return found
