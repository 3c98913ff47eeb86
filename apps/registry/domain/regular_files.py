"""Opening files and showing texts that nobody has checked. Standard library alone (see gguf_reader)."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from apps.core.exceptions import InvalidInput


def clean_text(text: str) -> str:
    """The text without NUL characters and lone surrogates, which databases and terminals refuse."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def open_regular(path: Path, buffering: int = -1) -> BinaryIO:
    """Open a regular file for reading.

    Raises OSError where it cannot be opened, InvalidInput for a folder, a pipe or a device, which is never read.
    """
    # Without waiting: opening a pipe for reading would block until somebody writes.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    if not regular:
        os.close(descriptor)
        raise InvalidInput(
            "not_a_file",
            clean_text(f"{path.name} is not a regular file."),
            field=clean_text(path.name),
            remedy="Name a file of a checkpoint.",
        )
    return os.fdopen(descriptor, "rb", buffering)
