"""Rules about the host and about llama.cpp: disks, memory, files, processes. See table.py for the order."""

from __future__ import annotations

from apps.diagnosis.domain.rule import Rule, rule

RULES: tuple[Rule, ...] = (
    rule(
        "dev_shm_missing",
        "The server has no /dev/shm.",
        [r"unable to initialize shared memory key.*No such file or directory"],
        ["Mount /dev/shm: the python backend keeps each model's queue there."],
        kinds=("server",),
    ),
    rule(
        "dev_shm_full",
        "Shared memory (/dev/shm) is too small or full.",
        [
            r"unable to initialize shared memory key.*requested size \((?P<bytes_per_instance>\d+) bytes\)"
            r".*No space left on device",
            r"unable to initialize shared memory key.*requested size \((?P<bytes_per_instance>\d+) bytes\)",
            r"failed to increase the shared memory pool size",
            r"/dev/shm/\S*.*No space left on device",  # noqa: S108 - a pattern, nothing is opened
        ],
        [
            "Give it about 64 MiB for each model instance and some to spare (containers: --shm-size=1g).",
            "Remove what a killed server left there: files of our own prefix in /dev/shm.",
        ],
        kinds=("server",),
    ),
    rule(
        "disk_full",
        "The disk is full.",
        [r"No space left on device", r"\bENOSPC\b", r"Disk quota exceeded", r"database or disk is full"],
        ["Delete engines that are no longer needed, or free space on that disk, then try again."],
        unless=r"shared memory|/dev/shm",
    ),
    rule(
        "host_out_of_memory",
        "The host ran out of memory.",
        [
            r"std::bad_alloc",
            r"\bMemoryError\b",
            r"Cannot allocate memory",
            r"failed to allocate (?:\S+ )?buffer of size (?P<bytes>\d+)",
            r"unable to allocate \S+ buffer",
            r"Out of memory: Killed process",
            r"oom-kill",
            r"^\s*(?:\[[^\]]*\](?:<\w+>)?:?\s*|\S+Z\s(?:\S+\s)?|\w+\d:\s)*(?:\S*sh: line \d+:\s+)?(?:\d+\s+)?"
            r"Killed\b(?!.*\bby\b)",
            r"DefaultCPUAllocator: (?:can't|not enough)",
        ],
        [
            "Stop something else on that host, or give it more memory.",
            "For a server: fewer slots, shorter sequences, or a narrower weight type.",
            "For a build: fewer workers at once; converting and building need one to three times the weights each.",
        ],
        unless=r"CUDA|GPU",
    ),
    rule(
        "port_in_use",
        "A port that the server wants is taken.",
        [
            r"Address already in use",
            r"failed to start (?P<service>\w+) service.*in use",
            r"Socket '[^']*:(?P<port>\d+)' already in use",
            r"No address added out of total \d+ resolved",
        ],
        ["Start it again: another port is chosen. Ports that stay taken belong to another program."],
        kinds=("server",),
    ),
    rule(
        "gguf_not_a_gguf",
        "The file is not a GGUF file.",
        [r"gguf_init_from_\w+: invalid magic characters: '(?P<magic>[^']*)'", r"GGUF magic invalid"],
        ["Name a .gguf file that was fetched completely."],
    ),
    rule(
        "gguf_truncated",
        "The GGUF file ends too early.",
        [
            r"tensor '(?P<tensor>[^']+)' data is not within the file bounds",
            r"model is corrupted or incomplete",
            r"gguf_init_from_\w+: failed to read",
        ],
        ["Fetch the file again: the download was cut off."],
    ),
    rule(
        "unsupported_architecture",
        "This llama.cpp does not know the model's architecture.",
        [r"unknown model architecture: '(?P<architecture>[^']*)'"],
        ["Choose a model of a known architecture, or a newer serving environment."],
    ),
    rule(
        "gguf_tensors_do_not_fit",
        "The file's weights do not fit its own header.",
        [
            r"missing tensor '(?P<tensor>[^']+)'",
            r"tensor '(?P<tensor>[^']+)' has wrong shape",
            r"wrong number of tensors; expected (?P<expected>\d+), got (?P<found>\d+)",
            r"(?:key not found in model|error loading model hyperparameters)",
        ],
        ["Fetch or convert the model again; the file was made by a faulty or different program."],
    ),
    rule(
        "library_missing",
        "A shared library is missing.",
        [
            r"error while loading shared libraries: (?P<library>\S+):",
            r"(?P<library>lib\S+): cannot open shared object",
        ],
        ["Set the serving environment up again: make up repairs it."],
    ),
    rule(
        "python_package_missing",
        "The serving environment lacks a Python package.",
        [r"ModuleNotFoundError: No module named '(?P<module>[^']+)'"],
        ["Set the serving environment up again: make up repairs it."],
    ),
    rule(
        "cpu_instruction_missing",
        "The processor lacks an instruction that the program uses.",
        [r"Illegal instruction"],
        ["Run it on a newer processor, or use a build of the engine for this one."],
        exits=(-4, 132),
        strength="hint",
    ),
    rule(
        "permission_denied",
        "A file or folder may not be read or written.",
        [r"(?:PermissionError: .*|Permission denied:? ?)'?(?P<path>/[^'\s]+)?"],
        ["Give the user that runs Inflight access to it."],
        strength="hint",
    ),
    rule(
        "killed",
        "The process was killed from outside, most often because the host ran out of memory.",
        [r"received signal SIGKILL|signal 9\b"],
        ["See the host's kernel log for 'Out of memory'; stop something else or give it more memory."],
        exits=(-9, 137),
        strength="hint",
    ),
    rule(
        "crashed",
        "The process crashed.",
        [
            r"Segmentation fault",
            r"signal (?:SIGSEGV|SIGABRT|SIGBUS)",
            r"GGML_ASSERT\((?P<assertion>.*?)\) failed",
        ],
        ["Try again; if it crashes again, report it with the log."],
        exits=(-11, -6, -7, 139, 134, 135),
        strength="hint",
    ),
)
