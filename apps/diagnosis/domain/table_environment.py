"""Rules about drivers, devices, libraries and MPI. See table.py for the order."""

from __future__ import annotations

from apps.diagnosis.domain.rule import Rule, rule

RULES: tuple[Rule, ...] = (
    rule(
        "driver_library_mismatch",
        "The driver's library and its kernel module are of different versions.",
        [r"Driver/library version mismatch"],
        [
            "Restart the host, or unload and load the kernel module: the driver was upgraded while it was in use."
        ],
    ),
    rule(
        "nvml_unreachable_in_container",
        "The container has lost its GPUs.",
        [r"Failed to initialize NVML: Unknown Error", r"nvmlInit\w*.*Unknown Error"],
        ["Restart the container; a reload of the host's service manager took its devices away."],
    ),
    rule(
        "driver_too_old",
        "The host's driver is older than the CUDA of the programs.",
        [
            r"was built for NVIDIA Driver Release (?P<needed>[\d.]+) or later",
            r"version (?P<found>[\d.]+) was detected and compatibility mode is UNAVAILABLE",
            r"CUDA driver version is insufficient for CUDA runtime version",
        ],
        ["Upgrade the host's driver, or choose an image with an older CUDA."],
    ),
    rule(
        "cuda_forward_compatibility",
        "This GPU cannot run a CUDA that is newer than its driver.",
        [
            r"forward compatibility was attempted on non supported HW",
            r"Error 80[34]: (?:system has unsupported display driver|forward compatibility)",
        ],
        ["Upgrade the host's driver and restart the host."],
    ),
    rule(
        "fabric_manager_not_running",
        "The service that joins the GPUs of this host does not run.",
        [r"Error 802: system not yet initialized", r"CUDA_ERROR_SYSTEM_NOT_READY"],
        ["Start nvidia-fabricmanager of the same version as the driver."],
    ),
    rule(
        "no_gpus",
        "There is no GPU where the program runs.",
        [
            r"No devices were found",
            r"no CUDA-capable device is detected",
            r"libnvidia-ml\.so\S*: cannot open shared object|Failed to load (?:NVML|libnvidia-ml)",
            r"could not select device driver .*capabilities: \[\[gpu\]\]",
            r"GPU is required for (?:the )?\w+",
            r"No CUDA GPUs are available",
            r"Found no NVIDIA driver on your system",
        ],
        ["Run it on a host with a GPU; a container needs the GPUs given to it and the container toolkit."],
    ),
    rule(
        "gpu_not_in_this_release",
        "This release has no code for the GPU's architecture.",
        [
            r"no kernel image is available for execution on the device",
            r"is not compatible with the current PyTorch installation",
            r"Assertion failed: Unsupported arch(?:itecture)?\b",
        ],
        ["Use a release that supports this GPU, or another GPU."],
    ),
    rule(
        "backend_missing",
        "This server has no TensorRT-LLM backend.",
        [
            r"unable to find backend library for backend '(?P<backend>[^']+)'",
            r"unable to find '?\S*tensorrtllm/model\.py",
        ],
        ["Use an image whose name says trtllm; releases from 1.3 on serve through the PyTorch backend."],
        kinds=("server",),
    ),
    rule(
        "library_versions_mixed",
        "Libraries of different versions are mixed.",
        [r"undefined symbol: (?P<symbol>_Z\w+)"],
        ["Use the image as it was published; nothing may be upgraded in it by pip."],
    ),
    rule(
        "nccl_failed",
        "The GPUs cannot exchange data.",
        [
            r"NCCL WARN Error.*?/dev/shm/nccl",
            r"ncclSystemError|ncclInternalError|Failed, NCCL error",
        ],
        ["Give the container more shared memory (--shm-size=1g or more) and unlimited locked memory."],
        levels="any",
    ),
    rule(
        "mpi_cannot_start",
        "MPI could not start the processes.",
        [
            r"It looks like (?:opal_init|orte_init|MPI_INIT) failed",
            r"There are not enough slots available in the system to satisfy the (?P<slots>\d+)",
            r"ORTE was unable to reliably start one or more daemons",
            r"OPAL ERROR: Unreachable|ompi_rte_init failed",
        ],
        ["Use the image's own MPI; ask for as many slots as there are processes (--oversubscribe)."],
    ),
)
