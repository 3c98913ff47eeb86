"""What stands against a TensorRT-LLM build on the host that is to make it, before hours are spent."""

from __future__ import annotations

import shutil

import psutil

from apps.core.exceptions import Finding
from apps.engines.domain.build_spec import DISK_RESERVE_BYTES
from apps.engines.domain.trtllm.spec import TrtllmSpec
from apps.fleet.domain.toolchain_report import ENGINE
from apps.fleet.models import Toolchain
from workers.builders.base import BuildContext

# reference 9.5: host memory of 2-3 times a rank's weights for each worker, disk of 3 times the model.
MEMORY_FACTOR, DISK_FACTOR = 2, 3
BYTES_16 = 2


def check_toolchain(spec: TrtllmSpec, row: Toolchain) -> list[Finding]:
    """The toolchain as it was probed last, against the one that the build was made for."""
    found = []
    if spec.recipe not in row.recipes:
        why = row.problem or f"It cannot do the recipe {spec.recipe}."
        found.append(error_of("toolchain_cannot", f"{row.name}: {why}", "toolchain", row.remedy))
    asked = spec.versions.get("tensorrt_llm", row.release)
    if row.release != asked:
        message = f"{row.name} has TensorRT-LLM {row.release or 'none'} now; the build was made for {asked}."
        found.append(error_of("toolchain_changed", message, "toolchain", "Start the build anew."))
    image = spec.versions.get("image")
    if image and image != row.location:
        message = f"{row.name} is another image now than the build was made for."
        found.append(error_of("toolchain_changed", message, "toolchain", "Start the build anew."))
    if spec.sm is not None and row.gpus and spec.sm not in row.sms:
        message = f"The build is for SM {spec.sm}; {row.name} sees SM {', '.join(map(str, row.sms)) or '-'}."
        found.append(error_of("gpu_differs", message, "target.gpu", "Start the build anew."))
    return found


def check_room(spec: TrtllmSpec, context: BuildContext) -> list[Finding]:
    """Disk and host memory, before hours are spent."""
    weights = weights_of(context)
    if weights is None:
        return []
    found = []
    world = spec.request.parallel.world
    factor = (
        DISK_FACTOR if spec.recipe == ENGINE else (1 if spec.request.quantization.format != "none" else 0)
    )
    needed = factor * weights + DISK_RESERVE_BYTES
    free = shutil.disk_usage(context.engines.parent).free
    if free < needed:
        message = (
            f"{context.engines.parent} has {free / 1e9:.1f} GB free; checkpoint, engine and what lies between "
            f"take about {needed / 1e9:.1f} GB."
        )
        remedy = "Delete engines and stages that are no longer needed, or free space on that disk."
        found.append(error_of("disk_full", message, "disk", remedy))
    memory = psutil.virtual_memory()
    rank = weights // world
    workers = min(world, len(context.gpus) or 1) if spec.recipe == ENGINE else 1
    if memory.total < rank * workers:
        message = (
            f"The host has {memory.total / 1e9:.0f} GB of memory; {workers} workers with "
            f"{rank / 1e9:.0f} GB of weights each cannot work in it."
        )
        found.append(
            error_of("host_out_of_memory", message, "build.workers", "Use workers: 1, or a larger host.")
        )
    elif memory.available < MEMORY_FACTOR * rank * workers:
        message = (
            f"The host has {memory.available / 1e9:.0f} GB of memory left; a build like this may take "
            f"{MEMORY_FACTOR * rank * workers / 1e9:.0f} GB."
        )
        found.append(Finding("host_memory_low", "warning", message, "memory", "Stop something else there."))
    return found


def weights_of(context: BuildContext) -> int | None:
    """Bytes of the weights at 16 bits, where the checkpoint tells."""
    params = context.facts.params if context.facts is not None else None
    return params * BYTES_16 if params else None


def error_of(code: str, message: str, where: str, remedy: str) -> Finding:
    """An error with its remedy."""
    return Finding(code, "error", message, where, remedy or "See the node's page.")
