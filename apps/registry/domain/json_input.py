"""Reading a JSON file of a checkpoint that nobody has checked: bounded, typed, and never a traceback."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.core.exceptions import Finding, InvalidInput
from apps.registry.domain.regular_files import clean_text, open_regular

MIB = 1024 * 1024
# The largest config.json that is known (a mixed-precision list of every layer) stays under 1 MiB.
CONFIG_LIMIT = 8 * MIB
# Objects, members and elements of one document: bounds the memory that Python's objects take (about 200 bytes each).
MAX_VALUES = 400_000
MAX_NUMBER = 400
SHOWN_KEYS = 5


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON object with what was odd about its text. Numbers that no float can hold are infinite."""

    data: dict[str, Any]
    findings: tuple[Finding, ...] = ()


def read_bytes(path: Path, limit: int) -> bytes:
    """All bytes of a regular file of at most `limit` bytes.

    Raises InvalidInput for anything else: a folder, a pipe or device (which is never read), a loop of links, a file
    that may not be read or is too large.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise refuse(
                    "file_too_large",
                    path,
                    f"has {size:,} bytes; at most {limit:,} make sense for this file",
                    "This is not the file that its name says: fetch it again.",
                )
            return file.read(limit)
    except OSError as error:
        raise refuse("unreadable", path, f"cannot be read: {error.strerror or error}") from error


def read_object(path: Path, limit: int = CONFIG_LIMIT) -> Document:
    """The JSON object in a file. Raises InvalidInput where there is none."""
    return parse_object(read_bytes(path, limit), path)


def parse_object(raw: bytes, path: Path) -> Document:
    """The JSON object in a file's bytes; a name that occurs twice is a finding, the last one counts."""
    findings: list[Finding] = []
    text = _decoded(raw, path, findings)
    if sum(map(text.count, ",{[")) > MAX_VALUES:
        raise refuse("json_too_many_values", path, f"holds more than {MAX_VALUES:,} values")
    twice: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            counted = Counter(name for name, _ in pairs)
            twice.extend([name for name, times in counted.items() if times > 1][:SHOWN_KEYS])
        return made

    try:
        data = json.loads(text, object_pairs_hook=members, parse_int=_whole)
    except RecursionError:
        raise refuse("json_too_deep", path, "nests values deeper than any configuration does") from None
    except ValueError as error:
        raise _malformed(error, text, path) from error
    if not isinstance(data, dict):
        raise refuse("json_not_an_object", path, "does not hold a JSON object")
    if twice:
        names = clean_text(", ".join(name[:40] for name in twice[:SHOWN_KEYS]))
        findings.append(
            Finding(
                "json_duplicate_key",
                "warning",
                f"{path.name} has names twice in one object ({names}); the last one counts.",
                path.name,
                "Correct the file: other programs may take the first one.",
            )
        )
    return Document(data, tuple(findings))


def refuse(code: str, path: Path, what: str, remedy: str = "") -> InvalidInput:
    """The error for a file that cannot be used: its name, what is wrong, what to do."""
    return InvalidInput(
        code,
        clean_text(f"{path.name or path} {what}."),
        field=clean_text(path.name),
        remedy=remedy or "Fetch the file again from where the checkpoint came.",
    )


def _decoded(raw: bytes, path: Path, findings: list[Finding]) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise refuse("not_utf8", path, "is written in UTF-16", "Save it as UTF-8.")
    if raw.startswith(b"\xef\xbb\xbf"):
        raw = raw[3:]
        findings.append(
            Finding(
                "byte_order_mark",
                "warning",
                f"{path.name} begins with a byte order mark, which JSON does not allow.",
                path.name,
                "Save it as UTF-8 without a mark: transformers refuses it.",
            )
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise refuse("not_utf8", path, f"is not UTF-8: byte {error.start} is wrong") from error


def _whole(text: str) -> int | float:
    # Python refuses to convert thousands of digits; no size of a model has more than a few.
    return int(text) if len(text) <= MAX_NUMBER else math.inf


def _malformed(error: ValueError, text: str, path: Path) -> InvalidInput:
    if not text.strip():
        return refuse("json_empty", path, "is empty")
    if text.startswith("version https://git-lfs"):
        return refuse("git_lfs_pointer", path, "is a Git LFS pointer", "Fetch the file itself: git lfs pull.")
    if text.lstrip()[:1] == "<":
        return refuse(
            "json_malformed", path, "is a web page", "The download went to a sign-in or error page."
        )
    where = (
        f" in line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
    )
    reason = error.msg if isinstance(error, json.JSONDecodeError) else "a value is wrong"
    return refuse("json_malformed", path, f"is not JSON{where}: {reason}")
