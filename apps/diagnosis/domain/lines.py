"""What a line of a log is before any rule is asked: its level, and whether it is known to mean nothing."""

from __future__ import annotations

import re

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# `[TRT-LLM] [W]`, `[TensorRT-LLM][INFO]`, glog's `W0101`, Triton's `...Z W 123`, Python's `WARNING:`, `UserWarning:`.
_QUIET = re.compile(
    r"\[(?:TRT|TRT-LLM|TensorRT-LLM|tensorrt_llm)\] ?\[(?:W|I|V|WARNING|INFO|VERBOSE|DEBUG|TRACE)\]"
    r"|^(?:\S+ ?)?[WIVD]\d{4}[ \t]"
    r"|^\d{4}-\d\d-\d\dT\S+Z [WIV] "
    r"|^(?:\S+ )?(?:WARNING|INFO|DEBUG)\b ?[:\]|-]"
    r"|\b\w*Warning: ",
)
_LOUD = re.compile(
    r"\[(?:TRT|TRT-LLM|TensorRT-LLM|tensorrt_llm)\] ?\[(?:E|F|ERROR|FATAL)\]|\bERROR\b|^\w*Error: "
)
# Lines that look like errors and are none: TensorRT-LLM's and Triton's words for optional things that are absent.
NOISE = re.compile(
    r"Skipping tactic|insufficient to use tactic|Tactic Device request"
    r"|Invalid timing cache, using freshly created one"
    r"|Optional value for parameter .* will not be set|is not specified, will use default"
    r"|json\.exception\.(?:type_error\.302|out_of_range\.403)"
    r"|Using an engine plan file across different models of devices"
    r"|Failed to initialize NVML$|DCGM unable to start|DCGM initialization error"
    r"|Unable to allocate pinned system memory|CudaDriverHelper has not been initialized"
    r"|--allow-run-as-root|Unused Input:",
    re.IGNORECASE,
)
# The run has failed: what follows a recoverable line only where it was not recovered from.
FAILED = re.compile(
    r"Engine building failed|Traceback \(most recent call last\)|failed to load '|Failed to create instance"
    r"|Build failed|Aborted|MPI_ABORT|exit(?:ed)? (?:with )?code:? [1-9]",
    re.IGNORECASE,
)


def is_quiet(line: str) -> bool:
    """Whether a line calls itself less than an error."""
    return bool(_QUIET.search(line)) and not _LOUD.search(line)


def plain(line: str) -> str:
    """The line without terminal colours."""
    return ANSI.sub("", line) if "\x1b" in line else line
