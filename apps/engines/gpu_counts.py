"""How many GPUs a build must have and how many it can use."""

from __future__ import annotations

import math

from apps.engines.models import Build
from apps.fleet.models import Gpu

# reference 3.3: calibration holds source and quantised weights and activations, 1.5 times the 16-bit weights + 10 %.
CALIBRATION_FACTOR = 1.65
CALIBRATED = frozenset({"fp8", "nvfp4", "int4_awq", "w4a8_awq"})
BYTES_16 = 2


def gpus_of(build: Build, gpu: Gpu) -> tuple[int, int]:
    """(must have, can use) GPUs of the kind of this slot; (1, 1) for all that does not run on GPUs.

    Warming up a checkpoint needs a GPU for each rank. Compiling needs one whatever the ranks, and is quicker with one
    for each. Calibrating needs what holds the model, up to all that the node has.
    """
    spec = build.spec
    if spec.get("builder") != "trtllm" or gpu.device != Gpu.Device.GPU:
        return 1, 1
    request = spec.get("request") or {}
    parallel = request.get("parallel") or {}
    world = math.prod(int(parallel.get(name) or 1) for name in ("tp", "pp", "cp"))
    has = Gpu.objects.filter(node=gpu.node, device=Gpu.Device.GPU, product=gpu.product).count()
    calibrating = min(has, _for_calibration(build, gpu))
    if spec.get("recipe") == "checkpoint":
        needed = max(world, calibrating)
        return needed, needed
    return calibrating, min(has, max(world, calibrating))


def _for_calibration(build: Build, gpu: Gpu) -> int:
    params = (build.checkpoint.facts or {}).get("params")
    if build.spec.get("quantization") not in CALIBRATED or not params or not gpu.memory_bytes:
        return 1
    return max(1, math.ceil(int(params) * BYTES_16 * CALIBRATION_FACTOR / gpu.memory_bytes))
