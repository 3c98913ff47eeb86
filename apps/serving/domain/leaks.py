"""GPU memory that does not come back after loads that failed, so that the next failure is not taken for a full GPU.

In explicit mode Triton may keep what a failed load allocated until its process ends; unloading returns nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

# Less is what allocators and contexts move by themselves.
NOISE_MIB = 32.0


@dataclass(frozen=True, slots=True)
class Leak:
    """`leak_mib_per_attempt`: what each failed attempt leaves behind, null where nothing is. `advice`: what helps."""

    leak_mib_per_attempt: float | None
    advice: Literal["restart server", "none"]


def judge(levels_mib: Sequence[float]) -> Leak:
    """Memory in use (MiB) before the first load and after each failed one with its unload.

    The median of the growths, so that one attempt that also allocated a context does not decide.
    """
    growths = sorted(after - before for before, after in pairwise(levels_mib))
    if not growths:
        return Leak(None, "none")
    middle = len(growths) // 2
    median = growths[middle] if len(growths) % 2 else (growths[middle - 1] + growths[middle]) / 2
    if median < NOISE_MIB:
        return Leak(None, "none")
    return Leak(median, "restart server")
